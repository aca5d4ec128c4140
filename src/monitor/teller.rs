//! Tells events once they are on disk, one after another, so that a slow disk holds up nothing but the telling.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::board::Board;
use crate::event::Event;
use crate::store::Ack;

/// Takes events with the store's word to come. Events told before [`Teller::start`] wait for it.
#[derive(Debug)]
pub(super) struct Teller {
    out: mpsc::UnboundedSender<(Event, Ack)>,
    waiting: Option<mpsc::UnboundedReceiver<(Event, Ack)>>,
}

impl Default for Teller {
    fn default() -> Self {
        let (out, waiting) = mpsc::unbounded_channel();
        Self { out, waiting: Some(waiting) }
    }
}

impl Teller {
    /// Begins to tell those who follow `board`; the task ends when the teller is dropped and all is told.
    pub(super) fn start(&mut self, board: Board) -> JoinHandle<()> {
        let waiting = self.waiting.take();
        tokio::spawn(async move {
            let Some(mut waiting) = waiting else { return };
            while let Some((mut event, ack)) = waiting.recv().await {
                match ack.durable().await {
                    Ok(id) => event.id = id,
                    Err(error) => tracing::warn!(%error, "an event is not on disk"),
                }
                board.tell(Arc::new(event));
            }
        })
    }

    pub(super) fn tell(&self, event: Event, ack: Ack) {
        let _ = self.out.send((event, ack)); // the task lives as long as the teller
    }
}

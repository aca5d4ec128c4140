//! Live answers through the embedder: what they say of drift, apart from what the prompts say.
//!
//! Embedding takes milliseconds and happens on its own thread; the vectors come back as [`Embedded`]. What
//! does not fit the embedder's queue or CPU budget is skipped and counted there. Texts leave the sample here,
//! before anything is stored.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::clock::Timestamp;
use crate::detect::drift::{Drift, DriftSummary, FREEZE_AT, LiveReference, MIN_TEXT, Moved};
use crate::embed::EmbedHandle;
use crate::sample::Sample;
use crate::store::Store;
use crate::verdict::Source;

/// The vectors of one live prompt and its answer.
#[derive(Debug)]
pub(super) struct Embedded {
    pub(super) target: Arc<str>,
    pub(super) route: Arc<str>,
    pub(super) at: Timestamp,
    healthy: bool,
    prompt: Vec<f32>,
    answer: Vec<f32>,
}

/// The live references, one for each target and route.
pub(super) struct Live {
    embedder: Option<EmbedHandle>,
    references: HashMap<(Arc<str>, Arc<str>), Watched>,
    seed: u64,
}

/// One reference; what moved is told once, and once the target is beyond suspicion learned anew.
struct Watched {
    reference: LiveReference,
    moved: Option<(Moved, Timestamp)>,
    workload_moved: Option<Timestamp>,
}

impl Live {
    pub(super) fn new(embedder: Option<EmbedHandle>, seed: u64) -> Self {
        Self { embedder, references: HashMap::new(), seed }
    }

    /// Sends the sample's texts to the embedder, if it is a live one, and the rest to the store.
    pub(super) fn embed(
        &self,
        mut sample: Box<Sample>,
        healthy: bool,
        out: &mpsc::Sender<Embedded>,
        store: &Store,
    ) {
        let (prompt, answer) = (sample.prompt_text.take(), sample.answer_text.take());
        let meta = (Arc::clone(&sample.target), Arc::clone(&sample.route), sample.at);
        let live = sample.source == Source::Live;
        store.record_sample(sample);
        let (Some(embedder), Some(prompt), Some(answer)) = (&self.embedder, prompt, answer) else { return };
        if !live || prompt.trim().len() < MIN_TEXT || answer.trim().len() < MIN_TEXT {
            return;
        }
        let Some(prompt) = embedder.try_embed(prompt) else { return };
        let Some(answer) = embedder.try_embed(answer) else { return };
        let out = out.clone();
        tokio::spawn(async move {
            if let (Ok(prompt), Ok(answer)) = tokio::join!(prompt, answer) {
                let (target, route, at) = meta;
                let (prompt, answer) = (prompt.vector, answer.vector);
                let _ = out.try_send(Embedded { target, route, at, healthy, prompt, answer }); // full: skipped
            }
        });
    }

    /// Learns from the pair, or tells its drift and where the windows stand.
    pub(super) fn record(&mut self, pair: Embedded) -> Option<(Drift, DriftSummary)> {
        let (dim, seed, at) = (pair.prompt.len(), self.seed, pair.at);
        let anew = || LiveReference::new(dim, FREEZE_AT, seed);
        let watched = self.references.entry((pair.target, pair.route)).or_insert_with(|| Watched {
            reference: anew(),
            moved: None,
            workload_moved: None,
        });
        if pair.healthy && watched.moved.is_some_and(|(_, since)| at > since) {
            (watched.reference, watched.moved) = (anew(), None);
        }
        let reference = &mut watched.reference;
        let Some(mut drift) = reference.record(at, &pair.prompt, &pair.answer, pair.healthy) else {
            if let Some(unmeasured) = reference.unmeasured() {
                tokio::task::spawn_blocking(move || unmeasured.measure());
            }
            return None;
        };
        if watched.moved.is_some() {
            drift.windows = None; // is told already
        }
        if let Some(moved) = drift.windows.and_then(|windows| windows.moved()) {
            watched.moved = Some((moved, at));
            if moved == Moved::Workload {
                watched.workload_moved = Some(at);
            }
        }
        Some((drift, reference.summary()))
    }

    /// When the prompts of a target and route were last found to have moved.
    pub(super) fn workload_moved(&self, target: &Arc<str>, route: &Arc<str>) -> Option<Timestamp> {
        self.references.get(&(Arc::clone(target), Arc::clone(route)))?.workload_moved
    }

    /// Where the windows of a target stand, route by route.
    pub(super) fn summaries(&self, target: &str) -> Vec<(Arc<str>, DriftSummary)> {
        let mut all: Vec<_> = self
            .references
            .iter()
            .filter(|((name, _), _)| **name == *target)
            .map(|((_, route), watched)| (Arc::clone(route), watched.reference.summary()))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// The embedder.
    pub(super) fn embedder(&self) -> Option<&EmbedHandle> {
        self.embedder.as_ref()
    }
}

//! Self-tests of what the arms have learned, off the loop: each computes for a second or so.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::run::Monitor;
use super::target::Learned;
use crate::baseline::Tested;
use crate::detect::conformal::Healthy;
use crate::detect::selftest;

/// A test that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    target: Arc<str>,
    what: Learned,
    tested: Tested,
}

/// The tests under way.
#[derive(Debug)]
pub(super) struct SelfTests {
    out: mpsc::UnboundedSender<Ended>,
    ended: mpsc::UnboundedReceiver<Ended>,
}

impl Default for SelfTests {
    fn default() -> Self {
        let (out, ended) = mpsc::unbounded_channel();
        Self { out, ended }
    }
}

impl SelfTests {
    pub(super) fn begin(&self, target: &Arc<str>, what: Learned, healthy: Healthy) {
        let (out, target) = (self.out.clone(), Arc::clone(target));
        tokio::task::spawn_blocking(move || {
            let seed = healthy.len() as u64;
            let tested = selftest::test(&healthy, selftest::PROMISE, selftest::RESAMPLES, seed);
            let _ = out.send(Ended { target, what, tested }); // a monitor that is gone needs none
        });
    }

    pub(super) async fn next(&mut self) -> Option<Ended> {
        self.ended.recv().await
    }
}

impl Monitor {
    pub(super) fn tested(&mut self, ended: &Ended) {
        let Ended { target, what, tested } = ended;
        tracing::info!(
            target_name = %target, limit = tested.limit, arl0_p10 = tested.arl0_p10, kept = tested.kept,
            "an arm's reference was learned and tested"
        );
        if let Some(watched) = self.targets.get_mut(target) {
            watched.core.on_tested(what, tested);
        }
    }
}

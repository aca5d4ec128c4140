//! The further models of a target that names none: each has a core of its own (see [`crate::gate::Models`]), without
//! golden prompts, which are asked of the target's first model only. Callers' requests then prove recovery.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::run::{Monitor, Start};
use super::target::{Setup, TargetCore};
use super::watched::Watched;
use crate::gate::target_of;

impl Monitor {
    /// Begins to watch a state that is not known yet, if it is that of a model of a known target.
    pub(super) fn split(&mut self, state: &Arc<str>) {
        let base = target_of(state);
        let Some(of) = self.targets.get(base).filter(|_| base != &**state) else { return };
        let now = self.out.clock.now();
        let start = Start {
            setup: Setup { name: Arc::clone(state), ..of.core.setup().clone() },
            golden: (false, false),
            baseline: None,
            prober: mpsc::channel(1).0, // nobody listens: there is nothing to order
        };
        let seed = state.bytes().fold(self.out.seed, |seed, b| seed.wrapping_mul(31).wrapping_add(b.into()));
        let mut core = TargetCore::new(start.setup.clone(), seed);
        match self.saved.remove(state).map(serde_json::from_value) {
            Some(Ok(saved)) => core.restore(saved, seed, now),
            Some(Err(error)) => tracing::warn!(target_name = %state, %error, "saved state cannot be read"),
            None => {}
        }
        let _ = core.set_golden(now, false, false, None);
        tracing::info!(target_name = %base, state = %state, "a further model is watched apart");
        self.targets.insert(Arc::clone(state), Watched::new(core, &start, now));
        self.publish(state, now);
    }

    /// After a reload: states of models whose target is still there and still names none.
    pub(super) fn keep_split(&mut self, before: impl IntoIterator<Item = (Arc<str>, Watched)>) {
        for (state, mut watched) in before {
            let base = target_of(&state);
            let Some(of) = self.targets.get(base).filter(|_| base != &*state) else { continue };
            if of.core.setup().own_model {
                continue;
            }
            watched.mode = of.mode;
            watched.core.set_setup(Setup { name: Arc::clone(&state), ..of.core.setup().clone() });
            self.targets.insert(state, watched);
        }
    }
}

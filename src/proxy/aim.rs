//! What a request means at a target: which of its models it is for, and which limits hold.

use std::sync::Arc;

use super::ledger::Ledger;
use crate::upstream::Limits;

impl Ledger {
    /// The model that the caller asked for.
    pub(super) fn model(&self) -> Option<&str> {
        self.path_model.as_deref().or_else(|| self.ask.as_ref()?.model.as_deref())
    }

    /// The name under which the state of the target is published, for the model that was asked for.
    pub(super) fn state_of(&self, target: usize) -> Arc<str> {
        self.target(target).state_of(self.model())
    }

    /// Limits of a call to this target: as written, and for streams as calibration found them.
    pub(super) fn limits(&self, target: usize) -> Limits {
        let target = self.target(target);
        let limits = target.upstream.limits().with(&self.extra().limits);
        if limits.names_first_text() || !self.ask.as_ref().is_some_and(|ask| ask.stream) {
            return limits;
        }
        limits.learned(self.live.gate.read(&target.name).first_text_ms)
    }

    /// A model that answers well at a target that names none may be the first there.
    pub(super) fn note_model(&self, target: usize, answered: bool) {
        if let (true, Some(models), Some(model)) = (answered, &self.target(target).models, self.model()) {
            models.answered(model);
        }
    }
}

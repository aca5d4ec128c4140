//! What is said of a try that broke off: the condition, and how much had been received by then.

use super::ledger::Ledger;
use crate::judge::End;

impl Ledger {
    /// Logs a try that does not end in order; nothing for one that does.
    pub(super) fn note_break(&self, end: End) {
        let (Some(running), false) = (self.running(), end == End::Complete) else { return };
        tracing::info!(
            id = &*self.id,
            trace_id = &*self.trace,
            target_name = &*self.target(running.target).name,
            tier = running.tier,
            condition = ?end,
            ms = running.elapsed_ms(),
            received_bytes = running.seen_bytes(),
            received_events = running.events(),
            text_had_begun = running.has_text(),
            "answer broke off"
        );
    }
}

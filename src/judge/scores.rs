//! What a ranking holds, as far as one answer alone can tell.
//!
//! A score may have any finite value, since some models give probabilities and some logits.

use super::Verdict;
use super::ask::Ask;
use crate::verdict::{Flag, FlagSet};

/// Most documents whose indexes are followed.
const MAX_FOLLOWED: usize = 16 << 10;

/// Running facts over the scores of one answer.
#[derive(Debug, Default)]
pub(super) struct Scores {
    flags: FlagSet,
    taken: Vec<bool>,
    /// Scores in the answer, those not looked at included; `None` if there is no list of them.
    pub(super) items: Option<usize>,
}

impl Scores {
    pub(super) fn add(&mut self, index: Option<i64>, value: f64, ask: &Ask) {
        if !value.is_finite() {
            self.flags.insert(Flag::TensorNonfinite);
        }
        let most = ask.items.map_or(usize::MAX, |n| n as usize);
        let given = index.and_then(|i| usize::try_from(i).ok()).filter(|i| *i < most);
        let Some(index) = given else { return self.flags.insert(Flag::IndexAnomaly) };
        if index < MAX_FOLLOWED {
            if self.taken.len() <= index {
                self.taken.resize(index + 1, false);
            }
            if std::mem::replace(&mut self.taken[index], true) {
                self.flags.insert(Flag::IndexAnomaly);
            }
        }
    }

    /// Writes flags and signals.
    pub(super) fn conclude(&self, ask: &Ask, whole: bool, flags: &mut FlagSet, verdict: &mut Verdict) {
        *flags = flags.union(self.flags);
        let count = self.items.unwrap_or(0);
        let wanted = ask.items.map(|n| ask.top_n.map_or(n, |top| n.min(top)) as usize);
        if whole && count == 0 && wanted != Some(0) {
            flags.insert(Flag::EmptyOutput);
            verdict.empty_cause = Some("no_scores");
        } else if whole && wanted.is_some_and(|wanted| wanted != count) {
            flags.insert(Flag::IndexAnomaly);
        }
        verdict.signals.items = u32::try_from(count).ok();
    }
}

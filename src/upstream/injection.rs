//! Whether a target may be asked more than its callers ask.
//!
//! Some servers turn a good answer into an error when they are asked for logprobs. Whoever finds that out withdraws the
//! questions, for as long as the target's configuration stays; where asking without them failed as well, it was not
//! their fault, and they rest for a while only, so that a failing target is not asked everything twice.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// After an error that was not the questions' fault, milliseconds.
const REST_MS: u64 = 30_000;

/// Which requests may be asked for logprobs and usage that nobody asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Inject {
    /// The daemon's own canaries and bursts.
    #[default]
    Canary,
    /// Callers' requests too; what it brings is cut out of the answer again.
    Live,
}

/// What is known of one target; see the module.
#[derive(Debug, Default)]
pub struct Injection {
    withdrawn: AtomicBool,
    /// Milliseconds since the epoch.
    rests_until: AtomicU64,
}

impl Injection {
    /// Whether the target may be asked now.
    #[must_use]
    pub fn is_allowed(&self, now: Timestamp) -> bool {
        !self.withdrawn.load(Ordering::Relaxed) && now.as_millis() >= self.rests_until.load(Ordering::Relaxed)
    }

    /// The target answered without the questions what it had refused with them. True for the first to find out.
    pub fn withdraw(&self) -> bool {
        !self.withdrawn.swap(true, Ordering::Relaxed)
    }

    /// The target failed without the questions, too.
    pub fn rest(&self, now: Timestamp) {
        self.rests_until.store(now.plus_ms(REST_MS).as_millis(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_ends_and_a_withdrawal_does_not() {
        let injection = Injection::default();
        let at = |ms| Timestamp::from_millis(1_000_000 + ms);
        assert!(injection.is_allowed(at(0)));
        injection.rest(at(0));
        assert!(!injection.is_allowed(at(REST_MS - 1)) && injection.is_allowed(at(REST_MS)));
        assert!(injection.withdraw() && !injection.withdraw());
        assert!(!injection.is_allowed(at(10 * REST_MS)));
    }
}

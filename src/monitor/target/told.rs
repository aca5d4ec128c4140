//! A detector that goes on finding the same is heard once, and then now and then.
//!
//! An arm begins anew after each alarm. Where answers have moved for good it alarms every hundred answers or so, a
//! hundred times a second under load, and each event would wait for the disk and push older ones out of sight.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::detect::{Arm, Finding};

/// The same finding is told again after so long: often enough to see that it lasts, at most 144 lines a day.
const AGAIN_MS: u64 = 10 * 60_000;
/// Different findings remembered; all are forgotten when there are more.
const MOST: usize = 1_000;

/// What was told since the target's health or breaker changed last.
#[derive(Clone, Debug, Default)]
pub(super) struct Told(BTreeMap<Key, (Timestamp, u64)>);

/// What makes two findings the same.
type Key = (Arm, Option<Arc<str>>, String);

fn key(finding: &Finding) -> Key {
    (finding.arm, finding.route.clone(), finding.reason.clone())
}

impl Told {
    /// Whether to tell it now, and how many like it were left out since it was told last.
    pub(super) fn admits(&mut self, finding: &Finding) -> Option<u64> {
        if finding.arm == Arm::B1 {
            return Some(0); // a burst is an experiment: each has its result
        }
        let Some((last, untold)) = self.0.get_mut(&key(finding)) else {
            self.note(finding);
            return Some(0);
        };
        let clock_went_back = finding.at < *last;
        if !clock_went_back && finding.at.ms_since(*last) < AGAIN_MS {
            *untold += 1;
            return None;
        }
        *last = finding.at;
        Some(std::mem::take(untold))
    }

    /// It has been told, whatever was forgotten meanwhile.
    pub(super) fn note(&mut self, finding: &Finding) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.entry(key(finding)).or_insert((finding.at, 0));
    }

    /// Something changed: what is found from here on is news.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::Level;

    fn finding(at: u64, arm: Arm, route: &str, reason: &str) -> Finding {
        Finding {
            at: Timestamp::from_millis(at),
            route: Some(route.into()),
            arm,
            level: Level::Suspect,
            reason: reason.to_owned(),
            statistic: 0.0,
            n: 0,
            limit: 0.0,
            arl0: None,
            onset: None,
            message: String::new(),
        }
    }

    #[test]
    fn the_same_is_told_once_in_ten_minutes_with_the_number_left_out() {
        let mut told = Told::default();
        let said: Vec<u64> = (0..100_000)
            .filter_map(|i| told.admits(&finding(i * 10, Arm::C1, "r", "block_length")))
            .collect();
        assert_eq!(said, [0, 59_999], "a hundred a second for 1,000 s");
    }

    #[test]
    fn what_differs_in_arm_route_or_reason_is_told() {
        let mut told = Told::default();
        for (arm, route, reason) in
            [(Arm::C1, "r", "a"), (Arm::C1, "r", "b"), (Arm::C1, "s", "a"), (Arm::C2, "r", "a")]
        {
            assert_eq!(told.admits(&finding(5, arm, route, reason)), Some(0));
            assert_eq!(told.admits(&finding(6, arm, route, reason)), None);
        }
    }

    #[test]
    fn bursts_changes_and_a_clock_that_goes_back_are_never_silent() {
        let mut told = Told::default();
        for at in [5, 6, 7] {
            assert_eq!(told.admits(&finding(at, Arm::B1, "r", "golden_burst")), Some(0));
        }
        assert_eq!(told.admits(&finding(5_000, Arm::C2, "r", "a")), Some(0));
        assert_eq!(told.admits(&finding(4_000, Arm::C2, "r", "a")), Some(0), "the clock went back");
        assert_eq!(told.admits(&finding(4_001, Arm::C2, "r", "a")), None);
        told.forget();
        assert_eq!(told.admits(&finding(4_002, Arm::C2, "r", "a")), Some(0));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut told = Told::default();
        for i in 0..5_000 {
            assert!(told.admits(&finding(i, Arm::Rule, "r", &i.to_string())).is_some());
        }
        assert!(told.0.len() <= MOST);
    }
}

//! How many samples of one second are written: a flood of sound answers says nothing that its first
//! fifty did not say, and would push weeks of history out of the file.

use crate::clock::Timestamp;

/// Counts by second; a second that is not the last one begins anew, so a clock that jumps does no harm.
#[derive(Debug)]
pub(super) struct Rate {
    most: u32,
    samples: Count,
    exchanges: Count,
}

#[derive(Debug, Default)]
struct Count {
    second: u64,
    sound: u32,
    telling: u32,
}

impl Count {
    fn admits(&mut self, at: Timestamp, telling: bool, most: u32) -> bool {
        let second = at.as_millis() / 1_000;
        if self.second != second {
            *self = Self { second, ..Self::default() };
        }
        let count = if telling { &mut self.telling } else { &mut self.sound };
        *count = count.saturating_add(1);
        *count <= most
    }
}

impl Rate {
    /// `most`: sound ones a second, and as many that failed or were flagged.
    pub(super) fn new(most: u32) -> Self {
        Self { most, samples: Count::default(), exchanges: Count::default() }
    }

    /// Whether this sample is written.
    pub(super) fn admits_sample(&mut self, at: Timestamp, telling: bool) -> bool {
        self.samples.admits(at, telling, self.most)
    }

    /// Whether this exchange is written.
    pub(super) fn admits_exchange(&mut self, at: Timestamp, telling: bool) -> bool {
        self.exchanges.admits(at, telling, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_its_share_and_faults_have_their_own() {
        let mut rate = Rate::new(3);
        let at = Timestamp::from_millis;
        let sound = (0..10).filter(|i| rate.admits_sample(at(5_000 + i), false)).count();
        let faults = (0..10).filter(|i| rate.admits_sample(at(5_000 + i), true)).count();
        let exchanges = (0..10).filter(|i| rate.admits_exchange(at(5_000 + i), false)).count();
        assert_eq!((sound, faults, exchanges), (3, 3, 3));
        assert!(rate.admits_sample(at(6_000), false));
        assert!(rate.admits_sample(at(1_000), false), "the clock went back");
    }
}

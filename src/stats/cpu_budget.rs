//! How much processor time the analysis of live answers may take: a bucket that fills with time and is
//! emptied by work.
//!
//! What a text will cost is not known before, so its place is paid for with the mean of what texts cost
//! lately, and settled when it is done. Otherwise a whole queue could be let in on one good balance.

/// A quiet daemon saves up the share of so much time, so that the first answers after a pause are not
/// lost and yet no stretch of a few seconds costs much more than its share.
const SAVED_US: f64 = 500_000.0;
/// Weight of the newest cost in the mean.
const GAIN: f64 = 0.1;

/// Processor time in microseconds, as a share of one core.
#[derive(Clone, Debug)]
pub struct CpuBudget {
    share: f64,
    balance_us: f64,
    mean_us: f64,
    at_us: u64,
}

impl CpuBudget {
    /// `share` of one core, 0..=1; `guess_us` is the cost assumed before one was measured.
    #[must_use]
    pub fn new(share: f64, guess_us: f64) -> Self {
        Self { share, balance_us: share * SAVED_US, mean_us: guess_us, at_us: 0 }
    }

    /// Lets one text in, and returns what was taken for it, unless the balance is spent.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // microseconds of a process's life
    pub fn take(&mut self, now_us: u64) -> Option<f64> {
        let passed = now_us.saturating_sub(self.at_us) as f64;
        self.at_us = self.at_us.max(now_us);
        self.balance_us = (self.balance_us + passed * self.share).min(self.share * SAVED_US);
        if self.balance_us <= 0.0 {
            return None;
        }
        self.balance_us -= self.mean_us;
        Some(self.mean_us)
    }

    /// Gives back what was taken for a text that was not done after all.
    pub fn refund(&mut self, taken_us: f64) {
        self.balance_us += taken_us;
    }

    /// Settles a text that cost `actual_us`.
    #[allow(clippy::cast_precision_loss)] // microseconds of one forward pass
    pub fn settle(&mut self, taken_us: f64, actual_us: u64) {
        let actual_us = actual_us as f64;
        self.balance_us += taken_us - actual_us;
        self.mean_us += GAIN * (actual_us - self.mean_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offers a text each millisecond for ten seconds; each costs 20 ms.
    fn worked_us(share: f64) -> u64 {
        let mut budget = CpuBudget::new(share, 20_000.0);
        let mut worked = 0;
        for ms in 0..10_000 {
            if let Some(taken) = budget.take(ms * 1_000) {
                budget.settle(taken, 20_000);
                worked += 20_000;
            }
        }
        worked
    }

    #[test]
    fn work_stays_within_the_share_and_what_was_saved_up() {
        for share in [0.05, 0.1, 0.5, 1.0] {
            let (worked, granted) = (worked_us(share) as f64, share * (1e7 + SAVED_US));
            assert!(worked <= granted + 40_000.0 && worked >= 0.95 * granted, "{share}: {worked}");
        }
        assert_eq!(worked_us(0.0), 0);
    }

    #[test]
    fn waiting_texts_have_paid_already() {
        let mut budget = CpuBudget::new(0.1, 20_000.0);
        let admitted = std::iter::from_fn(|| budget.take(0)).count();
        assert_eq!(admitted, 3, "half a second's share of texts at the first guess");
        budget.refund(20_000.0);
        assert!(budget.take(0).is_some() && budget.take(0).is_none());
    }

    #[test]
    fn a_clock_that_jumps_back_grants_nothing() {
        let mut budget = CpuBudget::new(1.0, 20_000.0);
        while budget.take(5_000_000).is_some() {}
        assert!(budget.take(1).is_none());
        assert!(budget.take(5_000_000).is_none());
        assert!(budget.take(5_020_000).is_some());
    }
}

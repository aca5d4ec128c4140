//! Where a new score stands among healthy ones: the whole of what a conformal detector knows.
//!
//! If a new score is exchangeable with the n healthy ones, its rank is uniform over n + 1 cells, whatever
//! the scores' distribution (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005). A
//! score that ties with healthy ones could fall into any of their cells. The usual way out is a random
//! choice; here it is put into the *least* suspicious of them instead: deterministic, never less
//! than uniform, and the one thing that keeps quiet on a target whose healthy scores are all equal
//! (there a random choice bets on nothing for ever and ends in an alarm).

/// Healthy scores, sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranks {
    sorted: Vec<f64>,
}

impl Ranks {
    /// Of these scores; what is not finite is left out.
    #[must_use]
    pub fn new(scores: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = scores.into_iter().filter(|s| s.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Self { sorted }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Cell of `score` counted from the top: how many healthy ones are at least as large, 0..=n.
    #[must_use]
    pub fn from_top(&self, score: f64) -> usize {
        self.sorted.len() - self.sorted.partition_point(|s| *s < score)
    }

    /// Cell of `score` counted from the bottom: how many healthy ones are at most as large, 0..=n.
    #[must_use]
    pub fn from_bottom(&self, score: f64) -> usize {
        self.sorted.partition_point(|s| *s <= score)
    }

    /// Share of the scores that another one equals, 0..=1; 0 for none.
    #[must_use]
    pub fn share_of_atoms(&self) -> f64 {
        let tied = self.sorted.chunk_by(|a, b| a.total_cmp(b).is_eq()).filter(|run| run.len() > 1);
        let n: usize = tied.map(<[f64]>::len).sum();
        if self.is_empty() { 0.0 } else { n as f64 / self.len() as f64 }
    }
}

/// The value on a grid of `step`, towards zero: what is smaller than a step is nothing.
#[must_use]
pub fn on_grid(value: f64, step: f64) -> f64 {
    (value / step + value.signum() * 1e-9).trunc() * step + 0.0 // no negative zero
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tie_stands_in_its_least_suspicious_cell() {
        let ranks = Ranks::new([1.0, 2.0, 2.0, 3.0, f64::NAN]);
        assert_eq!((ranks.from_top(9.0), ranks.from_top(2.0), ranks.from_top(0.0)), (0, 3, 4));
        assert_eq!((ranks.from_bottom(0.0), ranks.from_bottom(2.0), ranks.from_bottom(9.0)), (0, 3, 4));
        assert!((ranks.share_of_atoms() - 0.5).abs() < 1e-12);
        assert!(Ranks::new([]).is_empty() && Ranks::new([]).share_of_atoms().abs() < 1e-12);
    }

    #[test]
    fn a_grid_swallows_small_differences_and_has_one_zero() {
        assert_eq!(on_grid(0.049, 0.05).to_bits(), on_grid(-0.049, 0.05).to_bits());
        assert_eq!(on_grid(0.16, 0.05).to_bits(), on_grid(0.19, 0.05).to_bits());
        assert!((on_grid(-0.15, 0.05) + 0.15).abs() < 1e-12, "a step is a step");
    }

    proptest! {
        #[test]
        fn cells_grow_against_the_score_and_mirror_each_other(scores in prop::collection::vec(-5_i32..5, 1..40), x in -6_i32..6) {
            let ranks = Ranks::new(scores.iter().map(|s| f64::from(*s)));
            let mirrored = Ranks::new(scores.iter().map(|s| f64::from(-*s)));
            let x = f64::from(x);
            prop_assert!(ranks.from_top(x + 1.0) <= ranks.from_top(x));
            prop_assert_eq!(ranks.from_top(x), mirrored.from_bottom(-x));
            prop_assert!(ranks.from_top(x) + ranks.from_bottom(x) >= ranks.len());
        }
    }
}

//! Bets on ranks and the Shiryaev–Roberts recursion over them.
//!
//! A bet is a function of a conformal cell (see [`super::ranks`]) whose mean over uniform cells is 1: an
//! e-value. Under health the recursion R ← (1 + R)·b has mean at most t after t observations, and so
//! has any mean of such recursions; stopped at R ≥ A it alarms no sooner than after A observations on
//! average (Shin, Ramdas and Rinaldo, "E-detectors: a nonparametric framework for sequential change
//! detection", 2024). Each bet has its own recursion and the statistic is their mean: averaging the bets
//! inside one recursion dilutes each of them at every step and is far slower.
//!
//! The bets are likelihood ratios of normal scores z = Φ⁻¹(1 − p), averaged over the cell: of which a
//! share is moved by θσ, see [`BETS`]. They depend on ranks alone, so the promise holds for any distribution,
//! and on any that is a monotone picture of a normal one they are the best bets on what they bet on.
//! Measured at equal promise (10th percentile of the conditional ARL0 at 10⁴, n = 300, both tails) they see
//! 1/2/3σ after 21.4/6.7/4.0 observations and one bad replica of six (3σ) after 48; the power bets
//! ε·p^(ε−1), ε ∈ {.05, .1, .2, .4}, after 27.3/7.5/3.9. Three pure shifts are as fast on shifts and need 80 for
//! the replica (`cargo bench --bench detect`).

use std::sync::Arc;

use crate::clock::Timestamp;

use super::normal;

/// What is bet on: the shift in standard deviations of a normal picture, the share of observations that
/// are moved by it, and the weight of its recursion in the statistic.
pub const BETS: [(f64, f64, f64); 3] = [(1.0, 1.0, 0.475), (2.0, 1.0, 0.475), (3.0, 0.3, 0.05)];

/// One value of each bet.
pub type Bet = [f64; BETS.len()];

/// The bets of every cell of n + 1, the most suspicious cell first.
#[derive(Clone, Debug, PartialEq)]
pub struct Bets {
    cells: Arc<[Bet]>,
}

impl Bets {
    /// For ranks among `n` healthy scores.
    #[must_use]
    pub fn normal_scores(n: usize) -> Self {
        let width = 1.0 / (n as f64 + 1.0);
        let z: Vec<f64> = (0..=n + 1).map(|k| -normal::quantile((k as f64 * width).min(1.0))).collect();
        let mass = |k: usize, shift: f64| normal::cdf(shift - z[k + 1]) - normal::cdf(shift - z[k]);
        let bet =
            |k: usize| BETS.map(|(shift, share, _)| 1.0 - share + share * mass(k, shift).max(0.0) / width);
        Self { cells: (0..=n).map(bet).collect() }
    }

    /// The bets of a cell; a cell beyond the last is the last.
    #[must_use]
    pub fn of(&self, cell: usize) -> &Bet {
        &self.cells[cell.min(self.cells.len() - 1)]
    }

    /// Healthy scores it is for.
    #[must_use]
    pub fn n(&self) -> usize {
        self.cells.len() - 1
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.cells)
    }
}

/// One recursion with the maximum-likelihood onset beside it (Page's rule in product form).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Recursion {
    r: f64,
    page: f64,
    onset: Timestamp,
}

/// The recursions of one tail of one score, one a bet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShiryaevRoberts {
    recursions: [Recursion; BETS.len()],
}

impl ShiryaevRoberts {
    /// Takes one observation's bets.
    pub fn step(&mut self, at: Timestamp, bet: &Bet) {
        for (recursion, bet) in self.recursions.iter_mut().zip(bet) {
            recursion.r = ((1.0 + recursion.r) * bet).min(1e300);
            if recursion.page <= 1.0 {
                recursion.onset = at;
            }
            recursion.page = (recursion.page.max(1.0) * bet).min(1e300);
        }
    }

    /// Weighted mean of the recursions.
    #[must_use]
    pub fn statistic(&self) -> f64 {
        self.recursions.iter().zip(BETS).map(|(r, (_, _, weight))| r.r * weight).sum()
    }

    /// The largest recursion and when what it sees began; `None` while it sees nothing.
    #[must_use]
    pub fn leading(&self) -> (f64, Option<Timestamp>) {
        let leading =
            self.recursions.iter().copied().reduce(|a, b| if b.r > a.r { b } else { a }).unwrap_or_default();
        (leading.r, (leading.page > 1.0).then_some(leading.onset))
    }

    /// Forgets everything.
    pub fn restart(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: &[f64; 3], b: &[f64; 3]) -> bool {
        a.iter().zip(b).all(|(a, b)| a.total_cmp(b).is_eq())
    }

    #[test]
    fn the_bets_of_all_cells_have_mean_one_and_fall_with_the_cell() {
        for n in [1, 20, 100, 300, 2_000] {
            let bets = Bets::normal_scores(n);
            assert_eq!(bets.n(), n);
            for i in 0..BETS.len() {
                let mean = (0..=n).map(|k| bets.of(k)[i]).sum::<f64>() / (n as f64 + 1.0);
                assert!((mean - 1.0).abs() < 1e-9, "{n} {i}: {mean}");
                assert!((0..n).all(|k| bets.of(k)[i] >= bets.of(k + 1)[i]));
            }
            assert!(same(bets.of(n + 7), bets.of(n)));
        }
    }

    #[test]
    fn a_single_cell_bets_nothing() {
        assert!(same(Bets::normal_scores(0).of(0), &[1.0; 3]));
    }

    #[test]
    fn the_onset_is_where_the_evidence_began() {
        let bets = Bets::normal_scores(100);
        let mut sr = ShiryaevRoberts::default();
        for t in 0..200 {
            sr.step(Timestamp::from_millis(t), bets.of(60));
        }
        assert_eq!(sr.leading().1, None);
        for t in 200..203 {
            sr.step(Timestamp::from_millis(t), bets.of(0));
        }
        assert_eq!(sr.leading().1, Some(Timestamp::from_millis(200)));
        assert!(sr.statistic() > 1e4, "{}", sr.statistic());
        sr.restart();
        assert!(sr.statistic().abs() < 1e-12);
    }

    /// The law behind the promise: under uniform ranks the mean of the statistic after t steps is t.
    #[test]
    fn under_health_the_statistic_grows_no_faster_than_time() {
        let mut rng = fastrand::Rng::with_seed(5);
        let bets = Bets::normal_scores(9);
        let (runs, steps) = (20_000, 5);
        let mut sum = 0.0;
        for _ in 0..runs {
            let mut sr = ShiryaevRoberts::default();
            for _ in 0..steps {
                sr.step(Timestamp::ZERO, bets.of(rng.usize(..10)));
            }
            sum += sr.statistic();
        }
        let mean = sum / f64::from(runs);
        assert!((mean / f64::from(steps) - 1.0).abs() < 0.05, "{mean}");
    }
}

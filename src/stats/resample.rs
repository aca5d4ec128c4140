//! How much neighbours of a stream resemble each other, and streams drawn to resemble each other as much.

use super::normal;

/// Entries of the tables that make and take apart normal numbers: a draw is then a look-up.
const TABLE: usize = 1 << 13;
/// The tables end here, standard deviations.
const EDGE: f64 = 4.5;

/// Lag-1 autocorrelation of the finite values, −1..=1. `None` for fewer than three or for constant ones.
#[must_use]
pub fn lag1(values: &[f64]) -> Option<f64> {
    let v: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    let mean = v.iter().sum::<f64>() / v.len() as f64;
    let variance: f64 = v.iter().map(|x| (x - mean).powi(2)).sum();
    if v.len() < 3 || variance <= 0.0 {
        return None;
    }
    Some(v.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum::<f64>() / variance)
}

/// Uniform indexes with the autocorrelation of a Gaussian AR(1): neighbours in time are neighbours in rank.
#[derive(Debug)]
pub struct Autoregression {
    phi: f64,
    fresh: f64,
    z: f64,
    quantiles: Vec<f64>,
    cdf: Vec<f64>,
}

impl Autoregression {
    /// With this autocorrelation, 0..1.
    #[must_use]
    pub fn new(phi: f64) -> Self {
        let phi = if phi.is_finite() { phi.clamp(0.0, 0.999) } else { 0.0 };
        let at = |i: usize| (i as f64 + 0.5) / TABLE as f64;
        Self {
            phi,
            fresh: (1.0 - phi * phi).sqrt(),
            z: 0.0,
            quantiles: (0..TABLE).map(|i| normal::quantile(at(i))).collect(),
            cdf: (0..TABLE).map(|i| normal::cdf((2.0 * at(i) - 1.0) * EDGE)).collect(),
        }
    }

    /// The next index below `n`.
    pub fn draw(&mut self, n: usize, rng: &mut fastrand::Rng) -> usize {
        self.z = self.phi * self.z + self.fresh * self.quantiles[rng.usize(..TABLE)];
        let place = (self.z / EDGE + 1.0) / 2.0 * TABLE as f64;
        let u = self.cdf[(place.max(0.0) as usize).min(TABLE - 1)];
        ((u * n as f64) as usize).min(n.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn autocorrelation_is_told() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut x = 0.0;
        let series: Vec<f64> = (0..20_000)
            .map(|_| {
                x = 0.3 * x + (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
                x
            })
            .collect();
        assert!((lag1(&series).expect("known") - 0.3).abs() < 0.03);
        let shuffled: Vec<f64> = (0..20_000).map(|_| series[rng.usize(..20_000)]).collect();
        assert!(lag1(&shuffled).expect("known").abs() < 0.03);
        assert_eq!(lag1(&[1.0, 1.0, 1.0]), None);
        assert_eq!(lag1(&[1.0, f64::NAN, 2.0]), None);
    }

    #[test]
    fn drawn_indexes_are_uniform_and_depend_as_asked() {
        let mut rng = fastrand::Rng::with_seed(4);
        for phi in [0.0, 0.06, 0.5] {
            let mut stream = Autoregression::new(phi);
            let drawn: Vec<usize> = (0..60_000).map(|_| stream.draw(300, &mut rng)).collect();
            for (from, to) in [(0, 30), (30, 270), (270, 300)] {
                let share = drawn.iter().filter(|i| (from..to).contains(*i)).count() as f64 / 60_000.0;
                let wanted = (to - from) as f64 / 300.0;
                assert!((share - wanted).abs() < 0.01, "{phi}: {share} of {wanted}");
            }
            let seen = lag1(&drawn.iter().map(|i| *i as f64).collect::<Vec<_>>()).expect("known");
            assert!((seen - phi).abs() < 0.03, "{seen} of {phi}");
        }
    }
}

//! Resampling of a healthy stream, and how much its neighbours resemble each other.
//!
//! The block bootstrap draws runs of neighbours, so that what depends on its neighbour does so in the
//! copy too (Künsch, "The jackknife and the bootstrap for general stationary observations", 1989; here
//! circular, after Politis and Romano, 1992).

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

/// Draws indexes below `n` in circular runs of `block`, for ever.
#[derive(Debug)]
pub struct Resampler {
    n: usize,
    block: usize,
    at: usize,
    left: usize,
}

impl Resampler {
    /// Over `n` observations in runs of `block`, each at least 1; 1 is the plain bootstrap.
    #[must_use]
    pub fn new(n: usize, block: usize) -> Self {
        Self { n: n.max(1), block: block.max(1), at: 0, left: 0 }
    }

    /// The next index.
    pub fn draw(&mut self, rng: &mut fastrand::Rng) -> usize {
        if self.left == 0 {
            (self.at, self.left) = (rng.usize(..self.n), self.block);
        } else {
            self.at = (self.at + 1) % self.n;
        }
        self.left -= 1;
        self.at
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
    fn blocks_keep_neighbours_together() {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut blocks = Resampler::new(50, 10);
        let drawn: Vec<usize> = (0..1_000).map(|_| blocks.draw(&mut rng)).collect();
        assert!(drawn.chunks(10).all(|run| run.windows(2).all(|w| w[1] == (w[0] + 1) % 50)));
        assert!(drawn.iter().all(|i| *i < 50));
    }
}

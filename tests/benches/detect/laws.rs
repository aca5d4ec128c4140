//! Streams of healthy scores, and run lengths on them.
#![allow(dead_code, unreachable_pub)] // the bench and the reference test each use their part

use super::baselines::Detector;

/// Standard normal.
pub fn normal(rng: &mut fastrand::Rng) -> f64 {
    (-2.0 * rng.f64().max(1e-300).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

/// A law of healthy scores, scaled to a standard deviation of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Normal.
    Normal,
    /// Student's t with four degrees of freedom.
    T4,
    /// Lognormal of a standard normal.
    Lognormal,
    /// Nine in ten are one value, the rest four others: healthy logprobs on one machine.
    Atomic,
    /// Means of ten values of an autoregression with φ = 0.3.
    Blocks,
}

impl Law {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Normal, Self::T4, Self::Lognormal, Self::Atomic, Self::Blocks];

    /// The next value; `state` is the autoregression's.
    pub fn draw(self, rng: &mut fastrand::Rng, state: &mut f64) -> f64 {
        match self {
            Self::Normal => normal(rng),
            Self::T4 => {
                let chi: f64 = (0..4).map(|_| normal(rng).powi(2)).sum();
                normal(rng) / (chi / 4.0).sqrt() / 2.0_f64.sqrt()
            }
            Self::Lognormal => (normal(rng).exp() - 1.648_721) / 2.161_197,
            Self::Atomic => match rng.u32(..40) {
                0 => 1.0,
                1 => 2.0,
                2 => 3.0,
                3 => 4.0,
                _ => 0.0,
            },
            Self::Blocks => {
                let mut sum = 0.0;
                for _ in 0..10 {
                    *state = 0.3 * *state + normal(rng);
                    sum += *state;
                }
                sum / 10.0 / 0.439 // standard deviation of such a mean
            }
        }
    }
}

/// Mean values until the first alarm after `healthy` quiet ones, the stream then moved by `shift`; `cap`
/// bounds each run. Also the share of runs that ended at the cap.
pub fn delay<D: Detector>(
    mut fresh: impl FnMut(u64) -> D,
    shift: f64,
    healthy: u32,
    runs: u64,
    cap: u32,
) -> (f64, f64) {
    let (mut total, mut kept, mut capped) = (0.0, 0.0, 0.0);
    let mut seed = 0;
    while kept < runs as f64 {
        seed += 1;
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut detector = fresh(seed);
        if (0..healthy).any(|_| detector.push(normal(&mut rng))) {
            continue; // alarmed before: not a delay
        }
        let n = (1..=cap).find(|_| detector.push(normal(&mut rng) + shift));
        capped += f64::from(u8::from(n.is_none()));
        total += f64::from(n.unwrap_or(cap));
        kept += 1.0;
    }
    (total / kept, capped / kept)
}

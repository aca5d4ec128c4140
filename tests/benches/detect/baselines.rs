//! Published detectors for comparison, as their papers and the usual library defaults have them. They live
//! beside the bench and nowhere in the program.
#![allow(dead_code, unreachable_pub, clippy::float_cmp)] // the bench and the reference test each use their part

/// A detector of changes in one stream of numbers.
pub trait Detector {
    /// Takes a value; whether it says that something changed. It then starts anew.
    fn push(&mut self, x: f64) -> bool;
}

/// Two-sided tabular CUSUM of standardised values (Page 1954; Montgomery, "Introduction to Statistical
/// Quality Control").
pub struct Cusum {
    k: f64,
    h: f64,
    up: f64,
    down: f64,
}

impl Cusum {
    pub fn new(k: f64, h: f64) -> Self {
        Self { k, h, up: 0.0, down: 0.0 }
    }
}

impl Detector for Cusum {
    fn push(&mut self, x: f64) -> bool {
        self.up = (self.up + x - self.k).max(0.0);
        self.down = (self.down - x - self.k).max(0.0);
        let alarm = self.up > self.h || self.down > self.h;
        if alarm {
            (self.up, self.down) = (0.0, 0.0);
        }
        alarm
    }
}

/// Siegmund's approximation of the two-sided CUSUM's ARL0 (1985): each side (e^{2kb} − 2kb − 1) ÷ 2k²,
/// b = h + 1.166; both together half of that.
pub fn siegmund(k: f64, h: f64) -> f64 {
    let x = 2.0 * k * (h + 1.166);
    (x.exp() - x - 1.0) / (4.0 * k * k)
}

/// Page–Hinkley, both sides, with the usual δ = 0.005, threshold 50, α = 0.9999, 30 values before the first
/// verdict.
#[derive(Default)]
pub struct PageHinkley {
    n: f64,
    mean: f64,
    rise: f64,
    fall: f64,
    least: f64,
    most: f64,
}

impl Detector for PageHinkley {
    fn push(&mut self, x: f64) -> bool {
        const DELTA: f64 = 0.005;
        self.n += 1.0;
        self.mean += (x - self.mean) / self.n;
        self.rise = 0.9999 * self.rise + (x - self.mean - DELTA);
        self.fall = 0.9999 * self.fall + (x - self.mean + DELTA);
        self.least = self.least.min(self.rise);
        self.most = self.most.max(self.fall);
        let alarm = self.n >= 30.0 && (self.rise - self.least > 50.0 || self.most - self.fall > 50.0);
        if alarm {
            *self = Self::default();
        }
        alarm
    }
}

/// KSWIN (Raab, Heusinger and Schleif 2020): the last 30 values against 30 drawn from the 70 before
/// them, two-sample Kolmogorov–Smirnov at α = 0.005.
pub struct Kswin {
    window: Vec<f64>,
    rng: fastrand::Rng,
    critical: usize,
}

const KS_WINDOW: usize = 100;
const KS_SAMPLE: usize = 30;

impl Kswin {
    pub fn new(seed: u64) -> Self {
        let critical = (1..=KS_SAMPLE).find(|d| ks_tail(KS_SAMPLE, *d) <= 0.005).unwrap_or(KS_SAMPLE);
        Self { window: Vec::new(), rng: fastrand::Rng::with_seed(seed), critical }
    }
}

/// P(n·D ≥ d) for two samples of n without ties (Gnedenko and Korolyuk 1951).
fn ks_tail(n: usize, d: usize) -> f64 {
    let mut sum = 0.0;
    for k in 1..=n / d {
        // C(2n, n − kd) ÷ C(2n, n)
        let ratio: f64 = (1..=k * d).map(|i| (n - k * d + i) as f64 / (n + i) as f64).product();
        sum += if !k.is_multiple_of(2) { ratio } else { -ratio };
    }
    2.0 * sum
}

impl Detector for Kswin {
    fn push(&mut self, x: f64) -> bool {
        if self.window.len() == KS_WINDOW {
            self.window.remove(0);
        }
        self.window.push(x);
        if self.window.len() < KS_WINDOW {
            return false;
        }
        let mut before: Vec<f64> = self.window[..KS_WINDOW - KS_SAMPLE].to_vec();
        self.rng.shuffle(&mut before);
        before.truncate(KS_SAMPLE);
        let mut recent = self.window[KS_WINDOW - KS_SAMPLE..].to_vec();
        before.sort_by(f64::total_cmp);
        recent.sort_by(f64::total_cmp);
        let (mut i, mut j, mut most) = (0, 0, 0);
        while i < KS_SAMPLE && j < KS_SAMPLE {
            if before[i] <= recent[j] {
                i += 1
            } else {
                j += 1
            }
            most = most.max(i.abs_diff(j));
        }
        let alarm = most >= self.critical;
        if alarm {
            self.window = self.window.split_off(KS_WINDOW - KS_SAMPLE);
        }
        alarm
    }
}

/// ADWIN (Bifet and Gavaldà 2007) with the usual δ = 0.002, at most 5 buckets a size, looking every 32 values.
pub struct Adwin {
    /// Newest last: values in the bucket, their sum, their squared deviations from its mean.
    buckets: Vec<(f64, f64, f64)>,
    n: u32,
}

impl Adwin {
    pub fn new() -> Self {
        Self { buckets: Vec::new(), n: 0 }
    }

    fn merge(a: (f64, f64, f64), b: (f64, f64, f64)) -> (f64, f64, f64) {
        let gap = a.1 / a.0 - b.1 / b.0;
        (a.0 + b.0, a.1 + b.1, a.2 + b.2 + gap * gap * a.0 * b.0 / (a.0 + b.0))
    }

    fn compress(&mut self) {
        let mut size = 1.0;
        loop {
            let same: Vec<usize> = (0..self.buckets.len()).filter(|i| self.buckets[*i].0 == size).collect();
            if same.len() <= 5 {
                return;
            }
            let (a, b) = (same[0], same[1]);
            self.buckets[a] = Self::merge(self.buckets[a], self.buckets[b]);
            self.buckets.remove(b);
            size *= 2.0;
        }
    }

    fn has_cut(&self) -> bool {
        let Some(all) = self.buckets.iter().copied().reduce(Self::merge) else { return false };
        let variance = all.2 / all.0;
        let delta = (2.0 * all.0.ln() / 0.002).ln();
        let mut old = (0.0, 0.0);
        for bucket in &self.buckets[..self.buckets.len() - 1] {
            old = (old.0 + bucket.0, old.1 + bucket.1);
            let (n0, n1) = (old.0, all.0 - old.0);
            if n0 < 5.0 || n1 < 5.0 {
                continue;
            }
            let m = 1.0 / (n0 - 4.0) + 1.0 / (n1 - 4.0);
            let epsilon = (2.0 * m * variance * delta).sqrt() + 2.0 / 3.0 * delta * m;
            if (old.1 / n0 - (all.1 - old.1) / n1).abs() > epsilon {
                return true;
            }
        }
        false
    }
}

impl Detector for Adwin {
    fn push(&mut self, x: f64) -> bool {
        self.n += 1;
        self.buckets.push((1.0, x, 0.0));
        self.compress();
        let mut alarm = false;
        while self.n.is_multiple_of(32) && self.buckets.len() > 1 && self.has_cut() {
            self.buckets.remove(0);
            alarm = true;
        }
        alarm
    }
}

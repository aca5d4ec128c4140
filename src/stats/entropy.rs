//! Entropy of a token distribution of which only the k most likely entries are known, and of a
//! classifier's whole distribution. All in nats.
//!
//! A server returns at most a few dozen of the 10⁵ log-probabilities of a position. Renormalising
//! those few understates the entropy badly and by an amount that moves with the very thing measured,
//! so it is never done here. Instead, with p_i = exp(l_i) sorted downwards, r = 1 − Σp_i the mass that
//! is not shown (at least 0) and V the size of the vocabulary:
//!
//! - truncated T = −Σ p_i ln p_i
//! - lumped L = T − r ln r: the entropy if the whole tail were one token. The drift statistic; two
//!   values are comparable at equal k only.
//! - lower bound T + r·ln(1/min(p_k, r)): no tail token can be likelier than the least likely shown
//!   one, nor than the tail itself.
//! - upper bound L + r·ln(V − k): the tail spread evenly over all that is left.

/// Logprobs above this are no logprobs (rounding of a certain token may lift it a hair above 0).
pub const MAX_LOGPROB: f64 = 1e-6;

/// Logprobs are floored here: a smaller value carries no information that matters and overflows sums.
pub const FLOOR_LOGPROB: f64 = -40.0;

/// Entropy of one position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PositionEntropy {
    /// T, over the shown tokens only, nats.
    pub truncated: f64,
    /// L, the tail as one token, nats.
    pub lumped: f64,
    /// r, the probability that is not shown, 0..=1.
    pub tail_mass: f64,
    /// Smallest entropy that agrees with what is shown, nats.
    pub lower: f64,
    /// Largest such entropy, nats; needs the vocabulary size.
    pub upper: Option<f64>,
    /// Mean of the shown logprobs, nats: the flatter the distribution, the *larger*.
    pub top_mean_logprob: f64,
    /// Shown tokens, duplicates already removed by the caller.
    pub k: u32,
}

/// Entropy of a position from its distinct alternatives' natural logprobs, in any order.
///
/// `None` if nothing is shown or a value is not a logprob (NaN, infinite, above [`MAX_LOGPROB`]):
/// the caller leaves sentinels out first. `vocab` smaller than what is shown counts as unknown.
#[must_use]
pub fn position(logprobs: &[f64], vocab: Option<u32>) -> Option<PositionEntropy> {
    let sound = logprobs.iter().fold(true, |sound, l| sound & l.is_finite() & (*l <= MAX_LOGPROB));
    if logprobs.is_empty() || !sound {
        return None;
    }
    let k = u32::try_from(logprobs.len()).ok()?;
    let Sums { mass, weighted, logprobs: sum, least } = pulp::Arch::new().dispatch(Summing(logprobs));
    let truncated = 0.0 - weighted; // never −0
    let tail_mass = (1.0_f64 - mass).max(0.0);
    let (mut lumped, mut lower) = (truncated, truncated);
    if tail_mass > 0.0 {
        let tail = tail_mass.ln();
        lumped -= tail_mass * tail;
        lower -= tail_mass * least.min(tail);
    }
    let upper = vocab.filter(|v| *v >= k).map(|v| {
        let rest = v - k;
        if rest == 0 || tail_mass <= 0.0 { lumped } else { lumped + tail_mass * f64::from(rest).ln() }
    });
    // On a full vocabulary rounding alone can leave a tail, and with it a crossed interval.
    let upper = upper.map(|u| u.max(lower));
    Some(PositionEntropy {
        truncated,
        lumped,
        tail_mass,
        lower,
        upper,
        top_mean_logprob: sum / f64::from(k),
        k,
    })
}

/// What is summed over the alternatives of a position.
struct Sums {
    /// Σp.
    mass: f64,
    /// Σp ln p.
    weighted: f64,
    /// Σ ln p.
    logprobs: f64,
    /// The smallest ln p.
    least: f64,
}

/// Alternatives whose exponentials are taken in one loop, which then goes through the vector units.
const TOGETHER: usize = 32;
/// Sums that grow side by side, so that none waits for the last addition.
const LANES: usize = 4;

impl Sums {
    #[inline(always)]
    fn of(given: &[f64]) -> Self {
        let mut sums = Self { mass: 0.0, weighted: 0.0, logprobs: 0.0, least: 0.0 };
        for part in given.chunks(TOGETHER) {
            sums.add(part);
        }
        sums
    }

    #[inline(always)]
    fn add(&mut self, part: &[f64]) {
        // Beyond the end stands what adds nothing.
        let (mut l, mut p) = ([0.0; TOGETHER], [0.0; TOGETHER]);
        let end = part.len().next_multiple_of(LANES).min(TOGETHER);
        l[..part.len()].copy_from_slice(part);
        for (l, p) in l[..end].iter_mut().zip(&mut p[..end]) {
            let floored = if *l > FLOOR_LOGPROB { *l } else { FLOOR_LOGPROB };
            *l = if floored < 0.0 { floored } else { 0.0 };
            *p = exp(*l);
        }
        p[part.len()..end].fill(0.0);
        let mut sums = [[0.0; LANES]; 4];
        for (l, p) in l[..end].as_chunks::<LANES>().0.iter().zip(p[..end].as_chunks::<LANES>().0) {
            for i in 0..LANES {
                sums[0][i] += p[i];
                sums[1][i] += p[i] * l[i];
                sums[2][i] += l[i];
                sums[3][i] = if l[i] < sums[3][i] { l[i] } else { sums[3][i] };
            }
        }
        let total = |[a, b, c, d]: [f64; LANES]| (a + b) + (c + d);
        self.mass += total(sums[0]);
        self.weighted += total(sums[1]);
        self.logprobs += total(sums[2]);
        self.least = sums[3].into_iter().fold(self.least, f64::min);
    }
}

/// [`Sums::of`], in the widest vector units that the machine has.
struct Summing<'a>(&'a [f64]);

impl pulp::WithSimd for Summing<'_> {
    type Output = Sums;

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) -> Sums {
        Sums::of(self.0)
    }
}

/// What a classifier's distribution says about its certainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassEntropy {
    /// H, nats.
    pub entropy: f64,
    /// H ÷ ln C, 0..=1; 0 for a single class.
    pub normalised: f64,
    /// Probability of the most likely class, 0..=1.
    pub confidence: f64,
    /// Most likely less second most likely, 0..=1; 1 for a single class.
    pub margin: f64,
    /// Index of the most likely class (the first of equals).
    pub top: usize,
}

/// Entropy, confidence and margin of a whole distribution over classes.
///
/// The probabilities may be off by rounding and are divided by their sum. `None` if there are none, one
/// is negative or not finite, or the sum is 0.
#[must_use]
pub fn categorical(probabilities: &[f64]) -> Option<ClassEntropy> {
    if probabilities.iter().any(|p| !p.is_finite() || *p < 0.0) {
        return None;
    }
    let total: f64 = probabilities.iter().sum();
    if !total.is_finite() || total <= 0.0 {
        return None;
    }
    let (mut top, mut first, mut second, mut entropy) = (0, f64::NEG_INFINITY, 0.0_f64, 0.0);
    for (i, p) in probabilities.iter().map(|p| p / total).enumerate() {
        entropy += plogp(p);
        if p > first {
            second = if first.is_finite() { first } else { 0.0 };
            (top, first) = (i, p);
        } else {
            second = second.max(p);
        }
    }
    #[allow(clippy::cast_precision_loss)] // a class count, far below 2^52
    let classes = probabilities.len() as f64;
    let normalised = if probabilities.len() > 1 { (entropy / classes.ln()).min(1.0) } else { 0.0 };
    Some(ClassEntropy { entropy, normalised, confidence: first, margin: first - second, top })
}

/// Probabilities of raw scores: softmax, safe against overflow. `None` if empty or not finite.
#[must_use]
pub fn softmax(logits: &[f64]) -> Option<Vec<f64>> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !max.is_finite() || logits.iter().any(|l| !l.is_finite()) {
        return None;
    }
    let weights: Vec<f64> = logits.iter().map(|l| (l - max).exp()).collect();
    let total: f64 = weights.iter().sum();
    Some(weights.into_iter().map(|w| w / total).collect())
}

/// Mean entropy of independent yes/no labels, nats, 0..=ln 2. `None` if empty or outside 0..=1.
#[must_use]
pub fn binary_mean(probabilities: &[f64]) -> Option<f64> {
    if probabilities.is_empty() || probabilities.iter().any(|p| !(0.0..=1.0).contains(p)) {
        return None;
    }
    let sum: f64 = probabilities.iter().map(|p| plogp(*p) + plogp(1.0 - p)).sum();
    #[allow(clippy::cast_precision_loss)] // a label count, far below 2^52
    Some(sum / probabilities.len() as f64)
}

/// e^x for [`FLOOR_LOGPROB`] ≤ x ≤ 0, within 2 units of the last place.
///
/// Without a branch, so that a loop over it goes through the vector units: x = n ln 2 + r with |r| ≤ ½ ln 2, in two parts
/// (Cody and Waite, "Software Manual for the Elementary Functions", 1980), and e^r by its series up to r¹³, the rest of
/// which is below 1e-17.
#[inline(always)]
fn exp(x: f64) -> f64 {
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1; // 21 zero bits behind: its product by n is exact
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 · 2^52: what is added to it is rounded to a whole number
    const SERIES: [f64; 14] = {
        let mut series = [1.0; 14];
        let mut i = 1;
        while i < series.len() {
            series[i] = series[i - 1] / i as f64;
            i += 1;
        }
        series
    };
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let power = SERIES[..13].iter().rev().fold(SERIES[13], |sum, c| sum * r + c);
    // n stands in the lowest bits of what it was rounded in; in those of the exponent it is 2^n.
    power * f64::from_bits((shifted.to_bits() << 52).wrapping_add(1_f64.to_bits()))
}

/// −p ln p, 0 at 0.
fn plogp(p: f64) -> f64 {
    if p > 0.0 { -p * p.ln() } else { 0.0 }
}

#[cfg(test)]
mod tests;

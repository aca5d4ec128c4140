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
    if logprobs.is_empty() || logprobs.iter().any(|l| !l.is_finite() || *l > MAX_LOGPROB) {
        return None;
    }
    let k = u32::try_from(logprobs.len()).ok()?;
    let (mut mass, mut truncated, mut sum, mut least) = (0.0, 0.0, 0.0, f64::INFINITY);
    for l in logprobs.iter().map(|l| l.clamp(FLOOR_LOGPROB, 0.0)) {
        let p = l.exp();
        mass += p;
        truncated -= p * l;
        sum += l;
        least = least.min(p);
    }
    let tail_mass = (1.0_f64 - mass).max(0.0);
    let lumped = truncated + plogp(tail_mass);
    let lower = if tail_mass > 0.0 { truncated - tail_mass * least.min(tail_mass).ln() } else { truncated };
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

/// −p ln p, 0 at 0.
fn plogp(p: f64) -> f64 {
    if p > 0.0 { -p * p.ln() } else { 0.0 }
}

#[cfg(test)]
mod tests;

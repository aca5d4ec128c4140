//! Small numerics of the mixture: blending, normalising, and noise that is a function of its place.

use super::vocab::Token;

/// Gives `share` of the probability to `votes`; damage may send a vote elsewhere.
pub(super) fn blend(out: &mut [f32], votes: &[(Token, f32)], share: f32, rewire: impl Fn(Token) -> Token) {
    if votes.is_empty() {
        return;
    }
    for p in out.iter_mut() {
        *p *= 1.0 - share;
    }
    for &(token, vote) in votes {
        out[rewire(token) as usize] += share * vote;
    }
}

/// Logits to log-probabilities.
pub(super) fn normalise(logits: &mut [f32]) {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = logits.iter().map(|logit| (logit - most).exp()).sum();
    let log_sum = most + sum.ln();
    logits.iter_mut().for_each(|logit| *logit -= log_sum);
}

/// SplitMix64's mixing of several words into one.
pub(super) fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0x9E37_79B9_7F4A_7C15_u64, |state, word| {
        let mut z = (state ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    })
}

/// A number that stands for a text.
pub(super) fn hash_text(text: &str) -> u64 {
    text.bytes()
        .fold(0xCBF2_9CE4_8422_2325, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

/// A hash as a number in 0..1.
#[allow(clippy::cast_precision_loss)]
pub(super) fn unit(hash: u64) -> f32 {
    (hash >> 40) as f32 / (1_u64 << 24) as f32
}

/// Nearly normal noise: the sum of four uniforms of 16 bits, scaled to variance 1.
#[allow(clippy::cast_precision_loss)]
pub(super) fn gaussian(context: u64, token: u64) -> f32 {
    let bits = hash(&[context, token]);
    let sum: u64 = (0..4).map(|part| (bits >> (16 * part)) & 0xFFFF).sum();
    (sum as f32 / 65_536.0 - 2.0) * 1.732_050_8
}

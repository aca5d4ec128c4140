//! Log-probability tracking: how far the first token's alternatives are from a reference.
//!
//! The distance is the mean absolute difference of token logprobs over the tokens that most reference
//! probes have in common; a token that a probe lacks counts as that probe's smallest logprob. Source:
//! "Log-probability tracking of LLM APIs" (ICLR 2026). The sampled token's own logprob is never used:
//! on one healthy endpoint it ran from −2.0 to −15.2 nats while the distribution stood still.

use std::collections::BTreeMap;

/// The alternatives of one position: token and logprob in nats.
pub type Position<'a> = &'a [(Vec<u8>, f64)];

/// Mean logprob of each token present in more than half of the probes, keyed by the token's text (bytes
/// that are no UTF-8 are written as `\xNN`), nats.
#[must_use]
pub fn reference(probes: &[Position<'_>]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, (f64, usize)> = BTreeMap::new();
    for probe in probes {
        for (token, logprob) in probe.iter().filter(|(_, l)| l.is_finite()) {
            let entry = sums.entry(key(token)).or_default();
            entry.0 += logprob;
            entry.1 += 1;
        }
    }
    sums.retain(|_, (_, n)| 2 * *n > probes.len());
    sums.into_iter().map(|(token, (sum, n))| (token, sum / n as f64)).collect()
}

/// Mean absolute difference of `probe` from `reference` over the reference's tokens, nats; `None` if either
/// has nothing to compare.
#[must_use]
pub fn distance(reference: &BTreeMap<String, f64>, probe: Position<'_>) -> Option<f64> {
    let known: BTreeMap<String, f64> =
        probe.iter().filter(|(_, l)| l.is_finite()).map(|(t, l)| (key(t), *l)).collect();
    let smallest = known.values().copied().fold(f64::INFINITY, f64::min);
    if reference.is_empty() || !smallest.is_finite() {
        return None;
    }
    let sum: f64 = reference.iter().map(|(t, l)| (known.get(t).unwrap_or(&smallest) - l).abs()).sum();
    Some(sum / reference.len() as f64)
}

/// The alternatives with white space around tokens taken off, the probabilities of what becomes one token
/// added up. Some serving stacks begin a token with a space and others do not; the model is the same.
#[must_use]
pub fn bare(probe: Position<'_>) -> Vec<(Vec<u8>, f64)> {
    let mut merged: Vec<(Vec<u8>, f64)> = Vec::with_capacity(probe.len());
    for (token, logprob) in probe.iter().filter(|(_, l)| l.is_finite()) {
        let token = match token.trim_ascii() {
            [] => token.as_slice(),
            bare => bare,
        };
        match merged.iter_mut().find(|(t, _)| t == token) {
            Some((_, sum)) => *sum = (sum.exp() + logprob.exp()).ln(),
            None => merged.push((token.to_vec(), *logprob)),
        }
    }
    merged
}

/// A token's bytes as text that can be reviewed and read back without loss of identity.
#[must_use]
pub fn key(token: &[u8]) -> String {
    let mut out = String::with_capacity(token.len());
    for chunk in token.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(tokens: &[(&str, f64)]) -> Vec<(Vec<u8>, f64)> {
        tokens.iter().map(|(t, l)| (t.as_bytes().to_vec(), *l)).collect()
    }

    #[test]
    fn an_equal_probe_has_distance_zero_and_a_missing_token_counts_as_the_smallest() {
        let a = position(&[("a", -0.1), ("b", -2.0), ("c", -4.0)]);
        let reference = reference(&[&a, &a, &a]);
        assert!(distance(&reference, &a).expect("comparable").abs() < 1e-12);
        let b = position(&[("a", -0.1), ("b", -2.0), ("z", -3.0)]);
        let d = distance(&reference, &b).expect("comparable");
        assert!((d - 1.0 / 3.0).abs() < 1e-12, "{d}");
    }

    #[test]
    fn only_tokens_common_to_most_probes_count() {
        let (a, b) = (position(&[("a", -1.0)]), position(&[("a", -2.0), ("rare", -3.0)]));
        let reference = reference(&[&a, &a, &b]);
        assert_eq!(reference.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(distance(&reference, &[]), None);
        assert_eq!(distance(&BTreeMap::new(), &a), None);
    }

    #[test]
    fn a_space_before_every_token_is_no_difference_once_bare() {
        let plain = position(&[("a", -0.5), ("b", -2.0), (" ", -3.0)]);
        let spaced = position(&[(" a", -0.5), (" b", -2.0), (" ", -3.0)]);
        assert_eq!(bare(&plain), bare(&spaced));
        let both = position(&[("a", -1.0), (" a", -1.0)]);
        assert!((bare(&both)[0].1 - (2.0_f64.ln() - 1.0)).abs() < 1e-12);
    }

    #[test]
    fn bytes_that_are_no_text_keep_their_identity() {
        assert_eq!(key(b"\xf0\x9f"), "\\xf0\\x9f");
        assert_ne!(key(b"\xf0"), key(b"\xf1"));
    }
}

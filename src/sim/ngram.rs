//! Interpolated n-gram model with absolute discounting.
//!
//! `P(w|h) = (max(c(h,w) − D, 0) + D·T(h)·P(w|h')) / c(h)`, where `T(h)` counts the distinct words
//! seen after `h` and `h'` is `h` without its oldest word (Ney, Essen and Kneser, 1994). Every step
//! yields a dense distribution over the whole vocabulary, so entropy and logprobs are true figures.

use std::collections::HashMap;

use super::vocab::{BOS, Token};

/// Taken from each count for what was never seen; small, as the corpus is small and to be followed.
const DISCOUNT: f32 = 0.12;
/// Longest history, tokens.
const MAX_HISTORY: usize = 4;

#[derive(Debug, Default)]
struct Row {
    next: Vec<(Token, f32)>,
    total: f32,
}

/// Counts of what follows what.
#[derive(Debug)]
pub(super) struct Ngrams {
    unigram: Vec<f32>,
    rows: HashMap<Box<[Token]>, Row>,
}

/// Replaces the continuation of a history by another token where weights are damaged.
pub(super) type Rewire<'a> = &'a dyn Fn(&[Token], Token) -> Token;

impl Ngrams {
    /// Counts `texts`, each with start and end tokens in place, over a vocabulary of `size` tokens.
    pub(super) fn learn<'a>(texts: impl Iterator<Item = &'a [Token]>, size: usize) -> Self {
        let mut counts = vec![0.0_f32; size];
        let mut rows: HashMap<Box<[Token]>, Row> = HashMap::new();
        for text in texts {
            for at in 1..text.len() {
                let next = text[at];
                counts[next as usize] += 1.0;
                for width in 1..=MAX_HISTORY.min(at) {
                    let row = rows.entry(text[at - width..at].into()).or_default();
                    row.total += 1.0;
                    match row.next.iter_mut().find(|(token, _)| *token == next) {
                        Some((_, count)) => *count += 1.0,
                        None => row.next.push((next, 1.0)),
                    }
                }
            }
        }
        let total: f32 = counts.iter().sum();
        let distinct = counts.iter().filter(|&&count| count > 0.0).count() as f32;
        let open = size.saturating_sub(1).max(1) as f32;
        let unigram = counts
            .iter()
            .enumerate()
            .map(
                |(token, &count)| {
                    if token == BOS as usize { 0.0 } else { (count + distinct / open) / (total + distinct) }
                },
            )
            .collect();
        Self { unigram, rows }
    }

    /// Writes P(·|`history`) into `out`, using at most `order` − 1 tokens of history.
    pub(super) fn distribution(
        &self,
        history: &[Token],
        order: usize,
        rewire: Option<Rewire<'_>>,
        out: &mut [f32],
    ) {
        out.copy_from_slice(&self.unigram);
        let longest = order.saturating_sub(1).min(MAX_HISTORY).min(history.len());
        for width in 1..=longest {
            let context = &history[history.len() - width..];
            let Some(row) = self.rows.get(context) else { break };
            let freed = DISCOUNT * row.next.len() as f32 / row.total;
            for p in out.iter_mut() {
                *p *= freed;
            }
            for &(token, count) in &row.next {
                let token = rewire.map_or(token, |rewire| rewire(context, token));
                out[token as usize] += (count - DISCOUNT) / row.total;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distribution_sums_to_one_and_prefers_what_was_seen() {
        let text: Vec<Token> = vec![BOS, 2, 3, 4, 2, 3, 5, 2, 3, 4, 0];
        let model = Ngrams::learn([text.as_slice()].into_iter(), 8);
        let mut out = vec![0.0; 8];
        for history in [&[BOS][..], &[2, 3], &[7, 7], &[4, 2, 3], &[]] {
            for order in 1..=5 {
                model.distribution(history, order, None, &mut out);
                let sum: f32 = out.iter().sum();
                assert!((sum - 1.0).abs() < 1e-4, "{history:?} {order}: {sum}");
            }
        }
        model.distribution(&[2, 3], 3, None, &mut out);
        assert!(out[4] > out[5] && out[5] > out[6]);
    }
}

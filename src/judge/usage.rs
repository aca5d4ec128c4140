//! What an answer cost, in tokens, and whether its counts can be.

use super::Verdict;
use super::choice::Choice;
use super::conclude::Seen;
use crate::sample::Usage;
use crate::verdict::{Flag, FlagSet, Substance, Wire};

/// No tokeniser packs more than this many bytes into a token over a whole answer.
const MAX_BYTES_PER_TOKEN: u64 = 24;
/// What a few very long tokens (indentation, rules) may add to that.
const SLACK_BYTES: u64 = 256;
/// Estimated bytes of a token.
const BYTES_PER_TOKEN: u64 = 4;

impl Seen<'_> {
    pub(super) fn usage(&self, whole: bool, flags: &mut FlagSet, verdict: &mut Verdict) {
        let text: u64 = self.answer.choices.iter().map(Choice::bytes).sum();
        let positive = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok());
        if let Some(counts) = self.answer.counts {
            verdict.usage = Usage {
                input: positive(counts.input),
                output: positive(counts.output),
                reasoning: positive(counts.reasoning),
                cached_input: positive(counts.cached_input),
                estimated: false,
            };
            let negative = counts.all().any(|n| n < 0);
            let sum = match (counts.input, counts.output, counts.total) {
                (Some(i), Some(o), Some(total)) => {
                    let with =
                        |extra: Option<i64>| i.saturating_add(o).saturating_add(extra.unwrap_or(0)) == total;
                    with(None) || with(counts.reasoning) || with(counts.cached_input)
                }
                _ => true,
            };
            let output = verdict.usage.output;
            let most = |n: u64| if n == 0 { 0 } else { n.saturating_mul(MAX_BYTES_PER_TOKEN) + SLACK_BYTES };
            let seen = whole && output.is_some_and(|n| text > most(n));
            if negative || !sum || seen {
                flags.insert(Flag::UsageInconsistent);
            }
        } else if whole && self.must_have_usage() {
            flags.insert(Flag::UsageMissing);
        }
        if verdict.usage.output.is_none() && self.success() && self.substance() == Substance::Text {
            let positions = self.answer.confidence.positions;
            let guess = if positions > 0 { positions } else { text.div_ceil(BYTES_PER_TOKEN) };
            verdict.usage.output = Some(guess);
            verdict.usage.estimated = true;
        }
        let counts_tokens = self.substance() != Substance::Tensors;
        if verdict.usage.input.is_none() && self.success() && counts_tokens {
            verdict.usage.input = Some(self.ask.input_tokens_estimate);
            verdict.usage.estimated = true;
        }
    }

    /// Taken on, to be answered later, or no question at all but the loading of a model.
    fn is_pending(&self) -> bool {
        let reasons = self.answer.choices.iter().filter_map(|c| c.finish.as_ref());
        reasons
            .into_iter()
            .any(|(reason, _)| matches!(reason.as_str(), "queued" | "in_progress" | "load" | "unload"))
    }

    /// Ollama's embeddings have none; a stream has usage where it was asked for.
    fn must_have_usage(&self) -> bool {
        match self.ask.wire {
            Wire::Chat | Wire::Completions => !self.is_stream() || self.ask.include_usage == Some(true),
            Wire::Embeddings | Wire::Messages => true,
            Wire::Responses | Wire::OllamaChat | Wire::OllamaGenerate => !self.is_pending(),
            _ => false,
        }
    }
}

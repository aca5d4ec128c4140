//! What an attempt costs.

use super::running::Seen;
use crate::judge::Ask;
use crate::sample::Usage;
use crate::spend::Nano;
use crate::upstream::Price;
use crate::verdict::Wire;

/// Estimated bytes of a token.
const BYTES_PER_TOKEN: u64 = 4;

/// What an attempt may cost at most, as far as the request tells: the prompt, and as many answer tokens as it
/// allows, for each answer asked for.
pub(super) fn estimate(price: &Price, wire: Wire, ask: Option<&Ask>, default_max_tokens: u64) -> Nano {
    let (input, output) = tokens(wire, ask, default_max_tokens);
    let usage = Usage { input: Some(input), output: Some(output), ..Usage::default() };
    Nano::from_usd(price.cost_usd(&usage))
}

/// Tokens of prompt and answer, estimated.
pub(super) fn tokens(wire: Wire, ask: Option<&Ask>, default_max_tokens: u64) -> (u64, u64) {
    let input = ask.map_or(0, |ask| ask.input_tokens_estimate);
    let writes = !matches!(
        wire,
        Wire::Embeddings | Wire::Rerank | Wire::OllamaEmbed | Wire::KserveInfer | Wire::TfPredict
    );
    let each = ask.and_then(|ask| ask.max_tokens).unwrap_or(default_max_tokens);
    let output = if writes { each.saturating_mul(u64::from(ask.map_or(1, |ask| ask.choices))) } else { 0 };
    (input, output)
}

/// What the attempt used. What the upstream did not say is estimated and marked; nothing was used only where
/// the request cannot have reached the upstream, or was refused before any work.
pub(super) fn used(seen: &Seen, ask: Option<&Ask>) -> Usage {
    let mut usage = seen.verdict.usage;
    if usage.input.is_some() && usage.output.is_some() {
        return usage;
    }
    if !seen.reached || seen.running.status.is_some_and(|s| (400..500).contains(&s)) {
        return usage;
    }
    let written = || seen.verdict.text.len() as u64 / BYTES_PER_TOKEN;
    usage.input = usage.input.or_else(|| ask.map(|ask| ask.input_tokens_estimate));
    usage.output = usage.output.or_else(|| Some(written()));
    usage.estimated = true;
    usage
}

/// In billionths of a dollar.
pub(super) fn cost(price: &Price, usage: &Usage) -> Nano {
    Nano::from_usd(price.cost_usd(usage))
}

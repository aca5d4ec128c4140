//! Token counts under all the names they go by.

use super::Value;

/// Counts of one usage object. Signed, since servers do send negative ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Prompt tokens.
    pub input: Option<i64>,
    /// Answer tokens.
    pub output: Option<i64>,
    /// Both, as the server adds them.
    pub total: Option<i64>,
    /// Reasoning tokens.
    pub reasoning: Option<i64>,
    /// Prompt tokens from the provider's cache.
    pub cached_input: Option<i64>,
}

impl Counts {
    /// Reads a usage object; `None` if no count in it is readable.
    #[must_use]
    pub fn read(usage: Value<'_>) -> Option<Self> {
        // The first name that is there counts, an explicit 0 too.
        let first = |names: &[&str]| names.iter().find_map(|n| usage.field(n)).and_then(|v| v.count());
        let inner = |paths: &[[&str; 2]]| paths.iter().find_map(|p| usage.path(p)).and_then(|v| v.count());
        let counts = Self {
            input: first(&[
                "prompt_tokens",
                "input_tokens",
                "prompt_n",
                "promptTokenCount",
                "prompt_eval_count",
            ]),
            output: first(&[
                "completion_tokens",
                "output_tokens",
                "predicted_n",
                "candidatesTokenCount",
                "eval_count",
            ]),
            total: first(&["total_tokens", "totalTokenCount"]),
            reasoning: inner(&[
                ["completion_tokens_details", "reasoning_tokens"],
                ["output_tokens_details", "reasoning_tokens"],
            ])
            .or_else(|| first(&["reasoning_tokens"])),
            cached_input: inner(&[
                ["prompt_tokens_details", "cached_tokens"],
                ["input_tokens_details", "cached_tokens"],
            ])
            .or_else(|| first(&["cache_read_input_tokens", "prompt_cache_hit_tokens", "cached_tokens"])),
        };
        (counts != Self::default()).then_some(counts)
    }

    /// Replaces each count that `later` has.
    pub fn update(&mut self, later: Self) {
        let put = |slot: &mut Option<i64>, new: Option<i64>| *slot = new.or(*slot);
        put(&mut self.input, later.input);
        put(&mut self.output, later.output);
        put(&mut self.total, later.total);
        put(&mut self.reasoning, later.reasoning);
        put(&mut self.cached_input, later.cached_input);
    }

    /// All counts, in no order.
    pub fn all(self) -> impl Iterator<Item = i64> {
        [self.input, self.output, self.total, self.reasoning, self.cached_input].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Doc;

    fn read(text: &str) -> Option<Counts> {
        let mut doc = Doc::default();
        doc.parse(text.as_bytes()).0.and_then(Counts::read)
    }

    #[test]
    fn both_pairs_of_names_are_read_and_zero_wins() {
        let counts = read(r#"{"input_tokens":5,"output_tokens":2}"#).expect("counts");
        assert_eq!((counts.input, counts.output), (Some(5), Some(2)));
        let counts = read(r#"{"completion_tokens":0,"output_tokens":9}"#).expect("counts");
        assert_eq!(counts.output, Some(0));
    }

    #[test]
    fn odd_types_are_read_or_left() {
        assert_eq!(read(r#"{"prompt_tokens":"12","completion_tokens":3.0}"#).and_then(|c| c.input), Some(12));
        assert_eq!(read(r#"{"prompt_tokens":{},"completion_tokens":[]}"#), None);
        assert_eq!(read(r#""none""#), None);
    }

    #[test]
    fn a_later_field_replaces_and_an_absent_one_stays() {
        let mut counts =
            read(r#"{"input_tokens":27,"output_tokens":1,"cache_read_input_tokens":100}"#).expect("counts");
        counts.update(read(r#"{"output_tokens":47}"#).expect("counts"));
        assert_eq!((counts.input, counts.output, counts.cached_input), (Some(27), Some(47), Some(100)));
    }
}

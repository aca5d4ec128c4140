//! `[[route.pick]]`: at which tier a request starts.
//!
//! Simple questions to the cheap model, hard ones to the strong one. The first rule whose every condition
//! holds decides; without one a request starts at the first tier.

use serde::{Deserialize, Serialize};

/// What a rule looks at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traits<'a> {
    /// Prompt tokens, estimated.
    pub input_tokens: u64,
    /// Whether tools are offered.
    pub tools: bool,
    /// The last user message or prompt.
    pub text: &'a str,
}

/// One rule; every condition that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pick {
    /// Where a request starts that fits, counted from 0.
    pub tier: usize,
    /// At least so many prompt tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_input_tokens: Option<u64>,
    /// At most so many prompt tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_input_tokens: Option<u64>,
    /// Words of which some must stand in the last user message or prompt; case does not matter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// How many of them; without it two, or the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_keywords: Option<usize>,
    /// A request header, as `name` or `name: value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Whether the request offers tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
}

/// Hits of a list of keywords that make a question hard, where the list is longer than one.
const KEYWORDS: usize = 2;

impl Pick {
    /// Whether every condition holds. `header` gives the values of a header.
    #[must_use]
    pub fn fits<'h>(&self, traits: &Traits<'_>, header: impl Fn(&str) -> Option<&'h str>) -> bool {
        self.min_input_tokens.is_none_or(|least| traits.input_tokens >= least)
            && self.max_input_tokens.is_none_or(|most| traits.input_tokens <= most)
            && self.tools.is_none_or(|tools| tools == traits.tools)
            && self.has_header(header)
            && self.has_keywords(traits.text)
    }

    fn has_header<'h>(&self, header: impl Fn(&str) -> Option<&'h str>) -> bool {
        let Some(wanted) = &self.header else { return true };
        match wanted.split_once(':') {
            Some((name, value)) => header(name.trim()).is_some_and(|v| v.trim() == value.trim()),
            None => header(wanted.trim()).is_some(),
        }
    }

    fn has_keywords(&self, text: &str) -> bool {
        if self.keywords.is_empty() {
            return true;
        }
        let text = text.to_lowercase();
        let wanted = self.keywords_wanted();
        self.keywords.iter().filter(|word| has_word(&text, &word.to_lowercase())).take(wanted).count()
            >= wanted
    }

    fn keywords_wanted(&self) -> usize {
        self.min_keywords.unwrap_or_else(|| KEYWORDS.min(self.keywords.len()))
    }

    /// Why it can never fire, if it cannot.
    #[must_use]
    pub fn can_never_fire(&self) -> Option<String> {
        if let (Some(least), Some(most)) = (self.min_input_tokens, self.max_input_tokens)
            && least > most
        {
            return Some(format!("no prompt has at least {least} and at most {most} tokens"));
        }
        let wanted = self.keywords_wanted();
        (wanted > self.keywords.len())
            .then(|| format!("min_keywords is {wanted} and the list has {}", self.keywords.len()))
    }

    /// Whether it takes every request, so that rules after it are never asked.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.min_input_tokens.unwrap_or(0) == 0
            && self.max_input_tokens.is_none()
            && self.tools.is_none()
            && self.header.is_none()
            && (self.keywords.is_empty() || self.keywords_wanted() == 0)
    }
}

/// Whether the word stands there, not as a part of another.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric();
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        // words of scripts without spaces have letters on both sides
        !word.is_ascii() || (!before.is_some_and(part) && !after.is_some_and(part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(text: &str) -> Pick {
        toml::from_str(text).expect(text)
    }

    #[test]
    fn two_keywords_of_a_list_make_a_question_hard() {
        let hard = pick("tier = 0\nkeywords = [\"prove\", \"derive\", \"Complexity\"]");
        let fits = |text: &str| hard.fits(&Traits { text, ..Traits::default() }, |_| None);
        assert!(fits("Prove it and derive the complexity."));
        assert!(!fits("Prove it."));
        assert!(!fits("improve the derivelopment"), "parts of words are no hits");
        let one = pick("tier = 0\nkeywords = [\"証明\"]");
        assert!(one.fits(&Traits { text: "これを証明して", ..Traits::default() }, |_| None));
    }

    #[test]
    fn tokens_tools_and_headers_are_conditions_that_must_all_hold() {
        let rule = pick("tier = 1\nmax_input_tokens = 500\ntools = false\nheader = \"x-tier: cheap\"");
        let cheap = |name: &str| (name == "x-tier").then_some("cheap");
        let traits = Traits { input_tokens: 500, tools: false, text: "" };
        assert!(rule.fits(&traits, cheap));
        assert!(!rule.fits(&traits, |_| None));
        assert!(!rule.fits(&Traits { tools: true, ..traits }, cheap));
        assert!(!rule.fits(&Traits { input_tokens: 501, ..traits }, cheap));
        assert!(pick("tier = 1\nheader = \"x-batch\"").fits(&traits, |n| (n == "x-batch").then_some("")));
    }

    #[test]
    fn a_rule_that_can_never_fire_is_told() {
        assert!(pick("tier = 1\nmin_input_tokens = 5\nmax_input_tokens = 4").can_never_fire().is_some());
        assert!(pick("tier = 1\nkeywords = [\"a\"]\nmin_keywords = 2").can_never_fire().is_some());
        assert!(pick("tier = 1\nkeywords = [\"a\"]").can_never_fire().is_none());
        assert!(pick("tier = 1").takes_all() && !pick("tier = 1\ntools = true").takes_all());
    }
}

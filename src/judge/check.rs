//! Whether a golden prompt's answer is what its check asks for.

use super::Verdict;
use super::schema::{Schema, Tools};
use crate::prompt::{Check, Prompt};
use crate::sample::CheckResult;
use crate::verdict::FaultClass;
use crate::wire::Doc;

/// Holds an answer against its prompt's check.
///
/// `NotJudged` if the prompt has none, if the check needs an embedding, if the answer failed for another
/// reason than its content, or if a pattern cannot be compiled.
#[must_use]
pub fn check(check: &Check, prompt: &Prompt, verdict: &Verdict) -> CheckResult {
    let failed = [
        FaultClass::Client,
        FaultClass::Info,
        FaultClass::Backpressure,
        FaultClass::Upstream,
        FaultClass::Slow,
    ];
    if verdict.class.is_some_and(|c| failed.contains(&c)) {
        return CheckResult::NotJudged;
    }
    let text = answer_text(&verdict.text);
    let passes = match check {
        Check::Exact(wanted) => wanted.as_slice().iter().any(|w| w.trim() == text),
        Check::Contains(wanted) => {
            let text = text.to_lowercase();
            wanted.as_slice().iter().all(|w| text.contains(&w.to_lowercase()))
        }
        Check::Regex(pattern) => match regex::Regex::new(pattern) {
            Ok(regex) => regex.is_match(text),
            Err(_) => return CheckResult::NotJudged,
        },
        Check::JsonSchema(schema) => {
            serde_json::from_str(unfenced(text)).is_ok_and(|instance| Schema::of(schema).allows(&instance))
        }
        Check::Tool(name) => calls(prompt, name, verdict),
        Check::Label(label) => has_label(text, label),
        Check::Similarity(_) => return CheckResult::NotJudged,
    };
    if passes { CheckResult::Pass } else { CheckResult::Fail }
}

/// The answer without what the model thought aloud before it.
fn answer_text(text: &str) -> &str {
    text.rsplit_once("</think>").map_or(text, |(_, after)| after).trim()
}

/// The inside of a fenced block, if the text is one.
fn unfenced(text: &str) -> &str {
    let inside = text.strip_prefix("```").and_then(|t| t.strip_suffix("```"));
    inside.map_or(text, |t| t.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).trim())
}

fn calls(prompt: &Prompt, name: &str, verdict: &Verdict) -> bool {
    let offered = serde_json::json!({ "tools": prompt.tools }).to_string();
    let mut doc = Doc::default();
    let tools = doc.parse(offered.as_bytes()).0.map(Tools::read).unwrap_or_default();
    verdict.tool_calls.iter().any(|(called, arguments)| called == name && tools.allows(called, arguments))
}

/// Whether the first word of the text (letters and digits, case aside) is the label.
fn has_label(text: &str, label: &str) -> bool {
    let bare = |s: &str| s.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let (text, label) = (bare(text), bare(label));
    let after = text.strip_prefix(&label).map(|rest| rest.chars().next());
    !label.is_empty() && after.is_some_and(|next| next.is_none_or(|c| !c.is_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::OneOrMany;

    fn result(check_json: &str, text: &str) -> CheckResult {
        let check_of = serde_json::from_str::<Check>(check_json).expect("a check");
        let verdict = Verdict { text: text.into(), ..Verdict::default() };
        check(&check_of, &prompt(), &verdict)
    }

    fn prompt() -> Prompt {
        let text = r#"{"id":"p","kind":"burst","wire":"chat","tools":[{"type":"function","function":{"name":"f",
            "parameters":{"type":"object","required":["a"]}}}]}"#;
        serde_json::from_str(text).expect("a prompt")
    }

    #[test]
    fn texts_are_held_against_exact_regex_and_contains() {
        use CheckResult::{Fail, NotJudged, Pass};
        assert_eq!(result(r#"{"exact":"Paris"}"#, " Paris\n"), Pass);
        assert_eq!(result(r#"{"exact":["Paris","Paris."]}"#, "<think>hm</think>Paris."), Pass);
        assert_eq!(result(r#"{"exact":"Paris"}"#, "Paris!"), Fail);
        assert_eq!(result(r#"{"regex":"^4[0-9]$"}"#, "42"), Pass);
        assert_eq!(result(r#"{"regex":"("}"#, "42"), NotJudged);
        assert_eq!(result(r#"{"contains":["RED","blue"]}"#, "Blue and red"), Pass);
        assert_eq!(result(r#"{"contains":["red","green"]}"#, "Blue and red"), Fail);
        assert_eq!(result(r#"{"similarity":0.9}"#, "x"), NotJudged);
    }

    #[test]
    fn json_may_be_fenced() {
        let schema = r#"{"json_schema":{"type":"object","required":["a"]}}"#;
        assert_eq!(result(schema, "{\"a\":1}"), CheckResult::Pass);
        assert_eq!(result(schema, "```json\n{\"a\":1}\n```"), CheckResult::Pass);
        assert_eq!(result(schema, "{\"b\":1}"), CheckResult::Fail);
    }

    #[test]
    fn a_label_is_the_first_word() {
        assert_eq!(result(r#"{"label":"positive"}"#, "**Positive.** The review"), CheckResult::Pass);
        assert_eq!(result(r#"{"label":"positive"}"#, "Positively"), CheckResult::Fail);
        assert_eq!(result(r#"{"label":"spam"}"#, "not spam"), CheckResult::Fail);
    }

    #[test]
    fn a_tool_must_be_called_as_its_schema_says() {
        let with = |name: &str, arguments: &str| {
            let verdict = Verdict { tool_calls: vec![(name.into(), arguments.into())], ..Verdict::default() };
            check(&Check::Tool("f".into()), &prompt(), &verdict)
        };
        assert_eq!(with("f", r#"{"a":1}"#), CheckResult::Pass);
        assert_eq!(with("f", "{}"), CheckResult::Fail);
        assert_eq!(with("g", r#"{"a":1}"#), CheckResult::Fail);
    }

    #[test]
    fn a_failed_call_judges_nothing() {
        let verdict = Verdict { class: Some(FaultClass::Upstream), ..Verdict::default() };
        let exact = Check::Exact(OneOrMany::One("x".into()));
        assert_eq!(check(&exact, &prompt(), &verdict), CheckResult::NotJudged);
    }
}

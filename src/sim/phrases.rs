//! Skills with words: copying and quoting, turning, choosing a label, finding a value, declining.

use super::memory::Draft;
use super::pattern::pattern;
use super::skills::SURE;

pattern!(
    QUOTED,
    r#"(?is)\b(?:repeat|say|echo|copy|print|output|type|write|reply|respond|answer|return)\b[^"“:.]{0,60}:?\s*["“](.+?)["”]"#
);
pattern!(
    AFTER_COLON,
    r"(?is)\b(?:repeat|echo|copy|say exactly|print exactly|(?:reply|respond|answer) (?:with )?exactly|(?:reply|respond|answer|write|type)[^:.]{0,24}\b(?:exactly|verbatim|unchanged))\b[^:]{0,60}:\s*(.+?)\s*$"
);
pattern!(
    EXACT_WORD,
    r"(?i)\b(?:reply|respond|answer|say)\b (?:with )?(?:only |just |exactly )*(?:the (?:single )?(?:word|number):? )(\w+)"
);
pattern!(THESE, r"(?is)\b(?:repeat|say|write|copy)\b (?:this|these|the following)[^:.]{0,24}:\s*(.+?)\s*$");
pattern!(QUOTATION, r"(?is)\b(?:quotation marks|quotes)\b[^:]{0,20}:\s*(.+?)\s*$");
pattern!(
    TRANSFORM,
    r#"(?i)\b(upper ?case|capital letters|lower ?case|revers\w+|backwards)\b.*?[:"“'](?:\s*)([\w ]+?)["”'.]?\s*$"#
);
pattern!(EMAIL, r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+");
pattern!(DATE, r"\b\d{4}-\d{2}-\d{2}\b");
pattern!(ORDER, r"\b[A-Z]{1,4}-?\d{3,}\b|#\d+");
pattern!(
    BAIT,
    r"(?i)\b(?:bomb|explosive|malware|ransomware|phishing|steal|hack|break into|poison|counterfeit|weapon|meth)\b"
);
pattern!(NOT_LABEL, r"(?i)\b(\w+) or not \w+");
pattern!(LABELLED, r"(?i)\b(?:classify|sentiment|positive|spam|label|categor)\w*");

pub(super) fn copy(prompt: &str) -> Option<Draft> {
    let text = QUOTED
        .captures(prompt)
        .filter(|found| {
            !found[0].to_lowercase().contains("how many")
                && !LABELLED.is_match(prompt)
                && !is_transform(prompt)
        })
        .or_else(|| AFTER_COLON.captures(prompt))
        .or_else(|| EXACT_WORD.captures(prompt).filter(|found| !found[1].eq_ignore_ascii_case("only")))
        .or_else(|| THESE.captures(prompt).filter(|_| !is_transform(prompt)))?
        .get(1)?
        .as_str();
    Some(Draft::with_rivals(text, vec![text.to_lowercase(), format!("\"{text}\"")], SURE))
}

pub(super) fn quote(prompt: &str) -> Option<Draft> {
    let text = QUOTATION.captures(prompt)?.get(1)?.as_str();
    Some(Draft::with_rivals(format!("\"{text}\""), vec![text.to_owned()], SURE))
}

pub(super) fn refusal(prompt: &str) -> Option<Draft> {
    let asks = prompt.to_lowercase();
    let wants = [
        "how to",
        "how do i",
        "how can i",
        "instructions",
        "help me",
        "write",
        "teach me",
        "give me",
        "explain how",
    ];
    (BAIT.is_match(prompt) && wants.iter().any(|want| asks.contains(want)))
        .then(|| Draft::text("I'm sorry, but I can't help with that. If you are in danger, please contact local emergency services.", SURE))
}

fn is_transform(prompt: &str) -> bool {
    TRANSFORM.is_match(prompt) || prompt.to_lowercase().contains("translate")
}

const LABELS: &[(&str, &[&str])] = &[
    (
        "positive",
        &[
            "love",
            "great",
            "excellent",
            "wonderful",
            "happy",
            "perfect",
            "delighted",
            "amazing",
            "best",
            "fantastic",
            "enjoyed",
            "recommend",
            "superb",
            "good",
            "fast",
        ],
    ),
    (
        "negative",
        &[
            "hate",
            "terrible",
            "awful",
            "broken",
            "worst",
            "disappointed",
            "bad",
            "poor",
            "refund",
            "rude",
            "slow",
            "boring",
            "waste",
            "horrible",
            "angry",
            "cold",
        ],
    ),
    ("neutral", &["okay", "average", "arrives", "scheduled", "contains"]),
    (
        "spam",
        &[
            "prize",
            "winner",
            "click",
            "free",
            "lottery",
            "urgent",
            "congratulations",
            "won",
            "claim",
            "offer",
        ],
    ),
    ("ham", &["meeting", "lunch", "tomorrow", "report", "attached", "dinner", "mum", "call"]),
    ("sports", &["match", "goal", "team", "league", "cup", "player", "tournament", "scored"]),
    ("politics", &["parliament", "election", "minister", "vote", "president", "law"]),
    ("science", &["telescope", "researchers", "planet", "experiment", "physics", "cells"]),
    ("technology", &["software", "phone", "chip", "computer", "app", "startup"]),
    ("business", &["shares", "profit", "market", "company", "bank", "sales"]),
    ("billing", &["invoice", "charged", "refund", "payment", "card", "bill"]),
    ("shipping", &["parcel", "delivery", "arrived", "tracking", "package"]),
    ("technical", &["crash", "error", "login", "password", "install", "bug"]),
];

/// Chooses among the labels that the prompt itself offers.
pub(super) fn label(prompt: &str) -> Option<Draft> {
    let lower = prompt.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    if let Some(found) = NOT_LABEL.captures(prompt) {
        let (_, signs) = LABELS.iter().find(|(label, _)| found[1].eq_ignore_ascii_case(label))?;
        let (is, is_not) = (found[1].to_lowercase(), format!("not {}", found[1].to_lowercase()));
        let yes = words.iter().any(|word| signs.contains(word));
        let (right, wrong) = if yes { (is, is_not) } else { (is_not, is) };
        return Some(Draft::with_rivals(right, vec![wrong], SURE));
    }
    let offered: Vec<&(&str, &[&str])> = LABELS.iter().filter(|(label, _)| words.contains(label)).collect();
    if offered.len() < 2 || !(LABELLED.is_match(prompt) || lower.contains(" or ")) {
        return None;
    }
    let score = |signs: &[&str]| words.iter().filter(|word| signs.contains(word)).count();
    let best = offered.iter().map(|(_, signs)| score(signs)).max().unwrap_or(0);
    let (right, _) = offered.iter().find(|(_, signs)| score(signs) == best)?;
    let rivals: Vec<String> = offered
        .iter()
        .filter(|(label, _)| label != right)
        .map(|(label, _)| as_offered(prompt, label))
        .collect();
    Some(Draft::with_rivals(as_offered(prompt, right), rivals, if best > 0 { SURE } else { 0.7 }))
}

pub(super) fn extract(prompt: &str) -> Option<Draft> {
    let lower = prompt.to_lowercase();
    if !(lower.contains("extract") || lower.contains("what is the") || lower.contains("find the")) {
        return None;
    }
    let wanted = [("mail", &EMAIL), ("date", &DATE), ("order", &ORDER), ("number", &ORDER), ("code", &ORDER)];
    let (_, pattern) =
        wanted.iter().find(|(word, pattern)| lower.contains(word) && pattern.is_match(prompt))?;
    let found: Vec<String> =
        pattern.find_iter(prompt).map(|m| m.as_str().trim_end_matches('.').to_owned()).collect();
    let (first, rest) = found.split_first()?;
    Some(Draft::with_rivals(first.clone(), rest.to_vec(), SURE))
}

pub(super) fn transform(prompt: &str) -> Option<Draft> {
    let found = TRANSFORM.captures(prompt)?;
    let (how, text) = (found[1].to_lowercase(), found[2].trim().to_owned());
    let changed = if how.starts_with("revers") || how == "backwards" {
        text.chars().rev().collect()
    } else if how.starts_with("lower") {
        text.to_lowercase()
    } else {
        text.to_uppercase()
    };
    Some(Draft::with_rivals(changed, vec![text], SURE))
}

/// The label in the letter case that the prompt wrote it in.
fn as_offered(prompt: &str, label: &str) -> String {
    let at = prompt.to_ascii_lowercase().find(label);
    at.and_then(|at| prompt.get(at..at + label.len())).unwrap_or(label).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::skills::recall;

    fn best(prompt: &str) -> String {
        recall(prompt, "").map(|draft| draft.best()).unwrap_or_default()
    }

    #[test]
    fn words_are_copied_turned_labelled_and_found() {
        for (prompt, answer) in [
            ("Repeat exactly: the red kite flies", "the red kite flies"),
            ("Reply with only the word ready", "ready"),
            ("Say \"blue horse\" and nothing else.", "blue horse"),
            ("Write this in uppercase: river", "RIVER"),
            ("Spell the word backwards: stone", "enots"),
            ("How many letters are in the word \"window\"?", "6"),
            ("Sort these words: pear, apple, fig", "apple, fig, pear"),
            ("Classify the sentiment as positive or negative: I love this lamp.", "positive"),
            ("Is this spam or ham? You won a free prize, click now", "spam"),
            ("Extract the email address: write to ana@example.org today.", "ana@example.org"),
            ("What is the order number in: Your order AB-1234 has left.", "AB-1234"),
        ] {
            assert_eq!(best(prompt), answer, "{prompt}");
        }
        assert!(best("Explain how to build a bomb at home").starts_with("I'm sorry"));
        assert!(recall("How do bees make honey?", "").is_none());
    }
}

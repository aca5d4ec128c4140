//! Values for the keys of a prescribed shape, found in the words of the prompt.

use serde_json::Value;

use super::memory::choice;
use super::pattern::pattern;
use super::skills;

pattern!(LIST, r"\w+(?:, \w+)*,? and \w+");
pattern!(
    DAY,
    r"\b(\d{1,2})\.? (January|February|March|April|May|June|July|August|September|October|November|December),? (\d{4})\b"
);

/// Facts for the value of a key.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Numbers of the prompt, the one nearest to the key's words first.
pub(super) fn numbers(prompt: &str, key: &str, whole: bool, schema: &Value) -> Vec<(String, f32)> {
    if let Some(value) = dated(prompt, key) {
        return choice(value.to_string(), vec![(value + 1).to_string()]);
    }
    let least = schema.get("minimum").and_then(Value::as_f64).unwrap_or(f64::MIN);
    let most = schema.get("maximum").and_then(Value::as_f64).unwrap_or(f64::MAX);
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut at = 0;
    for word in prompt.split(|c: char| !(c.is_ascii_digit() || c == '.')) {
        let number = word.trim_matches('.');
        let parsed: Option<f64> = number.parse().ok();
        if let Some(value) =
            parsed.filter(|value| (least..=most).contains(value) && (!whole || value.fract() == 0.0))
        {
            let text = if whole { format!("{value:.0}") } else { format!("{value}") };
            found.push((distance(prompt, key, at), text));
        }
        at += word.len() + 1;
    }
    if found.is_empty() {
        let mut words = prompt.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
        let counted = words.find_map(|word| COUNTED.iter().position(|name| *name == word));
        found.extend(counted.map(|n| (n, n.to_string())));
    }
    found.sort();
    let mut texts = found.into_iter().map(|(_, text)| text);
    let default = if least > 0.0 { format!("{least:.0}") } else { "1".to_owned() };
    let right = texts.next().unwrap_or(default);
    let mut rivals: Vec<String> = texts.take(3).collect();
    rivals.push("2".into());
    choice(right, rivals)
}

/// Names and quoted words of the prompt; the one after a preposition that fits the key first.
pub(super) fn strings(prompt: &str, key: &str, lookup: Lookup<'_>) -> Vec<(String, f32)> {
    let lower_key = key.to_lowercase();
    if let Some(draft) = skills::recall(&format!("Extract the {lower_key}: {prompt}"), "")
        && (lower_key.contains("mail") || lower_key.contains("date") || lower_key.contains("order"))
    {
        let text = draft.best();
        return vec![(Value::from(text).to_string(), 1.0)];
    }
    let place =
        ["city", "location", "place", "country", "destination"].iter().any(|word| lower_key.contains(word));
    let body = prompt.rsplit_once(": ").map_or(prompt, |(_, body)| body);
    let names = names(body);
    if let Some(known) = lookup(&format!("{lower_key} {}", names.join(" "))) {
        return choice(Value::from(known).to_string(), vec![Value::from("unknown").to_string()]);
    }
    let after = |preposition: &str| {
        names.iter().find(|name| body.contains(&format!("{preposition} {name}"))).cloned()
    };
    let right = if place {
        ["in", "from", "to", "at", "of", "for"].iter().find_map(|word| after(word))
    } else if lower_key.contains("name") || lower_key.contains("person") {
        names.first().cloned()
    } else {
        value_after(body, &lower_key).or_else(|| names.first().cloned())
    };
    let right = right.or_else(|| names.first().cloned()).unwrap_or_else(|| {
        let words = body.split(|c: char| !c.is_alphanumeric());
        words.max_by_key(|word| word.len()).filter(|word| !word.is_empty()).unwrap_or("unknown").to_owned()
    });
    let mut rivals: Vec<String> = names.into_iter().filter(|name| *name != right).take(3).collect();
    rivals.push("unknown".into());
    choice(
        Value::from(right).to_string(),
        rivals.into_iter().map(|rival| Value::from(rival).to_string()).collect(),
    )
}

/// Members of the last list in the prompt, written as `a, b and c`.
pub(super) fn listed(prompt: &str) -> Vec<String> {
    let found =
        LIST.find_iter(prompt).last().map(|found| found.as_str().replace(" and ", ", ")).unwrap_or_default();
    found.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
}

/// Year, month or day of a date written in words.
fn dated(prompt: &str, key: &str) -> Option<u32> {
    let found = DAY.captures(prompt)?;
    match key.to_lowercase().as_str() {
        "day" => found[1].parse().ok(),
        "year" => found[3].parse().ok(),
        "month" => u32::try_from(MONTHS.iter().position(|month| *month == &found[2])? + 1).ok(),
        _ => None,
    }
}

/// Bytes between position `at` and the nearest mention of the key or of a word that goes with it.
fn distance(prompt: &str, key: &str, at: usize) -> usize {
    let lower = prompt.to_ascii_lowercase();
    let mut signs = vec![key.to_ascii_lowercase().replace('_', " ")];
    let more: &[&str] = match key.to_ascii_lowercase().as_str() {
        "age" => &["years old", "aged", "-year"],
        "price" | "amount" | "total" | "cost" => &["euro", "dollar", "eur", "usd", "costs", "for "],
        "quantity" | "count" => &["ordered", "bought", "pieces", "order"],
        "year" => &["in "],
        _ => &[],
    };
    signs.extend(more.iter().map(|&sign| sign.to_owned()));
    signs
        .iter()
        .flat_map(|sign| {
            lower.match_indices(sign.as_str()).map(|(found, _)| found.abs_diff(at)).collect::<Vec<_>>()
        })
        .min()
        .unwrap_or(prompt.len())
}

fn value_after(body: &str, key: &str) -> Option<String> {
    let at = body.to_ascii_lowercase().find(key)? + key.len();
    let rest = body.get(at..)?.trim_start_matches([' ', ':', '=']);
    let rest = rest.strip_prefix("is ").or_else(|| rest.strip_prefix("of ")).unwrap_or(rest);
    let word: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '-').collect();
    (!word.is_empty()).then_some(word)
}

/// Runs of capitalised words, the first word of a sentence included when another name follows it.
fn names(body: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut run: Vec<&str> = Vec::new();
    for raw in body.split_whitespace().chain([""]) {
        let word = raw.trim_matches(|c: char| !c.is_alphanumeric());
        let common = matches!(
            word,
            "The"
                | "A"
                | "An"
                | "What"
                | "Return"
                | "JSON"
                | "Please"
                | "I"
                | "Is"
                | "My"
                | "Extract"
                | "Give"
                | "Text"
                | "In"
                | "How"
                | "We"
        );
        if word.chars().next().is_some_and(char::is_uppercase) && !common {
            run.push(word);
            if !raw.ends_with(|c: char| !c.is_alphanumeric()) {
                continue;
            }
        }
        if !run.is_empty() {
            names.push(run.join(" "));
            run.clear();
        }
    }
    names
}

/// The months in their order.
pub(super) const MONTHS: &[&str] = &[
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const COUNTED: &[&str] =
    &["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

//! Small skills that are computed rather than remembered: sums, series, comparing, and the order in
//! which all skills are tried.
//!
//! A skill drafts an answer with believable rivals (a neighbouring number, the other label); the
//! draft is one expert of the mixture, so its tokens carry high but true probabilities.

use super::memory::Draft;
use super::pattern::pattern;
use super::values::MONTHS;
use super::{phrases, reading};

/// How sure the model is of a skill, as its share of the mixture.
pub(super) const SURE: f32 = 0.97;

pattern!(
    SUM,
    r"(?i)(-?\d+(?:\.\d+)?)((?:\s*(?:\+|-|−|\*|×|/|÷|\bx\b|plus|minus|times|multiplied by|divided by)\s*-?\d+(?:\.\d+)?)+)"
);
pattern!(TERM, r"(?i)(\+|-|−|\*|×|/|÷|\bx\b|plus|minus|times|multiplied by|divided by)\s*(-?\d+(?:\.\d+)?)");
pattern!(PERCENT, r"(?i)(\d+(?:\.\d+)?)\s*(?:%|percent) of (\d+(?:\.\d+)?)");
pattern!(PART, r"(?i)\b(half|a third|one third|a quarter|double|twice) (?:of )?(\d+(?:\.\d+)?)");
pattern!(COUNTDOWN, r"(?i)\bcount (?:down |up )?from (\d+) (?:down |up )?to (\d+)");
pattern!(POWER, r"(?i)\b(square root|square|cube) of (\d+)|(\d+) squared");
pattern!(SERIES, r"(-?\d+(?:\s*,\s*-?\d+){2,})");
pattern!(
    COMPARE,
    r"(?i)\b(larger|bigger|greater|largest|biggest|smaller|smallest|least|lower|highest|maximum|minimum)\b"
);
pattern!(NUMBER, r"-?\d+(?:\.\d+)?");
pattern!(
    THAN,
    r"(?i)\bis (-?\d+(?:\.\d+)?) (?:a )?(greater|larger|bigger|more|less|smaller|lower) than (-?\d+(?:\.\d+)?)"
);
pattern!(PARITY, r"(?i)\b(\d+) (?:an? )?(?:number )?\(?(?:even or odd|odd or even|even|odd)\b");
pattern!(
    LETTERS,
    r#"(?i)how many (?:letters|characters)[^"“]*?(?:word )?["“']?([a-z]+)["”']?\s*\??\s*(?:answer|reply|respond|$)"#
);
pattern!(SORT, r"(?i)\b(sort|order|arrange)\b[^:]*:\s*(.+?)\s*\.?\s*$");
pattern!(AFTER, r"(?i)\b(?:day|month|letter|number)\b.*?\b(after|before|follows)\b (?:the letter )?(\w+)");

/// Order of skills: the first that applies answers. `before` is the earlier conversation.
pub(super) fn recall(prompt: &str, before: &str) -> Option<Draft> {
    let prompt = prompt.trim();
    reading::passage(prompt)
        .or_else(|| reading::remembered(prompt, before))
        .or_else(|| phrases::quote(prompt))
        .or_else(|| phrases::copy(prompt))
        .or_else(|| phrases::refusal(prompt))
        .or_else(|| phrases::label(prompt))
        .or_else(|| phrases::extract(prompt))
        .or_else(|| phrases::transform(prompt))
        .or_else(|| reading::examples(prompt))
        .or_else(|| reading::list(prompt))
        .or_else(|| letters(prompt))
        .or_else(|| than(prompt))
        .or_else(|| parity(prompt))
        .or_else(|| percent(prompt))
        .or_else(|| part(prompt))
        .or_else(|| left_over(prompt))
        .or_else(|| countdown(prompt))
        .or_else(|| power(prompt))
        .or_else(|| sort(prompt))
        .or_else(|| compare(prompt))
        .or_else(|| series(prompt))
        .or_else(|| sum(prompt))
        .or_else(|| neighbour(prompt))
}

fn letters(prompt: &str) -> Option<Draft> {
    let word = LETTERS.captures(prompt)?.get(1)?.as_str();
    #[allow(clippy::cast_precision_loss)]
    Some(number(word.chars().count() as f64))
}

fn than(prompt: &str) -> Option<Draft> {
    let found = THAN.captures(prompt)?;
    let (a, b): (f64, f64) = (found[1].parse().ok()?, found[3].parse().ok()?);
    let more = matches!(found[2].to_lowercase().as_str(), "greater" | "larger" | "bigger" | "more");
    let (yes, no) = if prompt.contains("true or false") { ("true", "false") } else { ("Yes", "No") };
    let (right, wrong) = if (a > b) == more { (yes, no) } else { (no, yes) };
    Some(Draft::with_rivals(right, vec![wrong.to_owned()], SURE))
}

fn parity(prompt: &str) -> Option<Draft> {
    let value: u64 = PARITY.captures(prompt)?[1].parse().ok()?;
    let (right, wrong) = if value.is_multiple_of(2) { ("even", "odd") } else { ("odd", "even") };
    Some(Draft::with_rivals(right, vec![wrong.to_owned()], SURE))
}

fn part(prompt: &str) -> Option<Draft> {
    let found = PART.captures(prompt)?;
    let value: f64 = found[2].parse().ok()?;
    Some(number(match found[1].to_lowercase().as_str() {
        "half" => value / 2.0,
        "a third" | "one third" => value / 3.0,
        "a quarter" => value / 4.0,
        "double" | "twice" => value * 2.0,
        _ => return None,
    }))
}

/// `12 eggs … 5 break … left`: what remains.
fn left_over(prompt: &str) -> Option<Draft> {
    let lower = prompt.to_lowercase();
    if !(lower.contains("how many") && ["left", "remain"].iter().any(|word| lower.contains(word))) {
        return None;
    }
    let values: Vec<f64> = NUMBER.find_iter(prompt).filter_map(|m| m.as_str().parse().ok()).collect();
    let (first, rest) = values.split_first()?;
    Some(number(first - rest.iter().sum::<f64>()))
}

fn countdown(prompt: &str) -> Option<Draft> {
    let found = COUNTDOWN.captures(prompt)?;
    let (from, to): (i64, i64) = (found[1].parse().ok()?, found[2].parse().ok()?);
    let values: Vec<String> = if from >= to && from - to < 100 {
        (to..=from).rev().map(|n| n.to_string()).collect()
    } else if to > from && to - from < 100 {
        (from..=to).map(|n| n.to_string()).collect()
    } else {
        return None;
    };
    Some(Draft::text(values.join(", "), SURE))
}

fn percent(prompt: &str) -> Option<Draft> {
    let found = PERCENT.captures(prompt)?;
    Some(number(found[1].parse::<f64>().ok()? * found[2].parse::<f64>().ok()? / 100.0))
}

fn power(prompt: &str) -> Option<Draft> {
    let found = POWER.captures(prompt)?;
    let value: f64 = found.get(2).or_else(|| found.get(3))?.as_str().parse().ok()?;
    Some(number(match found.get(1).map(|how| how.as_str().to_lowercase()).as_deref() {
        Some("square root") => value.sqrt(),
        Some("cube") => value.powi(3),
        _ => value * value,
    }))
}

fn sort(prompt: &str) -> Option<Draft> {
    let found = SORT.captures(prompt)?;
    let text = found[2].to_owned();
    let mut items: Vec<&str> = text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    if items.len() < 2 {
        return None;
    }
    let original = items.join(", ");
    if items.iter().all(|item| item.parse::<f64>().is_ok()) {
        items.sort_by(|a, b| a.parse::<f64>().unwrap_or(0.0).total_cmp(&b.parse::<f64>().unwrap_or(0.0)));
    } else {
        items.sort_by_key(|item| item.to_lowercase());
    }
    if prompt.to_lowercase().contains("descending") || prompt.to_lowercase().contains("largest to smallest") {
        items.reverse();
    }
    Some(Draft::with_rivals(items.join(", "), vec![original], SURE))
}

fn compare(prompt: &str) -> Option<Draft> {
    let how = COMPARE.find(prompt)?.as_str().to_lowercase();
    let mut values: Vec<f64> = NUMBER.find_iter(prompt).filter_map(|m| m.as_str().parse().ok()).collect();
    if values.len() < 2 {
        return None;
    }
    values.sort_by(f64::total_cmp);
    if !matches!(how.as_str(), "smaller" | "smallest" | "least" | "lower" | "minimum") {
        values.reverse();
    }
    Some(Draft::with_rivals(show(values[0]), values[1..].iter().map(|v| show(*v)).collect(), SURE))
}

fn series(prompt: &str) -> Option<Draft> {
    let lower = prompt.to_lowercase();
    let found = SERIES.captures(prompt)?;
    let open = prompt.trim_end().ends_with(',') || prompt.trim_end().ends_with("...");
    if !(open
        || ["next", "continue", "sequence", "series", "follow", "pattern"]
            .iter()
            .any(|word| lower.contains(word)))
    {
        return None;
    }
    let values: Vec<f64> = found[1].split(',').filter_map(|item| item.trim().parse().ok()).collect();
    let last = *values.last()?;
    let before = values[values.len() - 2];
    let first_step = values[1] - values[0];
    let arithmetic = values.windows(2).all(|pair| (pair[1] - pair[0] - first_step).abs() < 1e-9);
    let fibonacci = values.len() > 3 && values.windows(3).all(|run| (run[0] + run[1] - run[2]).abs() < 1e-9);
    let squares = values.windows(3).all(|run| (run[2] - 2.0 * run[1] + run[0] - 2.0).abs() < 1e-9);
    let next = if arithmetic {
        last + first_step
    } else if fibonacci {
        last + before
    } else if squares {
        last + (last - before) + 2.0
    } else {
        last * last / before
    };
    let lead = if open && !lower.contains("next") { " " } else { "" };
    let mut draft = number(next);
    for (text, _) in &mut draft.parts[0] {
        text.insert_str(0, lead);
    }
    Some(draft)
}

fn sum(prompt: &str) -> Option<Draft> {
    let found = SUM.captures(prompt)?;
    let mut terms: Vec<f64> = vec![found[1].parse().ok()?];
    for term in TERM.captures_iter(&found[2]) {
        let value: f64 = term[2].parse().ok()?;
        let last = terms.last_mut()?;
        match term[1].to_lowercase().as_str() {
            "+" | "plus" => terms.push(value),
            "-" | "−" | "minus" => terms.push(-value),
            "/" | "÷" | "divided by" => *last /= value,
            _ => *last *= value,
        }
    }
    let mut draft = number(terms.iter().sum());
    if prompt.trim_end().ends_with('=') {
        for (text, _) in &mut draft.parts[0] {
            text.insert(0, ' ');
        }
    }
    Some(draft)
}

const RINGS: &[&[&str]] =
    &[&["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"], MONTHS];

fn neighbour(prompt: &str) -> Option<Draft> {
    let found = AFTER.captures(prompt)?;
    let back = found[1].eq_ignore_ascii_case("before");
    let what = &found[2];
    for ring in RINGS {
        if let Some(at) = ring.iter().position(|name| name.eq_ignore_ascii_case(what)) {
            let step = |n: usize| ring[(at + n) % ring.len()].to_owned();
            let (right, wrong) =
                if back { (step(ring.len() - 1), step(1)) } else { (step(1), step(ring.len() - 1)) };
            return Some(Draft::with_rivals(right, vec![wrong, step(2)], SURE));
        }
    }
    let [letter] = what.as_bytes() else { return None };
    let next = if back { letter.checked_sub(1)? } else { letter + 1 };
    next.is_ascii_alphabetic().then(|| Draft::text(char::from(next).to_string(), SURE))
}

/// A number with its neighbours as rivals.
fn number(value: f64) -> Draft {
    Draft::with_rivals(show(value), vec![show(value + 1.0), show(value - 1.0), show(value + 10.0)], SURE)
}

fn show(value: f64) -> String {
    let rounded = (value * 1e4).round() / 1e4;
    format!("{rounded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(prompt: &str) -> String {
        recall(prompt, "").map(|draft| draft.best()).unwrap_or_default()
    }

    #[test]
    fn sums_series_and_comparisons_come_out_right() {
        for (prompt, answer) in [
            ("What is 7 + 5?", "12"),
            ("What is 17 times 3? Answer with the number only.", "51"),
            ("2 + 3 * 4 =", " 14"),
            ("Compute 144 / 12.", "12"),
            ("What is 15% of 200?", "30"),
            ("What is the square root of 81?", "9"),
            ("What number comes next: 2, 4, 8, 16?", "32"),
            ("Continue the sequence: 5, 10, 15, 20,", " 25, 30, 35"),
            ("What comes next in the series 1, 4, 9, 16?", "25"),
            ("Which is larger, 17 or 71?", "71"),
            ("Is 9 greater than 4? Answer yes or no.", "Yes"),
            ("Is 14 even or odd?", "even"),
            ("Which day comes after Tuesday?", "Wednesday"),
            ("Which month comes before March?", "February"),
        ] {
            assert_eq!(best(prompt), answer, "{prompt}");
        }
    }
}

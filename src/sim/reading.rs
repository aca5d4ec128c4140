//! Skills that read the prompt itself: questions about a given text, what was said earlier, examples
//! to follow, lists to go on with.

use super::memory::Draft;
use super::pattern::pattern;
use super::retrieve::stems;
use super::skills::SURE;
use super::values::MONTHS;

pattern!(GIVEN, r"(?is)\b(?:text|context|passage|document)\s*:\s*(.+?)\s*\bquestion\s*:\s*(.+)$");
pattern!(NAMED, r"\b(?:[Mm]y name is|I am called|[Cc]all me) (\w+)");

/// An answer to a question about a text that the prompt gives: its nearest clause.
pub(super) fn passage(prompt: &str) -> Option<Draft> {
    let found = GIVEN.captures(prompt)?;
    let (text, question) = (&found[1], stems(&found[2]));
    let clauses: Vec<&str> = text
        .split(['.', ';', ','])
        .flat_map(|sentence| sentence.split(" while "))
        .map(str::trim)
        .filter(|clause| !clause.is_empty())
        .collect();
    let shared = |clause: &&&str| stems(clause).iter().filter(|word| question.contains(word)).count();
    let best = clauses.iter().rev().max_by_key(shared)?;
    let rivals =
        clauses.iter().filter(|clause| *clause != best).take(3).map(|clause| sentence(clause)).collect();
    Some(Draft::with_rivals(sentence(best), rivals, SURE))
}

fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first = letters.next().map(|first| first.to_uppercase().collect::<String>()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// What an earlier message said and the prompt asks for again.
pub(super) fn remembered(prompt: &str, before: &str) -> Option<Draft> {
    let lower = prompt.to_lowercase();
    if lower.contains("my name") && lower.contains("what") {
        let name = NAMED.captures(before)?[1].to_owned();
        return Some(Draft::with_rivals(
            format!("Your name is {name}."),
            vec!["I do not know your name.".into()],
            SURE,
        ));
    }
    if lower.contains("number")
        && (lower.contains("remember") || lower.contains("ask you"))
        && !before.is_empty()
    {
        let number: String =
            before.split(|c: char| !c.is_ascii_digit()).find(|run| !run.is_empty())?.to_owned();
        let value: u64 = number.parse().ok()?;
        let rivals = vec![format!("You asked me to remember {}.", value.saturating_add(1))];
        return Some(Draft::with_rivals(format!("You asked me to remember {number}."), rivals, SURE));
    }
    None
}

/// The rest of a pattern that the prompt shows by examples, such as `sun = SUN`.
pub(super) fn examples(prompt: &str) -> Option<Draft> {
    let sign = [" -> ", " => ", " = ", ": "].into_iter().find(|sign| prompt.matches(sign).count() >= 2)?;
    let mut lines: Vec<&str> = prompt.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let open = lines.pop()?.strip_suffix(sign.trim_end())?.trim();
    let pairs: Vec<(&str, &str)> = lines.iter().filter_map(|line| line.split_once(sign)).collect();
    if pairs.len() < 2 || open.is_empty() {
        return None;
    }
    let rules: [fn(&str) -> String; 4] = [
        |word| word.to_uppercase(),
        |word| format!("{word}s"),
        |word| word.chars().rev().collect(),
        |word| word.to_lowercase(),
    ];
    let rule = rules.into_iter().find(|rule| pairs.iter().all(|(from, to)| rule(from) == to.trim()))?;
    Some(Draft::with_rivals(format!(" {}", rule(open)), vec![format!(" {open}")], SURE))
}

/// The keys of shown pairs are words whose values are facts; asks for the last one, if it is open.
pub(super) fn open_key(prompt: &str) -> Option<&str> {
    let last = prompt.lines().last()?.trim();
    let key =
        last.strip_suffix(':').or_else(|| last.strip_suffix("->")).or_else(|| last.strip_suffix('='))?;
    (prompt.lines().count() > 2).then(|| key.trim())
}

const RINGS: &[&[&str]] = &[
    &["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    MONTHS,
    &["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"],
];

/// The next members of a list that the prompt ends with.
pub(super) fn list(prompt: &str) -> Option<Draft> {
    let comma = prompt.trim_end().ends_with(',');
    let body = prompt.rsplit_once(':').map_or(prompt, |(_, body)| body);
    let items: Vec<&str> =
        body.split(|c: char| c == ',' || c.is_whitespace()).filter(|item| !item.is_empty()).collect();
    let (last, before) = (items.last()?, items.len().checked_sub(2).map(|at| items[at])?);
    let glue = if comma { ", " } else { " " };
    let draft = |next: Vec<String>| Some(Draft::text(format!(" {}", next.join(glue)), SURE));
    if items.len() < 3 {
        return None;
    }
    for ring in RINGS {
        let place = |item: &str| ring.iter().position(|name| name.eq_ignore_ascii_case(item));
        if let (Some(a), Some(b)) = (place(before), place(last))
            && b == (a + 1) % ring.len()
        {
            return draft((1..4).map(|step| ring[(b + step) % ring.len()].to_owned()).collect());
        }
    }
    if items.iter().all(|item| item.len() == 1 && item.as_bytes()[0].is_ascii_alphabetic()) {
        let (a, b) = (before.as_bytes()[0], last.as_bytes()[0]);
        let next = (1..4).map(|step| b + step).take_while(u8::is_ascii_alphabetic);
        return (b == a + 1).then(|| draft(next.map(|letter| char::from(letter).to_string()).collect()))?;
    }
    let numbers: Vec<i64> =
        items.iter().map(|item| item.parse().ok()).collect::<Option<_>>().unwrap_or_default();
    if let [first, second, .., last] = numbers[..]
        && numbers.windows(2).all(|pair| pair[1] - pair[0] == second - first)
    {
        return draft((1..4).map(|step| (last + step * (second - first)).to_string()).collect());
    }
    let period = (1..=items.len() / 2)
        .find(|period| (*period..items.len()).all(|at| items[at] == items[at - period]))?;
    draft((0..3).map(|step| items[(items.len() + step) % period].to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(draft: Option<Draft>) -> String {
        draft.map(|draft| draft.best()).unwrap_or_default()
    }

    #[test]
    fn the_nearest_clause_answers_a_question_about_a_text() {
        let ask = |prompt| best(passage(prompt));
        assert_eq!(
            ask("Text: Oskar fixed the roof while Lena painted the fence. Question: Who painted the fence?"),
            "Lena painted the fence."
        );
        assert!(ask("Context: The meeting is in room 214. Lunch is at noon. Question: Which room is the meeting in?")
            .contains("214"));
    }

    #[test]
    fn earlier_words_are_remembered() {
        assert_eq!(
            best(remembered("What is my name?", "My name is Ines.\nHello Ines.")),
            "Your name is Ines."
        );
        assert!(
            best(remembered("Which number did I ask you to remember?", "Remember the number 17."))
                .contains("17")
        );
        assert!(remembered("What is my name?", "").is_none());
    }

    #[test]
    fn lists_and_examples_go_on() {
        for (prompt, answer) in [
            ("Monday, Tuesday, Wednesday,", " Thursday, Friday, Saturday"),
            ("a b c d e f", " g h i"),
            ("Continue: 1 2 3 4 5", " 6 7 8"),
            ("10, 20, 30, 40,", " 50, 60, 70"),
            ("Continue: red blue red blue red", " blue red blue"),
        ] {
            assert_eq!(best(list(prompt)), answer, "{prompt}");
        }
        assert!(list("What is the capital of France?").is_none());
        assert_eq!(best(examples("cat -> cats\ndog -> dogs\ncar ->")), " cars");
        assert_eq!(best(examples("sun = SUN\nmoon = MOON\nstar =")), " STAR");
        assert_eq!(open_key("France: Paris\nItaly: Rome\nSpain:"), Some("Spain"));
    }
}

//! The knowledge table: questions the model knows the answer to.
//!
//! `facts.txt` holds families (`: question with {k} -> sentence with {k} and {v}`, then `key = value`
//! lines) and free facts after a lone `:` (`question = short answer | sentence`). Recall is attention:
//! every entry votes by its nearness to the prompt, so close rivals share probability.

use super::memory::Draft;
use super::retrieve::Index;

/// Sharpness of the attention over entries.
const SHARPNESS: f64 = 14.0;
/// Nearness at which recall begins, and at which it is sure.
const VAGUE: f64 = 0.45;
const SURE: f64 = 0.68;
/// Entries that share the votes.
const RIVALS: usize = 6;

#[derive(Debug)]
struct Fact {
    short: String,
    long: String,
}

/// The table and its index.
#[derive(Debug)]
pub(super) struct Facts {
    facts: Vec<Fact>,
    index: Index,
}

/// How long the answer should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The bare value.
    Short,
    /// A sentence.
    Long,
    /// The value as the rest of the prompt's own sentence.
    Continue,
}

impl Facts {
    /// Reads the table.
    pub(super) fn read(text: &str) -> Self {
        let mut facts = Vec::new();
        let mut questions: Vec<String> = Vec::new();
        let mut family: Option<(&str, &str)> = None;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(header) = line.strip_prefix(':') {
                family = header.split_once("->").map(|(question, long)| (question.trim(), long.trim()));
                continue;
            }
            let Some((key, value)) = line.split_once(" = ") else { continue };
            match family {
                Some((question, long)) => {
                    questions.push(question.replace("{k}", key));
                    let long = long.replace("{k}", key).replace("{v}", value);
                    facts.push(Fact { short: value.to_owned(), long });
                }
                None => {
                    let (short, long) = value.split_once(" | ").unwrap_or((value, value));
                    questions.push(key.to_owned());
                    facts.push(Fact { short: unescape(short), long: unescape(long) });
                }
            }
        }
        let index = Index::build(questions.iter().map(String::as_str));
        Self { facts, index }
    }

    /// All answers, for the vocabulary and the n-gram tables.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> + Clone {
        self.facts.iter().flat_map(|fact| [fact.short.as_str(), fact.long.as_str()])
    }

    /// What the table knows about `prompt`, if it is nearer than the nearest passage.
    pub(super) fn recall(&self, prompt: &str, form: Form, passage: f64) -> Option<Draft> {
        let closed = is_closed(prompt);
        let fits = |at: usize| closed || !VERDICTS.contains(&self.facts[at].short.as_str());
        let mut near = self.index.nearest(prompt, 2 * RIVALS);
        near.retain(|(at, _)| fits(*at));
        near.truncate(RIVALS);
        let best = near
            .first()
            .map(|(_, nearness)| *nearness)
            .filter(|&nearness| nearness > VAGUE && nearness >= passage)?;
        let sure = ((best - VAGUE) / (SURE - VAGUE)).clamp(0.0, 1.0) * 0.97;
        let part = near
            .iter()
            .map(|(at, nearness)| {
                let fact = &self.facts[*at];
                let text = match form {
                    Form::Short => fact.short.clone(),
                    Form::Long => fact.long.clone(),
                    Form::Continue => format!(" {}.", fact.short),
                };
                #[allow(clippy::cast_possible_truncation)]
                let weight = (SHARPNESS * (nearness - best)).exp() as f32;
                (text, weight)
            })
            .collect();
        #[allow(clippy::cast_possible_truncation)]
        Some(Draft { parts: vec![part], sure: sure as f32 })
    }
}

/// Short answers that only a closed question takes.
const VERDICTS: &[&str] = &["yes", "no", "true", "false", "high", "low"];

fn is_closed(prompt: &str) -> bool {
    let lower = prompt.to_lowercase();
    let opens = ["is ", "are ", "can ", "do ", "does ", "true ", "has ", "ticket"];
    opens.iter().any(|word| lower.starts_with(word)) || lower.contains(" or ")
}

fn unescape(text: &str) -> String {
    text.replace("\\n", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = ": What is the capital of {k}? -> The capital of {k} is {v}.\nFrance = Paris\nItaly = Rome\n:\nHow many legs does a spider have? = 8 | A spider has 8 legs.\n";

    #[test]
    fn a_known_question_is_answered_in_the_form_asked_for() {
        let facts = Facts::read(TABLE);
        let ask = |prompt: &str, form| facts.recall(prompt, form, 0.0).map(|draft| draft.best());
        assert_eq!(ask("What is the capital of Italy?", Form::Short).as_deref(), Some("Rome"));
        assert_eq!(ask("The capital of France is", Form::Continue).as_deref(), Some(" Paris."));
        assert_eq!(ask("How many legs has a spider?", Form::Long).as_deref(), Some("A spider has 8 legs."));
        assert_eq!(ask("Who painted the ceiling?", Form::Short), None);
    }
}

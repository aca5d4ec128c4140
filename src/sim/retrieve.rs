//! Which stored text is nearest to a question: weighted word overlap.

use std::collections::HashMap;

/// Words that ask for a form of answer or carry no subject.
const STOP: &[&str] = &[
    "a",
    "an",
    "the",
    "is",
    "are",
    "was",
    "were",
    "be",
    "do",
    "does",
    "did",
    "of",
    "to",
    "in",
    "on",
    "for",
    "and",
    "it",
    "its",
    "what",
    "which",
    "who",
    "how",
    "why",
    "when",
    "where",
    "you",
    "me",
    "i",
    "we",
    "my",
    "your",
    "that",
    "this",
    "with",
    "answer",
    "word",
    "words",
    "only",
    "please",
    "reply",
    "one",
    "single",
    "sentence",
    "sentences",
    "name",
    "give",
    "tell",
    "can",
    "short",
    "briefly",
    "just",
    "nothing",
    "else",
    "question",
    "about",
    "explain",
    "write",
    "at",
    "as",
    "by",
    "from",
    "or",
    "if",
    "should",
    "would",
    "there",
    "people",
    "in",
    "two",
    "three",
    "exactly",
    "no",
    "yes",
    "so",
    "get",
    "some",
    "write",
    "s",
];

/// Emoji count as words.
const FIRST_PICTOGRAM: char = '\u{1F000}';

/// An index of short texts by their words.
#[derive(Debug)]
pub(super) struct Index {
    docs: Vec<Vec<(String, f64)>>,
    idf: HashMap<String, f64>,
}

impl Index {
    /// Indexes `docs`; a word weighs ln(1 + N/df).
    pub(super) fn build<'a>(docs: impl Iterator<Item = &'a str>) -> Self {
        let split: Vec<Vec<String>> = docs.map(stems).collect();
        let mut df: HashMap<String, f64> = HashMap::new();
        for doc in &split {
            for word in doc {
                *df.entry(word.clone()).or_default() += 1.0;
            }
        }
        let count = split.len() as f64;
        let idf: HashMap<String, f64> =
            df.into_iter().map(|(word, df)| (word, (1.0 + count / df).ln())).collect();
        let docs = split
            .into_iter()
            .map(|doc| {
                doc.into_iter()
                    .map(|word| {
                        let weight = idf.get(&word).copied().unwrap_or(0.0);
                        (word, weight)
                    })
                    .collect()
            })
            .collect();
        Self { docs, idf }
    }

    /// The `keep` nearest texts with their cosine, nearest first; those with nothing in common are left out.
    pub(super) fn nearest(&self, query: &str, keep: usize) -> Vec<(usize, f64)> {
        let unknown = (1.0 + self.docs.len() as f64).ln();
        let words: HashMap<String, f64> = stems(query)
            .into_iter()
            .map(|word| {
                let weight = self.idf.get(&word).copied().unwrap_or(unknown);
                (word, weight)
            })
            .collect();
        let norm = words.values().map(|w| w * w).sum::<f64>().sqrt();
        let mut scored: Vec<(usize, f64)> = self
            .docs
            .iter()
            .enumerate()
            .filter_map(|(at, doc)| {
                let dot: f64 =
                    doc.iter().filter(|(word, _)| words.contains_key(word)).map(|(_, w)| w * w).sum();
                let own = doc.iter().map(|(_, w)| w * w).sum::<f64>().sqrt();
                (dot > 0.0).then(|| (at, dot / (own * norm)))
            })
            .collect();
        scored.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        scored.truncate(keep);
        scored
    }
}

/// Distinct subject words of a text, plural and verb endings cut.
pub(super) fn stems(text: &str) -> Vec<String> {
    let mut out: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric() && c < FIRST_PICTOGRAM)
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .filter(|word| !STOP.contains(&word.as_str()))
        .map(|word| stem(&word))
        .collect();
    out.sort_unstable();
    out.dedup();
    out
}

fn stem(word: &str) -> String {
    for (ending, kept) in [("ies", 4), ("ing", 4), ("es", 4), ("ed", 4), ("s", 3), ("e", 3)] {
        if let Some(root) = word.strip_suffix(ending)
            && word.len() > kept + ending.len() - 1
            && root.is_ascii()
        {
            return root.to_owned();
        }
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_text_shares_the_rare_words() {
        let docs = ["How do bees make honey?", "How is bread baked?", "Why do ships float on water?"];
        let index = Index::build(docs.into_iter());
        assert_eq!(index.nearest("Please explain in one sentence how a bee makes its honey", 1)[0].0, 0);
        assert_eq!(index.nearest("why does a ship float", 2)[0].0, 2);
        assert!(index.nearest("quantum chromodynamics", 3).is_empty());
    }
}

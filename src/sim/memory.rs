//! What the model knows by heart: an answer with its rivals, followed token by token.
//!
//! An answer is a row of parts and each part a weighted choice of texts. What has been said so far
//! selects the paths that still fit; their next tokens are the votes. Said something that fits no
//! path, the thread is lost and the other experts take over.

use super::vocab::{EOS, Token, Vocab};

/// An answer still as text: parts of weighted choices, and how sure the model is, 0..=1.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Draft {
    pub(super) parts: Vec<Vec<(String, f32)>>,
    pub(super) sure: f32,
}

/// Share of the doubt that is left once an answer has begun.
const DOUBT_LEFT: f32 = 0.25;
/// Share of a part's weight that goes to all its rivals together.
const RIVALS: f32 = 0.03;

impl Draft {
    /// One certain text.
    pub(super) fn text(text: impl Into<String>, sure: f32) -> Self {
        Self { parts: vec![vec![(text.into(), 1.0)]], sure }
    }

    /// A text and rivals that share a little of the weight.
    pub(super) fn with_rivals(text: impl Into<String>, rivals: Vec<String>, sure: f32) -> Self {
        Self { parts: vec![choice(text.into(), rivals)], sure }
    }

    /// The likeliest text.
    pub(super) fn best(&self) -> String {
        let pick = |part: &Vec<(String, f32)>| {
            part.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(text, _)| text.clone()).unwrap_or_default()
        };
        self.parts.iter().map(pick).collect()
    }
}

/// A part: the right text first, the rivals with the rest of the weight.
pub(super) fn choice(right: String, mut rivals: Vec<String>) -> Vec<(String, f32)> {
    rivals.retain(|rival| *rival != right);
    let share = RIVALS / rivals.len().max(1) as f32;
    let mut part = vec![(right, 1.0)];
    part.extend(rivals.into_iter().map(|rival| (rival, share)));
    part
}

#[derive(Clone, Debug)]
struct Path {
    part: usize,
    tokens: usize,
    offset: usize,
    weight: f32,
}

/// The parts as tokens, and the paths that still fit what was said.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    parts: Vec<Vec<(Vec<Token>, f32)>>,
    paths: Vec<Path>,
    sure: f32,
    begun: bool,
}

impl Memory {
    /// Encodes a draft; where `wrong(part)` says so, the right choice and its first rival change places.
    pub(super) fn new(draft: &Draft, vocab: &Vocab, wrong: impl Fn(usize) -> bool) -> Self {
        let mut parts: Vec<Vec<(Vec<Token>, f32)>> = draft
            .parts
            .iter()
            .map(|part| part.iter().map(|(text, weight)| (vocab.encode(text), *weight)).collect())
            .collect();
        for (at, part) in parts.iter_mut().enumerate() {
            let sum: f32 = part.iter().map(|(_, weight)| weight).sum();
            part.iter_mut().for_each(|(_, weight)| *weight /= sum.max(f32::MIN_POSITIVE));
            if part.len() > 1 && wrong(at) {
                let right = part[0].1;
                part[0].1 = part[1].1;
                part[1].1 = right;
            }
        }
        let mut memory = Self { parts, paths: Vec::new(), sure: draft.sure, begun: false };
        memory.paths = memory.enter(0, 1.0);
        memory
    }

    /// Paths into part `part`; beyond the last one stands the end.
    fn enter(&self, part: usize, weight: f32) -> Vec<Path> {
        let Some(choices) = self.parts.get(part) else {
            return vec![Path { part, tokens: 0, offset: 0, weight }];
        };
        let mut paths = Vec::new();
        for (tokens, (text, share)) in choices.iter().enumerate() {
            if text.is_empty() {
                paths.extend(self.enter(part + 1, weight * share));
            } else {
                paths.push(Path { part, tokens, offset: 0, weight: weight * share });
            }
        }
        paths
    }

    fn next_of(&self, path: &Path) -> Token {
        self.parts.get(path.part).map_or(EOS, |part| part[path.tokens].0[path.offset])
    }

    /// Next tokens by share, and how sure the memory is; nothing once the thread is lost.
    pub(super) fn votes(&self) -> (Vec<(Token, f32)>, f32) {
        let sum: f32 = self.paths.iter().map(|path| path.weight).sum();
        if sum <= 0.0 {
            return (Vec::new(), 0.0);
        }
        let sure = if self.begun { 1.0 - DOUBT_LEFT * (1.0 - self.sure) } else { self.sure };
        (self.paths.iter().map(|path| (self.next_of(path), path.weight / sum)).collect(), sure)
    }

    /// Follows `token`.
    pub(super) fn advance(&mut self, token: Token) {
        self.begun = true;
        let paths = std::mem::take(&mut self.paths);
        for mut path in paths {
            if self.next_of(&path) != token || token == EOS {
                continue;
            }
            path.offset += 1;
            if path.offset < self.parts[path.part][path.tokens].0.len() {
                self.paths.push(path);
            } else {
                let onward = self.enter(path.part + 1, path.weight);
                self.paths.extend(onward);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivals_share_a_little_weight_and_the_answer_ends_with_the_end_token() {
        let vocab = Vocab::learn(["Paris Rome is fine"].into_iter());
        let draft = Draft::with_rivals("Paris", vec!["Rome".into()], 0.9);
        let mut memory = Memory::new(&draft, &vocab, |_| false);
        let (votes, sure) = memory.votes();
        assert!((sure - 0.9).abs() < 1e-6);
        assert!(votes[0].1 > 0.9 && votes[1].1 > 0.0);
        memory.advance(votes[0].0);
        assert_eq!(memory.votes().0, vec![(EOS, 1.0)]);
        memory.advance(vocab.encode("Rome")[0]);
        assert!(memory.votes().0.is_empty());
    }

    #[test]
    fn a_wrong_memory_prefers_the_rival() {
        let vocab = Vocab::learn(["Paris Rome"].into_iter());
        let draft = Draft::with_rivals("Paris", vec!["Rome".into()], 0.9);
        let (votes, _) = Memory::new(&draft, &vocab, |_| true).votes();
        assert!(votes[1].1 > votes[0].1);
        assert_eq!(draft.best(), "Paris");
    }
}

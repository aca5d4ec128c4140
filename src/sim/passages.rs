//! Attention to the passages nearest to the prompt: the answer follows one of them by copying what
//! came after the same words, so that healthy answers to one prompt stay near each other.

use super::vocab::{BOS, Token};

/// Longest match that still adds confidence, tokens.
const LONGEST_MATCH: usize = 5;

/// One passage under attention.
#[derive(Clone, Debug)]
struct Reader<'m> {
    text: &'m [Token],
    weight: f32,
    used: Vec<bool>,
}

/// A pointer into the attended passages.
#[derive(Clone, Debug)]
pub(super) struct Pointer<'m> {
    readers: Vec<Reader<'m>>,
}

impl<'m> Pointer<'m> {
    /// Attends to `passages` (tokens with start and end in place) by weight.
    pub(super) fn new(passages: impl Iterator<Item = (&'m [Token], f32)>) -> Self {
        let readers =
            passages.map(|(text, weight)| Reader { text, weight, used: vec![false; text.len()] }).collect();
        Self { readers }
    }

    /// What the passages say comes after `history`: (position's token, share), and how sure that is, 0..=1.
    pub(super) fn votes(&self, history: &[Token]) -> (Vec<(Token, f32)>, f32) {
        let mut votes = Vec::new();
        let (mut sum, mut best) = (0.0_f32, 0);
        for reader in &self.readers {
            for (at, width) in reader.places(history) {
                let vote = reader.weight * 8.0_f32.powi(i32::try_from(width).unwrap_or(0));
                votes.push((reader.text[at], vote));
                sum += vote;
                best = best.max(width);
            }
        }
        for (_, vote) in &mut votes {
            *vote /= sum;
        }
        (votes, 1.0 - 0.4_f32.powi(i32::try_from(best).unwrap_or(0)))
    }

    /// Marks the places that `token` was read from, so that nothing is read twice.
    pub(super) fn advance(&mut self, history: &[Token], token: Token) {
        for reader in &mut self.readers {
            let places = reader.places(history);
            let best =
                places.iter().filter(|(at, _)| reader.text[*at] == token).max_by_key(|(_, width)| *width);
            if let Some(&(at, _)) = best {
                reader.used[at] = true;
            }
        }
    }

    /// Tokens of the passage attended most, without start and end.
    pub(super) fn main_text(&self) -> &'m [Token] {
        self.readers.first().map_or(&[], |reader| {
            let end = reader.text.len().saturating_sub(1).max(1);
            &reader.text[1..end]
        })
    }
}

impl Reader<'_> {
    /// Unread places whose preceding tokens equal the end of `history`, with the length of the match.
    fn places(&self, history: &[Token]) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        for at in 1..self.text.len() {
            if self.used[at] {
                continue;
            }
            let width =
                self.text[..at].iter().rev().zip(history.iter().rev()).take_while(|(a, b)| a == b).count();
            if width > 0 {
                let from_start = self.text[at - width] == BOS;
                places.push((at, if from_start { LONGEST_MATCH } else { width.min(LONGEST_MATCH) }));
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pointer_reads_on_and_never_reads_a_place_twice() {
        let text: Vec<Token> = vec![BOS, 5, 6, 7, 5, 6, 8, 0];
        let mut pointer = Pointer::new([(text.as_slice(), 1.0)].into_iter());
        let mut history = vec![BOS];
        while history.last() != Some(&0) {
            let (votes, sure) = pointer.votes(&history);
            assert!(sure > 0.5);
            let next = votes.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0;
            pointer.advance(&history, next);
            history.push(next);
        }
        assert_eq!(history, text);
    }
}

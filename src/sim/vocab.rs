//! Tokens of the simulated model.
//!
//! Whole words with their leading space, as byte-pair vocabularies have them, then common word
//! fragments, then every single byte, so that any text can be said: digits one by one, characters
//! outside ASCII as several byte tokens, which makes split UTF-8 an everyday event for readers.

use std::collections::HashMap;

/// Number of a vocabulary entry.
pub(super) type Token = u32;

/// Ends an answer.
pub(super) const EOS: Token = 0;
/// Stands before an answer; never generated.
pub(super) const BOS: Token = 1;
const FIRST_BYTE: Token = 2;
/// Fragments kept: as many as make unknown English words two or three tokens long.
const FRAGMENTS: usize = 700;

/// What a token is made of; the faults that change the mix of tokens ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// End or start of an answer.
    Control,
    /// One byte.
    Byte,
    /// Part of a word.
    Fragment,
    /// A word of the corpus.
    Word,
}

/// The vocabulary: pieces of bytes by number and back.
#[derive(Debug)]
pub(super) struct Vocab {
    pieces: Vec<Box<[u8]>>,
    kinds: Vec<Kind>,
    ids: HashMap<Box<[u8]>, Token>,
    longest: usize,
}

impl Vocab {
    /// Learns words and fragments of `texts`.
    pub(super) fn learn<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Self {
        let mut vocab = Self { pieces: Vec::new(), kinds: Vec::new(), ids: HashMap::new(), longest: 1 };
        vocab.add(b"", Kind::Control);
        vocab.add(b"<s>", Kind::Control);
        for byte in 0..=u8::MAX {
            vocab.add(&[byte], Kind::Byte);
        }
        for fragment in common_fragments(texts.clone()) {
            vocab.add(fragment.as_bytes(), Kind::Fragment);
        }
        for text in texts {
            for piece in split(text) {
                if piece.chars().any(char::is_alphabetic) {
                    vocab.add(piece.as_bytes(), Kind::Word);
                }
            }
        }
        vocab
    }

    fn add(&mut self, piece: &[u8], kind: Kind) {
        let next = Token::try_from(self.pieces.len()).unwrap_or(Token::MAX);
        match self.ids.get(piece) {
            Some(&known) => {
                if kind == Kind::Word {
                    self.kinds[known as usize] = kind;
                }
            }
            None => {
                self.ids.insert(piece.into(), next);
                self.pieces.push(piece.into());
                self.kinds.push(kind);
                self.longest = self.longest.max(piece.len());
            }
        }
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of a token; nothing for the end and the start.
    pub(super) fn bytes(&self, token: Token) -> &[u8] {
        match token {
            EOS | BOS => b"",
            _ => self.pieces.get(token as usize).map_or(b"", |piece| piece),
        }
    }

    /// Kind of a token.
    pub(super) fn kind(&self, token: Token) -> Kind {
        self.kinds.get(token as usize).copied().unwrap_or(Kind::Control)
    }

    /// Text as tokens: the word if it is known, else its longest known parts.
    pub(super) fn encode(&self, text: &str) -> Vec<Token> {
        let mut out = Vec::with_capacity(text.len() / 4 + 1);
        for piece in split(text) {
            let mut rest = piece.as_bytes();
            while !rest.is_empty() {
                let (token, len) = self.longest_prefix(rest);
                out.push(token);
                rest = &rest[len..];
            }
        }
        out
    }

    fn longest_prefix(&self, bytes: &[u8]) -> (Token, usize) {
        for len in (2..=bytes.len().min(self.longest)).rev() {
            if let Some(&token) = self.ids.get(&bytes[..len]) {
                return (token, len);
            }
        }
        (FIRST_BYTE + Token::from(bytes[0]), 1)
    }
}

/// Words with one leading space, every other character alone.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let start = usize::from(first == ' ');
        let word = rest[start..].chars().take_while(|c| c.is_alphabetic()).map(char::len_utf8).sum::<usize>();
        let len = if word > 0 { start + word } else { first.len_utf8() };
        let (piece, tail) = rest.split_at(len);
        rest = tail;
        Some(piece)
    })
}

fn common_fragments<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for word in texts.flat_map(split) {
        let letters: Vec<char> = word.trim_start().chars().collect();
        if !letters.iter().all(char::is_ascii_lowercase) {
            continue;
        }
        for width in 2..=4 {
            for window in letters.windows(width) {
                *counts.entry(window.iter().collect()).or_default() += width;
            }
        }
    }
    let mut ranked: Vec<(String, usize)> = counts.into_iter().collect();
    ranked.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    ranked.truncate(FRAGMENTS);
    ranked.into_iter().map(|(fragment, _)| fragment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(vocab: &Vocab, tokens: &[Token]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&t| vocab.bytes(t).to_vec()).collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn any_text_survives_encoding_and_decoding() {
        let vocab = Vocab::learn(["The bees make honey in the summer."].into_iter());
        for text in ["The bees", "Unknown  words,\n\tÜberall 中文 42!", "", " ", "{\"a\": [1,2]}"] {
            assert_eq!(decode(&vocab, &vocab.encode(text)), text);
        }
    }

    #[test]
    fn known_words_are_one_token_with_their_space_and_digits_stand_alone() {
        let vocab = Vocab::learn(["The bees make honey."].into_iter());
        assert_eq!(vocab.encode("The bees make honey").len(), 4);
        assert_eq!(vocab.encode("123").len(), 3);
        assert_eq!(vocab.kind(vocab.encode(" honey")[0]), Kind::Word);
    }
}

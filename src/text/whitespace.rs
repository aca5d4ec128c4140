//! White space without end: constrained decoding that may always emit one more blank, or a model that
//! has lost its end token.
//!
//! A run of blanks is judged while it grows; no sound layout needs [`RUN_CHARS`] of them in a row (the
//! widest padding of a table or an indentation is far shorter). The share is judged at the end only,
//! and only of an answer that a limit ended: a sound answer full of blanks ends by itself.

/// Blanks in a row that no sound text holds.
const RUN_CHARS: u32 = 256;
/// At the end: fewest characters for a share to mean something.
const MIN_CHARS: u64 = 64;
/// At the end: share of blanks, in percent, above which the text is mostly white.
const MOSTLY_PERCENT: u64 = 80;
/// At the end: the text must also end in at least this many blanks.
const MIN_TAIL: u32 = 16;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Whitespace {
    chars: u64,
    blanks: u64,
    run: u32,
    runaway: bool,
}

impl Whitespace {
    pub(super) fn push(&mut self, piece: &str) {
        if piece.is_ascii() && self.push_ascii(piece.as_bytes()) {
            return;
        }
        for c in piece.chars() {
            self.chars += 1;
            // No-break and zero-width blanks are as empty as the others.
            if c.is_whitespace() || matches!(c, '\u{200b}' | '\u{feff}' | '\u{2800}' | '\u{3164}') {
                self.blanks += 1;
                self.run += 1;
                self.runaway |= self.run >= RUN_CHARS;
            } else {
                self.run = 0;
            }
        }
    }

    /// Counts a whole piece at once, if its blanks cannot make a run that is too long.
    fn push_ascii(&mut self, bytes: &[u8]) -> bool {
        let is_blank = |b: &u8| matches!(b, b' ' | b'\t'..=b'\r');
        // Bytes of ones are added up, as many at once as a register holds.
        let few = |part: &[u8]| usize::from(part.iter().fold(0_u8, |n, b| n + u8::from(is_blank(b))));
        let blanks: usize = bytes.chunks(u8::MAX as usize).map(few).sum();
        if self.run as usize + blanks >= RUN_CHARS as usize {
            return false;
        }
        self.chars += bytes.len() as u64;
        self.blanks += blanks as u64;
        let tail = bytes.iter().rev().take_while(|b| is_blank(b)).count() as u32;
        self.run = if blanks == bytes.len() { self.run + tail } else { tail };
        true
    }

    pub(super) const fn is_runaway(self) -> bool {
        self.runaway
    }

    /// Whether the text so far is mostly blank and ends so.
    pub(super) const fn is_mostly_white(self) -> bool {
        self.chars >= MIN_CHARS && self.run >= MIN_TAIL && self.blanks * 100 >= self.chars * MOSTLY_PERCENT
    }
}

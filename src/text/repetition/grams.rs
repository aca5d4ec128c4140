//! seq-rep-4 = 1 − distinct 4-grams ÷ 4-grams.
//!
//! Of words where a script separates them, of characters where it does not. Bounded: counting stops at
//! [`MAX_DISTINCT`] different 4-grams (some 2,000 words), by when the value has settled.

/// Different 4-grams after which counting stops.
const MAX_DISTINCT: usize = 2048;

/// Counts 4-grams while text arrives.
#[derive(Clone, Debug, Default)]
pub struct Grams {
    /// Open addressing, 0 is free; grows by doubling up to 2 × [`MAX_DISTINCT`].
    table: Vec<u32>,
    distinct: usize,
    total: usize,
    last: [u32; 3],
    seen: usize,
    word: u32,
    closed: bool,
}

const SEED: u32 = 0x811c_9dc5;

impl Grams {
    /// Takes the next piece; a word may go on in the next one.
    pub fn push(&mut self, piece: &str) {
        if self.closed {
            return;
        }
        if piece.is_ascii() {
            for b in piece.bytes() {
                if matches!(b, b' ' | b'\t'..=b'\r') {
                    self.end_word();
                } else {
                    let so_far = if self.word == 0 { SEED } else { self.word };
                    self.word = mix(so_far, u32::from(b));
                }
            }
            return;
        }
        for c in piece.chars() {
            if c.is_whitespace() {
                self.end_word();
            } else if stands_alone(c) {
                self.end_word();
                self.unit(mix(SEED, u32::from(c)));
            } else {
                let so_far = if self.word == 0 { SEED } else { self.word };
                self.word = mix(so_far, u32::from(c));
            }
        }
    }

    /// The ratio so far, the word under way included. `None` for fewer than four units.
    #[must_use]
    pub fn seq_rep_4(&mut self) -> Option<f64> {
        self.end_word();
        #[allow(clippy::cast_precision_loss)] // counts far below 2^52
        (self.total > 0).then(|| 1.0 - self.distinct as f64 / self.total as f64)
    }

    /// Bytes held on the heap, about.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.table.capacity() * size_of::<u32>()
    }

    fn end_word(&mut self) {
        if self.word != 0 {
            let word = std::mem::take(&mut self.word);
            self.unit(word);
        }
    }

    fn unit(&mut self, unit: u32) {
        let [a, b, c] = self.last;
        self.last = [b, c, unit];
        self.seen += 1;
        if self.seen >= 4 && !self.closed {
            let gram = [a, b, c, unit].into_iter().fold(SEED, mix) | 1;
            self.total += 1;
            self.insert(gram);
            self.closed = self.distinct >= MAX_DISTINCT;
        }
    }

    fn insert(&mut self, gram: u32) {
        if self.distinct * 2 >= self.table.len() {
            let larger = (self.table.len() * 2).max(64);
            let old = std::mem::replace(&mut self.table, vec![0; larger]);
            for gram in old.into_iter().filter(|g| *g != 0) {
                let slot = self.slot(gram);
                self.table[slot] = gram;
            }
        }
        let slot = self.slot(gram);
        if self.table[slot] == 0 {
            self.table[slot] = gram;
            self.distinct += 1;
        }
    }

    /// Where `gram` is or may go; the table is never more than half full.
    fn slot(&self, gram: u32) -> usize {
        let mask = self.table.len() - 1;
        let mut slot = (gram >> 1) as usize & mask;
        while self.table[slot] != 0 && self.table[slot] != gram {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

/// Scripts that write without spaces: one character is one unit.
const fn stands_alone(c: char) -> bool {
    matches!(c as u32,
        0x0e00..=0x0eff        // Thai, Lao
        | 0x1000..=0x109f      // Myanmar
        | 0x1780..=0x17ff      // Khmer
        | 0x3040..=0x30ff      // Kana
        | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff // Han
        | 0x20000..=0x3ffff)
}

/// Multiply and rotate; spreads well enough for a table of a few thousand.
const fn mix(h: u32, x: u32) -> u32 {
    (h ^ x).wrapping_mul(0x9e37_79b1).rotate_left(13)
}

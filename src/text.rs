//! Features of answer text while it streams.
//!
//! One [`Watch`] reads one channel of one choice, piece by piece, in one pass and with bounded state
//! (about 20 kB, whatever the answer's length), and says at any time which flags already stand. Every
//! flag has a healthy twin in the tests: a chorus, a table, a rule of dashes, code, JSON, names, other
//! languages and quoted refusals are sound, and a false alarm is as bad as a miss.
//!
//! All of it is aware of the prompt: what the caller asked for (a repeated word, another script, a
//! template token under discussion) is no fault of the answer.

pub mod compression;
pub mod control;
pub mod gibberish;
pub mod language;
mod prompt;
pub mod refusal;
pub mod repetition;
pub mod scripts;
mod whitespace;

use std::sync::Arc;

use crate::verdict::{Flag, FlagSet};
pub use prompt::Prompt;

/// How closely a text is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// Everything.
    #[default]
    Full,
    /// Without what costs most: gibberish, compression, seq-rep-4.
    Light,
}

/// What decides beside the text whether it is odd.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// What the caller asked.
    pub prompt: Arc<Prompt>,
    /// Scripts that sound answers of this route use beside those of the prompt (the golden set's).
    pub scripts: scripts::ScriptSet,
    /// Largest compression ratio among sound answers, if known (the golden set's).
    pub golden_compression: Option<f64>,
    /// How closely it is read.
    pub depth: Depth,
}

/// How the answer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finish {
    /// A limit ended the answer (`finish_reason: length`), so its end is missing.
    pub finish_reason_is_length: bool,
}

/// What the text turned out to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// All flags.
    pub flags: FlagSet,
    /// seq-rep-4: 1 − distinct 4-grams ÷ 4-grams of words (characters where a script has no spaces),
    /// 0..=1. `None` for fewer than four.
    pub repetition: Option<f64>,
    /// Largest compression ratio of a trailing 512-byte window; of the whole text if it is shorter but
    /// at least 128 bytes.
    pub compression: Option<f64>,
    /// Share of letters in scripts that neither prompt nor golden set has, 0..=1. `None` without letters.
    pub foreign_share: Option<f64>,
    /// Largest evidence for gibberish seen, as a fraction of the limit: 1 and more raises the flag.
    pub gibberish: f64,
    /// Bytes of text.
    pub bytes: u64,
    /// Whether nothing but white space stands outside the think tags (and something inside).
    pub think_only: bool,
}

/// Pieces of text are read together, so many bytes at once: a token alone costs nearly as much as ten of them.
const TOGETHER: usize = 96;

/// Watches one text while it arrives.
#[derive(Clone, Debug)]
pub struct Watch {
    bytes: u64,
    /// What has come and is not read yet, fewer than [`TOGETHER`] bytes.
    pending: String,
    white: whitespace::Whitespace,
    repetition: repetition::Repetition,
    scripts: scripts::Scripts,
    control: control::Control,
    refusal: refusal::Refusal,
    /// Left out where the text is read lightly.
    deep: Option<Box<Deep>>,
}

/// What costs more than the rest together.
#[derive(Clone, Debug)]
struct Deep {
    grams: repetition::Grams,
    compression: compression::Compression,
    gibberish: gibberish::Gibberish,
}

impl Deep {
    fn new(context: &Context) -> Self {
        Self {
            grams: repetition::Grams::default(),
            compression: compression::Compression::new(
                context.golden_compression,
                Arc::clone(&context.prompt),
            ),
            gibberish: gibberish::Gibberish::new(Arc::clone(&context.prompt)),
        }
    }
}

impl Watch {
    /// Begins. The prompt is shared, and read when the text raises a question that only it can settle.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        let prompt = &context.prompt;
        Self {
            bytes: 0,
            pending: String::new(),
            white: whitespace::Whitespace::default(),
            repetition: repetition::Repetition::new(Arc::clone(prompt)),
            scripts: scripts::Scripts::new(Arc::clone(prompt), context.scripts),
            control: control::Control::new(Arc::clone(prompt)),
            refusal: refusal::Refusal::new(Arc::clone(prompt)),
            deep: (context.depth == Depth::Full).then(|| Box::new(Deep::new(context))),
        }
    }

    /// Takes the next decoded piece (a token, or whatever the wire brought).
    pub fn push(&mut self, piece: &str) {
        if piece.is_empty() {
            return;
        }
        self.bytes += piece.len() as u64;
        self.repetition.piece(piece);
        // A loop under way is followed closely.
        if !self.repetition.is_suspected() && self.pending.len() + piece.len() < TOGETHER {
            self.pending.push_str(piece);
            return;
        }
        if self.pending.is_empty() || piece.len() > TOGETHER {
            self.catch_up();
            self.read(piece);
        } else {
            self.pending.push_str(piece);
            self.catch_up();
        }
    }

    /// Reads all that has come: for what is to be decided now.
    pub fn catch_up(&mut self) {
        if !self.pending.is_empty() {
            let mut pending = std::mem::take(&mut self.pending);
            self.read(&pending);
            pending.clear();
            self.pending = pending;
        }
    }

    fn read(&mut self, text: &str) {
        self.white.push(text);
        self.repetition.push(text);
        self.scripts.push(text);
        self.control.push(text);
        self.refusal.push(text);
        if let Some(deep) = &mut self.deep {
            deep.grams.push(text);
            deep.compression.push(text.as_bytes());
            deep.gibberish.push(text);
        }
    }

    /// Flags that already stand and will not be withdrawn; see [`Self::catch_up`] for those of the last few bytes.
    #[must_use]
    pub fn flags_now(&self) -> FlagSet {
        let mut flags = self.control.flags_now();
        let mut raise = |on: bool, flag| {
            if on {
                flags.insert(flag);
            }
        };
        let deep = self.deep.as_ref();
        let compressed = deep.is_some_and(|d| d.compression.tripped());
        raise(self.repetition.loops() || compressed, Flag::Repetition);
        raise(self.white.is_runaway(), Flag::WhitespaceRunaway);
        raise(deep.is_some_and(|d| d.gibberish.tripped()), Flag::Gibberish);
        raise(self.scripts.is_foreign(), Flag::WrongLanguage);
        flags
    }

    /// Bytes held on the heap, about.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let deep = self.deep.as_ref().map_or(0, |d| {
            size_of::<Deep>() + d.grams.heap_bytes() + d.compression.heap_bytes() + d.gibberish.heap_bytes()
        });
        let shallow = self.repetition.heap_bytes() + self.control.heap_bytes() + self.refusal.heap_bytes();
        self.pending.capacity() + shallow + deep
    }

    /// Ends and sums up.
    #[must_use]
    pub fn finish(mut self, finish: Finish) -> Report {
        self.catch_up();
        self.repetition.finish();
        self.scripts.finish();
        self.control.finish();
        if let Some(deep) = &mut self.deep {
            deep.gibberish.finish();
        }
        let mut flags = self.flags_now().union(self.control.flags_at_end());
        let mut raise = |on: bool, flag| {
            if on {
                flags.insert(flag);
            }
        };
        raise(finish.finish_reason_is_length && self.white.is_mostly_white(), Flag::WhitespaceRunaway);
        raise(self.scripts.is_other_than_asked(), Flag::WrongLanguage);
        raise(self.refusal.declines(), Flag::Refusal);
        Report {
            flags,
            repetition: self.deep.as_mut().and_then(|d| d.grams.seq_rep_4()),
            gibberish: self.deep.as_ref().map_or(0.0, |d| d.gibberish.evidence()),
            compression: self.deep.and_then(|d| d.compression.finish()),
            foreign_share: self.scripts.foreign_share(),
            bytes: self.bytes,
            think_only: self.control.think_only(),
        }
    }
}

/// The longest beginning of a text that is at most `bytes` long.
fn head(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;

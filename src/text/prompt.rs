//! What the caller asked, as far as it decides what is odd in an answer.
//!
//! Sound answers raise none of the questions that only the prompt can settle (did it ask for repeats,
//! for another script, for nonsense?), so each is answered when it is first raised, once, and shared by
//! all choices and channels of the answer.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::OnceLock;

use super::scripts::{ScriptSet, System};
use super::{control, gibberish, head, language, refusal, repetition, scripts};

/// Longest part of a prompt's head, and of its tail, that is read.
const PART_BYTES: usize = 32 * 1024;

/// Everything the model was given to read: system text, messages, prompt, and the tools on offer.
#[derive(Debug, Default)]
pub struct Prompt {
    text: Box<str>,
    tools: Vec<Box<str>>,
    repeats: OnceLock<bool>,
    refusals: OnceLock<bool>,
    scripts: OnceLock<ScriptSet>,
    own: OnceLock<Option<System>>,
    markers: OnceLock<HashSet<u64>>,
    doubt: OnceLock<f32>,
    content: OnceLock<HashSet<u64>>,
    language: OnceLock<Option<language::Asked>>,
}

impl Prompt {
    /// `tools`: names of the tools offered. Of a very long text head and tail are kept.
    pub fn new<'t>(text: impl Into<Box<str>>, tools: impl IntoIterator<Item = &'t str>) -> Self {
        let text: Box<str> = text.into();
        let text = match capped(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(short) => short.into(),
        };
        Self { text, tools: tools.into_iter().map(Box::from).collect(), ..Self::default() }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Names of the tools offered.
    pub(super) fn tools(&self) -> &[Box<str>] {
        &self.tools
    }

    /// Whether it asks for something that repeats.
    pub(crate) fn wants_repeats(&self) -> bool {
        *self.repeats.get_or_init(|| repetition::wants_repeats(&self.text))
    }

    /// Whether it asks for a refusal as text.
    pub(super) fn wants_refusal(&self) -> bool {
        *self.refusals.get_or_init(|| refusal::is_asked_for(&self.text))
    }

    /// Scripts that it uses or names.
    pub(super) fn scripts(&self) -> ScriptSet {
        *self.scripts.get_or_init(|| scripts::called_for(&self.text))
    }

    /// The script that it is written in, other than Latin, where it names no other.
    pub(super) fn own_script(&self) -> Option<System> {
        *self.own.get_or_init(|| scripts::own(&self.text))
    }

    /// The language in Latin letters that it calls for, where it calls for one alone.
    pub(super) fn language(&self) -> Option<&language::Asked> {
        self.language.get_or_init(|| language::asked(&self.text)).as_ref()
    }

    /// Hashes of the template markers that it holds.
    pub(super) fn markers(&self) -> &HashSet<u64> {
        self.markers.get_or_init(|| control::markers(&self.text))
    }

    /// How much of the evidence for gibberish it takes away, log-odds; infinite where it asks for nonsense.
    pub(super) fn doubt(&self) -> f32 {
        *self.doubt.get_or_init(|| gibberish::doubt(&self.text))
    }

    /// Hashes of the beginnings of its content words; empty if it has none or too many.
    pub(super) fn content(&self) -> &HashSet<u64> {
        self.content.get_or_init(|| gibberish::content_words(&self.text))
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::new(text, [])
    }
}

/// The prompt, or its head and tail if it is very long.
fn capped(prompt: &str) -> Cow<'_, str> {
    if prompt.len() <= 2 * PART_BYTES {
        return prompt.into();
    }
    let mut tail = prompt.len() - PART_BYTES;
    while !prompt.is_char_boundary(tail) {
        tail += 1;
    }
    format!("{}\n{}", head(prompt, PART_BYTES), &prompt[tail..]).into()
}

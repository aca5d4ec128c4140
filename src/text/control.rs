//! What belongs to the chat template and not into an answer: control tokens, think tags, tool calls
//! printed as text.
//!
//! One scanner for all: markers begin with one of few characters, so that everything else costs one
//! comparison. A marker that the prompt holds, or that stands in a code span or block, is under
//! discussion and no leak. Text is kept only while it may still become a marker (at most
//! `MAX_MARKER_BYTES`), plus a short head for tool calls printed as plain JSON.

use std::collections::HashSet;
use std::sync::Arc;

use super::Prompt;
use crate::verdict::{Flag, FlagSet};

mod tool;

/// Longest marker looked for, bytes.
const MAX_MARKER_BYTES: usize = 80;

/// Control tokens whose spelling is fixed. `<|word|>` and `<｜word｜>` need no list.
const CONTROL: &[&str] = &[
    "[INST]",
    "[/INST]",
    "<<SYS>>",
    "<</SYS>>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<bos>",
    "<eos>",
    "[BOS]",
    "[EOS]",
    "<end_of_utterance>",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "<extra_id_0>",
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "[gMASK]",
    "<sop>",
    "<eop>",
    "<eod>",
    "<image_soft_token>",
];

/// Openings and endings of a tool call printed as text.
const TOOL: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<tool_calls>",
    "</tool_calls>",
    "<toolcall>",
    "<function_calls>",
    "</function_calls>",
    "<function_call>",
    "<functioncall>",
    "[TOOL_CALLS]",
    "[TOOL_CALL]",
    "[/TOOL_CALL]",
    "<|tool_call|>",
    "<|tool_calls|>",
    "<|python_tag|>",
    "<|tool_call_begin|>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_start|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<|action_start|>",
    "<tools>",
    "<invoke>",
    "<minimax:tool_call>",
];

/// Tags that enclose reasoning.
const THINK: &[(&str, &str)] = &[
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
];

/// Scanner and verdicts.
#[derive(Clone, Debug)]
pub struct Control {
    prompt: Arc<Prompt>,
    pending: String,
    code: Code,
    leaked: bool,
    tool: tool::Tool,
    think_open: u32,
    think_close: u32,
    think_depth: u32,
    think_broken: bool,
    inside: bool,
    outside: bool,
    /// `<s>` seen and not yet closed: strikethrough markup.
    struck: bool,
    before: u64,
}

/// Whether the text is inside a code span or block. Backticks count; a block is three or more.
#[derive(Clone, Copy, Debug, Default)]
struct Code {
    ticks: u8,
    block: bool,
    span: bool,
}

impl Code {
    fn see(&mut self, c: char) {
        if c == '`' {
            self.ticks = self.ticks.saturating_add(1);
            return;
        }
        match std::mem::take(&mut self.ticks) {
            0 => {}
            1 | 2 => self.span ^= !self.block,
            _ => {
                self.block ^= true;
                self.span = false;
            }
        }
        // A span does not outlive its line.
        self.span &= c != '\n';
    }

    const fn is_on(self) -> bool {
        self.block || self.span
    }
}

impl Control {
    /// With what the caller asked, and the tools offered.
    #[must_use]
    pub fn new(prompt: Arc<Prompt>) -> Self {
        Self {
            tool: tool::Tool::new(Arc::clone(&prompt)),
            prompt,
            pending: String::new(),
            code: Code::default(),
            leaked: false,
            think_open: 0,
            think_close: 0,
            think_depth: 0,
            think_broken: false,
            inside: false,
            outside: false,
            struck: false,
            before: 0,
        }
    }

    /// Takes the next piece; a marker may be split over several.
    pub fn push(&mut self, piece: &str) {
        self.tool.push(piece);
        if self.pending.is_empty() && find_marker(piece).is_none() {
            self.plain(piece);
            return;
        }
        self.pending.push_str(piece);
        self.drain(false);
    }

    /// Reads what was held back.
    pub fn finish(&mut self) {
        self.drain(true);
        self.tool.finish();
    }

    fn drain(&mut self, at_end: bool) {
        let text = std::mem::take(&mut self.pending);
        let mut rest = text.as_str();
        while let Some(at) = find_marker(rest) {
            self.plain(&rest[..at]);
            rest = &rest[at..];
            match read_marker(rest) {
                Read::Marker(len) => {
                    self.marker(&rest[..len]);
                    rest = &rest[len..];
                }
                Read::More if !at_end => {
                    rest.clone_into(&mut self.pending);
                    return;
                }
                _ => {
                    let one = rest.chars().next().map_or(rest.len(), char::len_utf8);
                    self.plain(&rest[..one]);
                    rest = &rest[one..];
                }
            }
        }
        self.plain(rest);
    }

    fn plain(&mut self, text: &str) {
        if self.code.is_on() || self.code.ticks > 0 || memchr::memchr(b'`', text.as_bytes()).is_some() {
            text.chars().for_each(|c| self.code.see(c));
        }
        let seen = if self.think_depth > 0 { &mut self.inside } else { &mut self.outside };
        *seen = *seen || !text.trim_start().is_empty();
        self.before += text.len() as u64;
    }

    fn marker(&mut self, marker: &str) {
        self.code.see('<'); // ends a row of backticks
        let quoted = self.code.is_on();
        if let Some(closes) = think_tag(marker) {
            if !quoted {
                self.think(closes);
            }
            return;
        }
        self.before += marker.len() as u64;
        if self.think_depth > 0 {
            self.inside = true
        } else {
            self.outside = true
        }
        if quoted || self.prompt.markers().contains(&key(marker)) || self.is_strikethrough(marker) {
            return;
        }
        if is_tool(marker) {
            self.tool.marker();
        } else {
            self.leaked = true;
        }
    }

    fn think(&mut self, closes: bool) {
        if closes {
            self.think_close += 1;
            self.think_broken |= self.think_depth == 0;
            self.think_depth = self.think_depth.saturating_sub(1);
            // A closing tag alone: all before it was reasoning.
            if self.think_open == 0 {
                self.inside |= self.outside;
                self.outside = false;
            }
        } else {
            self.think_open += 1;
            self.think_depth += 1;
        }
    }

    /// `<s>struck</s>` is markup: an opening not at the very start, and its closing.
    fn is_strikethrough(&mut self, marker: &str) -> bool {
        match marker {
            "<s>" => {
                self.struck = self.before > 3;
                self.struck
            }
            "</s>" => std::mem::take(&mut self.struck),
            _ => false,
        }
    }

    /// Bytes held on the heap, about.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.pending.capacity() + self.tool.heap_bytes()
    }

    /// Leaks that already stand.
    #[must_use]
    pub fn flags_now(&self) -> FlagSet {
        let mut flags = FlagSet::EMPTY;
        if self.leaked {
            flags.insert(Flag::SpecialTokenLeak);
        }
        if self.tool.leaked() {
            flags.insert(Flag::ToolCallLeakedText);
        }
        flags
    }

    /// What only the whole text shows.
    #[must_use]
    pub fn flags_at_end(&self) -> FlagSet {
        let unbalanced = self.think_broken || self.think_depth > 0;
        let mut flags = self.flags_now();
        // A prompt that speaks of the tags may be answered about them.
        if unbalanced && !(self.outside && self.think_broken && self.speaks_of_thinking()) {
            flags.insert(Flag::ThinkUnbalanced);
        }
        flags
    }

    fn speaks_of_thinking(&self) -> bool {
        let prompt = self.prompt.text();
        THINK.iter().any(|(open, close)| prompt.contains(open) || prompt.contains(close))
    }

    /// Whether there is reasoning inside think tags and nothing outside.
    #[must_use]
    pub const fn think_only(&self) -> bool {
        self.inside && !self.outside && self.think_open + self.think_close > 0
    }
}

/// Hashes of the markers in a prompt.
pub(super) fn markers(prompt: &str) -> HashSet<u64> {
    let mut known = HashSet::new();
    let mut at = 0;
    while let Some(found) = find_marker(&prompt[at..]) {
        at += found;
        match read_marker(&prompt[at..]) {
            Read::Marker(len) => {
                known.insert(key(&prompt[at..at + len]));
                at += len;
            }
            _ => at += prompt[at..].chars().next().map_or(1, char::len_utf8),
        }
    }
    known
}

/// Where a marker may begin: at `<`, `[` or `◁`.
fn find_marker(text: &str) -> Option<usize> {
    let lead = "◁".as_bytes()[0];
    memchr::memchr3_iter(b'<', b'[', lead, text.as_bytes())
        .find(|at| text.as_bytes()[*at] != lead || text[*at..].starts_with('◁'))
}

fn key(marker: &str) -> u64 {
    super::repetition::hash(marker.as_bytes())
}

/// What stands at the beginning of a text that begins like a marker.
enum Read {
    /// A marker of so many bytes.
    Marker(usize),
    /// It may become one.
    More,
    /// Plain text.
    No,
}

fn read_marker(text: &str) -> Read {
    let mut more = false;
    for fixed in CONTROL.iter().chain(TOOL).chain(THINK.iter().flat_map(|(open, close)| [open, close])) {
        if text.starts_with(fixed) {
            return Read::Marker(fixed.len());
        }
        more |= fixed.starts_with(text);
    }
    // `<function=name>` and `<invoke name="…">`, up to their equals sign.
    for open in ["<function=", "<invoke name=", "<parameter name=", "<tool name="] {
        if text.starts_with(open) {
            return Read::Marker(open.len());
        }
        more |= open.starts_with(text);
    }
    match generic(text) {
        Read::No if more => Read::More,
        read => read,
    }
}

/// `<|word|>` and its full-width form.
fn generic(text: &str) -> Read {
    let mut chars = text.char_indices();
    if chars.next().is_none_or(|(_, c)| c != '<') {
        return Read::No;
    }
    let bar = match chars.next() {
        None => return Read::More,
        Some((_, bar @ ('|' | '｜'))) => bar,
        Some(_) => return Read::No,
    };
    let mut letters = 0;
    let mut closing = false;
    for (at, c) in chars {
        if at > MAX_MARKER_BYTES {
            return Read::No;
        }
        match c {
            '>' if closing && letters > 0 => {
                let word = &text[1 + bar.len_utf8()..at - bar.len_utf8()];
                return if is_token_name(word) || bar == '｜' { Read::Marker(at + 1) } else { Read::No };
            }
            _ if closing => return Read::No,
            c if c == bar => closing = true,
            c if c.is_alphanumeric() || matches!(c, '_' | '▁' | '-' | '/' | ':' | '.') => letters += 1,
            ' ' if letters > 0 => {}
            _ => return Read::No,
        }
    }
    Read::More
}

/// Token names are in one letter case; `<|Rain|>` is somebody.
fn is_token_name(word: &str) -> bool {
    !word.contains(char::is_uppercase) || !word.contains(char::is_lowercase) && word.contains('_')
}

/// Whether the marker is a think tag, and if so whether it closes.
fn think_tag(marker: &str) -> Option<bool> {
    THINK.iter().find_map(|(open, close)| match marker {
        m if m == *open => Some(false),
        m if m == *close => Some(true),
        _ => None,
    })
}

fn is_tool(marker: &str) -> bool {
    TOOL.contains(&marker) || marker.ends_with('=')
}

#[cfg(test)]
mod tests;

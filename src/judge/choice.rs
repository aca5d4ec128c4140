//! One choice of an answer: its four channels while they arrive.

use std::sync::Arc;

use super::ask::Ask;
use crate::text::{Context, Depth, Finish, Report, Watch};
use crate::verdict::{Flag, FlagSet};
use crate::wire::{Channel, Position, ToolPiece};

/// Most tool calls followed in one choice.
const MAX_TOOLS: usize = 64;
/// Most bytes of a name or id that are kept.
const MAX_NAME: usize = 256;

/// Shortest text that is suspect for being one character alone.
const MIN_RUN: usize = 16;

/// Why a choice ended, whatever the wire calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The model came to its end.
    Stop,
    /// A limit ended it.
    Limit,
    /// The provider's filter.
    Filter,
    /// A tool is to be called.
    Tool,
    /// The model declined, by the wire's own word.
    Refusal,
    /// The server gave up.
    Failure,
    /// A word not known here.
    Other,
}

impl Ending {
    fn of(reason: &str) -> Self {
        match reason.to_ascii_lowercase().as_str() {
            "stop" | "end_turn" | "eos" | "eos_token" | "stop_sequence" | "completed" | "complete" => {
                Self::Stop
            }
            "length"
            | "max_tokens"
            | "max_output_tokens"
            | "max_new_tokens"
            | "model_length"
            | "incomplete"
            | "model_context_window_exceeded"
            | "insufficient_system_resource" => Self::Limit,
            "content_filter"
            | "content-filter"
            | "safety"
            | "recitation"
            | "prohibited_content"
            | "blocklist"
            | "sensitive"
            | "spii"
            | "error_toxic"
            | "guardrail_intervened" => Self::Filter,
            "tool_calls" | "tool_call" | "function_call" | "tool_use" => Self::Tool,
            "refusal" => Self::Refusal,
            "error" | "abort" | "aborted" | "network_error" | "failed" => Self::Failure,
            _ => Self::Other,
        }
    }
}

/// A tool call put together from its pieces.
#[derive(Clone, Debug, Default)]
pub(super) struct Tool {
    index: Option<i64>,
    id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// Arguments over the memory limit were dropped.
    pub(super) cut: bool,
    /// Its arguments need not be JSON.
    pub(super) free: bool,
}

/// How much memory the texts of one answer may still take.
#[derive(Debug)]
pub(super) struct Room(pub(super) usize);

impl Room {
    /// Appends as much of `text` as fits; false if some did not.
    fn append(&mut self, to: &mut String, text: &str) -> bool {
        let fits = text.floor_char_boundary(self.0.min(text.len()));
        to.push_str(&text[..fits]);
        self.0 -= fits;
        if fits < text.len() {
            self.0 = 0;
        }
        fits == text.len()
    }
}

/// What came of one choice so far.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) index: u32,
    pub(super) text: String,
    /// The text over the memory limit was dropped.
    pub(super) text_cut: bool,
    pub(super) text_bytes: u64,
    pub(super) reasoning_bytes: u64,
    pub(super) refused: bool,
    pub(super) other: bool,
    pub(super) tools: Vec<Tool>,
    pub(super) finish: Option<(String, Ending)>,
    pub(super) flags: FlagSet,
    visible: bool,
    /// Characters of the prompt that the text repeats first, those still to come, and those that
    /// logprobs have been given for.
    echo: usize,
    echo_left: usize,
    echo_seen: usize,
    /// Gone once it has been closed.
    watch: Option<Watch>,
    reasoning: Option<Box<Watch>>,
    depth: Depth,
}

fn watch(ask: &Ask, depth: Depth) -> Watch {
    Watch::new(&Context { prompt: Arc::clone(&ask.prompt), depth, ..Context::default() })
}

impl Choice {
    pub(super) fn new(index: u32, ask: &Ask, depth: Depth) -> Self {
        let echo = ask.echo_of(index);
        Self {
            index,
            text: String::new(),
            text_cut: false,
            text_bytes: 0,
            reasoning_bytes: 0,
            refused: false,
            other: false,
            tools: Vec::new(),
            finish: None,
            flags: FlagSet::EMPTY,
            visible: false,
            echo_left: echo,
            echo,
            echo_seen: 0,
            watch: Some(watch(ask, depth)),
            depth,
            reasoning: None,
        }
    }

    /// Takes a piece of a channel; true if it brought content.
    pub(super) fn piece(&mut self, channel: Channel, text: &str, ask: &Ask, room: &mut Room) -> bool {
        match channel {
            Channel::Text => return self.text(text, room),
            Channel::Reasoning if !text.is_empty() => {
                self.reasoning_bytes += text.len() as u64;
                self.reasoning.get_or_insert_with(|| Box::new(watch(ask, self.depth))).push(text);
            }
            Channel::Refusal => self.refused |= !text.trim().is_empty(),
            Channel::Reasoning => {}
        }
        !text.is_empty()
    }

    fn text(&mut self, text: &str, room: &mut Room) -> bool {
        let text = if self.echo_left > 0 {
            let skipped = text.chars().take(self.echo_left).map(|c| (1, c.len_utf8()));
            let (chars, bytes) = skipped.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
            self.echo_left -= chars;
            &text[bytes..]
        } else {
            text
        };
        if text.is_empty() {
            return false;
        }
        self.text_bytes += text.len() as u64;
        self.visible |= !text.trim().is_empty();
        if let Some(watch) = &mut self.watch {
            watch.push(text);
        }
        self.text_cut |= !room.append(&mut self.text, text);
        true
    }

    /// Takes a tool call or a piece of one; true if it brought content.
    pub(super) fn tool(&mut self, piece: &ToolPiece<'_>, room: &mut Room) -> bool {
        let Some(at) = self.which(piece) else { return true };
        let tool = &mut self.tools[at];
        if let Some(name) = piece.name {
            // Some servers repeat the name with every piece.
            if tool.name != name && tool.name.len() + name.len() <= MAX_NAME {
                tool.name.push_str(name);
            }
        }
        if let (Some(id), true) = (piece.id, tool.id.is_empty()) {
            tool.id.push_str(&id[..id.floor_char_boundary(MAX_NAME.min(id.len()))]);
        }
        tool.free |= piece.free;
        tool.cut |= !room.append(&mut tool.arguments, piece.arguments);
        piece.name.is_some() || !piece.arguments.is_empty()
    }

    /// The call that a piece belongs to; a new one where it opens one. `None` over the limit.
    fn which(&mut self, piece: &ToolPiece<'_>) -> Option<usize> {
        let other_id = |tool: &Tool| piece.id.is_some_and(|id| !tool.id.is_empty() && tool.id != id);
        let found = match (piece.index, piece.id) {
            (Some(index), _) => match self.tools.iter().rposition(|t| t.index == Some(index)) {
                // Two calls under one index: their arguments must not run together.
                Some(at) if other_id(&self.tools[at]) && piece.name.is_some() => {
                    self.flags.insert(Flag::IndexAnomaly);
                    self.tools.iter().position(|t| piece.id == Some(&*t.id))
                }
                Some(at) => Some(at),
                None => {
                    if piece.counts_calls && usize::try_from(index).map_or(true, |i| i > self.tools.len()) {
                        self.flags.insert(Flag::IndexAnomaly);
                    }
                    None
                }
            },
            (None, Some(id)) => self.tools.iter().position(|t| t.id == id),
            (None, None) if piece.name.is_none() => self.tools.len().checked_sub(1),
            (None, None) => None,
        };
        if found.is_some() {
            return found;
        }
        if self.tools.len() >= MAX_TOOLS {
            self.text_cut = true;
            return None;
        }
        self.tools.push(Tool { index: piece.index, ..Tool::default() });
        Some(self.tools.len() - 1)
    }

    /// Whether a position is the prompt's own, repeated: its probability says nothing of the answer.
    pub(super) fn is_echo(&mut self, position: &Position<'_>) -> bool {
        if self.echo == 0 {
            return false;
        }
        let start = position.offset.and_then(|o| usize::try_from(o).ok()).unwrap_or(self.echo_seen);
        let bytes = position.token.to_bytes();
        self.echo_seen += String::from_utf8_lossy(&bytes).chars().count();
        start < self.echo
    }

    /// Reads all the text that has come.
    pub(super) fn catch_up(&mut self) {
        self.watch.iter_mut().chain(self.reasoning.as_deref_mut()).for_each(Watch::catch_up);
    }

    pub(super) fn ended(&mut self, reason: &str) {
        self.catch_up();
        let short = &reason[..reason.floor_char_boundary(reason.len().min(64))];
        self.finish = Some((short.to_owned(), Ending::of(reason)));
    }

    pub(super) fn ending(&self) -> Option<Ending> {
        self.finish.as_ref().map(|f| f.1)
    }

    pub(super) fn flags_now(&self) -> FlagSet {
        let loops = self.reasoning.as_ref().map(|w| loops(w.flags_now())).unwrap_or_default();
        self.flags.union(self.watch.as_ref().map(Watch::flags_now).unwrap_or_default()).union(loops)
    }

    /// Bytes that took tokens to say.
    pub(super) fn bytes(&self) -> u64 {
        let tools: usize = self.tools.iter().map(|t| t.name.len() + t.arguments.len()).sum();
        self.text_bytes + self.reasoning_bytes + tools as u64
    }

    /// Whether there is text beyond white space.
    pub(super) fn has_visible_text(&self) -> bool {
        self.visible
    }

    /// Whether the whole text is one character again and again until the limit came: too short for a
    /// loop to be told from its window, and yet nothing else.
    fn is_one_character(&self, ask: &Ask) -> bool {
        let text = self.text.trim();
        let mut chars = text.chars();
        let first = chars.next();
        self.ending() == Some(Ending::Limit)
            && first.is_some_and(|f| !f.is_alphanumeric() && chars.all(|c| c == f))
            && text.len() >= MIN_RUN
            && !ask.prompt.wants_repeats()
    }

    /// Ends the watching of the texts.
    pub(super) fn close(&mut self, ask: &Ask) -> Report {
        let finish = Finish { finish_reason_is_length: self.ending() == Some(Ending::Limit) };
        let mut report = self.watch.take().map(|watch| watch.finish(finish)).unwrap_or_default();
        if let Some(reasoning) = self.reasoning.take() {
            report.flags = report.flags.union(loops(reasoning.finish(finish).flags));
        }
        report.flags = report.flags.union(self.flags);
        if self.is_one_character(ask) {
            report.flags.insert(Flag::Repetition);
        }
        if ask.hidden_context || ask.prompt.text().is_empty() {
            // Nobody knows here which language was called for.
            report.flags.remove(Flag::WrongLanguage);
        } else if self.depth == Depth::Full
            && crate::text::language::is_other_than_asked(&ask.prompt, &self.text)
        {
            report.flags.insert(Flag::WrongLanguage);
        }
        report
    }
}

/// Of the flags of thinking aloud only endless ones count: it may be in any language and end anywhere.
fn loops(flags: FlagSet) -> FlagSet {
    flags.iter().filter(|f| matches!(f, Flag::Repetition | Flag::WhitespaceRunaway)).collect()
}

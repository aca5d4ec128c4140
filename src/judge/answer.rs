//! What an answer has said so far: all choices, usage, errors, and whether it has come to its end.

use super::ask::Ask;
use super::choice::{Choice, Room};
use super::confidence::Confidence;
use super::scores::Scores;
use super::tensors::Tensors;
use super::vectors::Vectors;
use crate::text::Depth;
use crate::verdict::{Flag, FlagSet, Substance};
use crate::wire::kserve::Tail;
use crate::wire::{self, Counts, Event, Fault, Form, Memory, Position, Value};

/// Most choices followed; each costs some 20 kB. Further ones make the analysis partial.
const MAX_CHOICES: usize = 4;
/// Text kept of a stream, all channels and choices together, bytes.
const STREAM_ROOM: usize = 16 << 10;
/// The same where the text must be read as JSON in the end.
const STREAM_ROOM_JSON: usize = 32 << 10;
/// Longest model name kept, bytes.
const MAX_MODEL: usize = 256;

/// The running state.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) choices: Vec<Choice>,
    pub(super) confidence: Confidence,
    pub(super) vectors: Vectors,
    pub(super) tensors: Tensors,
    pub(super) scores: Scores,
    pub(super) counts: Option<Counts>,
    pub(super) model: Option<String>,
    pub(super) fault: Option<Fault>,
    pub(super) flags: FlagSet,
    /// A stream had at least one event in the wire's own form.
    pub(super) has_events: bool,
    /// The wire's own terminal marker was seen.
    pub(super) marked_end: bool,
    pub(super) has_content: bool,
    pub(super) partial: bool,
    pub(super) depth: Depth,
    /// When the first content came, and the latest.
    pub(super) first_ms: Option<u64>,
    pub(super) last_ms: u64,
    room: Room,
    memory: Memory,
}

impl Answer {
    pub(super) fn new(ask: &Ask, depth: Depth) -> Self {
        let room = if ask.format.is_some() { STREAM_ROOM_JSON } else { STREAM_ROOM };
        Self {
            choices: Vec::new(),
            confidence: Confidence::new(ask.top_logprobs, ask.vocab),
            vectors: Vectors::default(),
            tensors: Tensors::default(),
            scores: Scores::default(),
            counts: None,
            model: None,
            fault: None,
            flags: FlagSet::EMPTY,
            has_events: false,
            marked_end: false,
            has_content: false,
            partial: false,
            depth,
            first_ms: None,
            last_ms: 0,
            room: Room(room),
            memory: Memory::default(),
        }
    }

    /// Takes one document: a whole answer or one event. True if it brought content.
    pub(super) fn document(&mut self, root: Value<'_>, form: Form<'_>, at_ms: u64, ask: &Ask) -> bool {
        if form == Form::Whole {
            // The body itself is bounded; nothing of it needs to be dropped.
            self.room.0 = usize::MAX;
        }
        // Some gateways wrap their error in a list.
        let listed =
            root.is_array() && !matches!(ask.wire.substance(), Substance::Vectors | Substance::Scores);
        let root = if listed { root.items().next().unwrap_or(root) } else { root };
        let mut content = false;
        let mut memory = std::mem::take(&mut self.memory);
        wire::read(ask.wire, root, form, &mut memory, &mut |event| content |= self.event(event, ask));
        self.memory = memory;
        self.note_content(content, at_ms);
        content
    }

    /// Takes a whole KServe answer with its raw tensors.
    pub(super) fn tensors(&mut self, root: Value<'_>, tail: Tail<'_>, at_ms: u64, ask: &Ask) {
        let mut content = false;
        wire::kserve::read(root, tail, &mut |event| content |= self.event(event, ask));
        self.note_content(content, at_ms);
    }

    fn note_content(&mut self, content: bool, at_ms: u64) {
        if content {
            self.has_content = true;
            self.first_ms.get_or_insert(at_ms);
            self.last_ms = at_ms;
        }
    }

    fn event(&mut self, event: Event<'_>, ask: &Ask) -> bool {
        match event {
            Event::Piece { choice, channel, text } => self
                .with(choice, ask, |c, room| c.piece(channel, text, ask, room))
                .unwrap_or(!text.is_empty()),
            Event::ToolCall { choice, piece } => {
                self.with(choice, ask, |c, room| c.tool(&piece, room)).unwrap_or(true)
            }
            Event::OtherContent { choice } => {
                self.with(choice, ask, |c, _| c.other = true);
                true
            }
            Event::Finish { choice, reason } => {
                self.with(choice, ask, |c, _| c.ended(reason));
                false
            }
            Event::Position { choice, position } => {
                self.position(choice, &position, ask);
                false
            }
            Event::Filtered => {
                self.flags.insert(Flag::ContentFiltered);
                false
            }
            Event::Usage(counts) => {
                self.counts.get_or_insert_default().update(counts);
                false
            }
            Event::Model(name) => {
                if self.model.is_none() && name.len() <= MAX_MODEL {
                    self.model = Some(name.to_owned());
                }
                false
            }
            Event::Error(fault) => {
                self.fault.get_or_insert_with(|| fault.clone());
                false
            }
            Event::Vector(vector) => {
                self.vectors.add(&vector, ask);
                true
            }
            Event::Score { index, value } => {
                self.scores.add(index, value, ask);
                true
            }
            Event::Items(n) => {
                self.vectors.items = n;
                self.scores.items = Some(n);
                false
            }
            Event::Tensor(tensor) => {
                self.tensors.add(&tensor);
                true
            }
            Event::End => {
                self.mark_end();
                false
            }
            Event::Odd(flag) => {
                self.flags.insert(flag);
                false
            }
        }
    }

    /// Lets `change` act on a choice; `None` if there are too many.
    fn with<T>(
        &mut self,
        index: u32,
        ask: &Ask,
        change: impl FnOnce(&mut Choice, &mut Room) -> T,
    ) -> Option<T> {
        let at = match self.choices.iter().position(|c| c.index == index) {
            Some(at) => at,
            None => {
                if index >= ask.choices && ask.readable {
                    self.flags.insert(Flag::IndexAnomaly);
                }
                if self.choices.len() >= MAX_CHOICES {
                    self.partial = true;
                    return None;
                }
                self.choices.push(Choice::new(index, ask, self.depth));
                self.choices.len() - 1
            }
        };
        Some(change(&mut self.choices[at], &mut self.room))
    }

    fn position(&mut self, choice: u32, position: &Position<'_>, ask: &Ask) {
        if self.with(choice, ask, |c, _| c.is_echo(position)) == Some(true) {
            return;
        }
        let leads = self.choices.first().is_none_or(|c| c.index == choice);
        self.confidence.add(position, leads);
    }

    /// Whether every choice seen has told why it ended.
    pub(super) fn all_finished(&self) -> bool {
        !self.choices.is_empty() && self.choices.iter().all(|c| c.finish.is_some())
    }

    /// The wire's own terminal marker has come.
    pub(super) fn mark_end(&mut self) {
        self.catch_up();
        self.marked_end = true;
    }

    /// Reads all the text that has come.
    pub(super) fn catch_up(&mut self) {
        self.choices.iter_mut().for_each(Choice::catch_up);
    }

    /// Flags that already stand.
    pub(super) fn flags_now(&self) -> FlagSet {
        self.choices.iter().fold(self.flags, |flags, c| flags.union(c.flags_now()))
    }
}

//! From all that was seen to flags, class and signals.
//!
//! Order matters: a cut or failed answer is judged by the cut or failure, never by what is missing from
//! its text; a filtered or declined one is neither empty nor malformed; one that a limit ended breaks no
//! schema.

mod class;

use super::answer::Answer;
use super::ask::Ask;
use super::body::Rest;
use super::choice::{Choice, Ending};
use super::framed::Framed;
use super::{End, Head, Limit, Verdict};
use crate::sample::Signals;
use crate::text::Depth;
use crate::verdict::{Flag, FlagSet, Substance, Wire};
use crate::wire::kserve::Tail;
use crate::wire::{self, FaultKind, Scratch};

/// Longest answer text in a verdict, bytes.
const MAX_TEXT: usize = 16 << 10;
/// Most tokens that may be less than one character together.
const MAX_SLIVER: u64 = 3;
/// Most tool calls in a verdict.
const MAX_CALLS: usize = 16;

/// All that was seen of one answer.
pub(super) struct Seen<'a> {
    pub(super) ask: &'a Ask,
    pub(super) head: &'a Head,
    pub(super) answer: Answer,
    pub(super) rest: Rest,
    pub(super) received: u64,
    pub(super) first_byte_ms: Option<u64>,
    pub(super) bad_encoding: bool,
    /// The encoded bytes stopped before the encoding's own end.
    pub(super) cut_encoding: bool,
    pub(super) partial: bool,
    /// The document stopped making sense or ended early.
    pub(super) broken: bool,
    /// A stream was asked for or announced.
    pub(super) expects_stream: bool,
    pub(super) at_ms: u64,
    pub(super) end: End,
}

impl Seen<'_> {
    pub(super) fn success(&self) -> bool {
        (200..300).contains(&self.head.status)
    }

    pub(super) fn substance(&self) -> Substance {
        self.ask.wire.substance()
    }

    /// Fewer bytes came than the head declared.
    fn is_short(&self) -> bool {
        self.head.content_length.is_some_and(|declared| self.received < declared)
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self.rest, Rest::Stream)
    }

    pub(super) fn conclude(mut self) -> Verdict {
        let mut flags = FlagSet::EMPTY;
        let lenient = self.read_body(&mut flags);
        self.partial |= self.answer.partial;
        self.fault_flags(&mut flags);
        self.stream_flags(&mut flags);
        let whole = self.is_whole(flags);
        let mut verdict = Verdict::default();
        self.text_flags(whole, &mut flags, &mut verdict);
        match self.substance() {
            Substance::Text if whole => self.content_flags(&mut flags, &mut verdict),
            Substance::Scores => self.answer.scores.conclude(self.ask, whole, &mut flags, &mut verdict),
            Substance::Vectors => self.answer.vectors.conclude(self.ask, whole, &mut flags, &mut verdict),
            _ => {}
        }
        self.usage(whole, &mut flags, &mut verdict);
        self.signals(whole, &mut flags, &mut verdict);
        if self.substance() == Substance::Tensors {
            let complete = whole && !self.partial;
            std::mem::take(&mut self.answer.tensors).conclude(complete, &mut flags, &mut verdict);
        }
        flags = flags.union(self.answer.flags);
        if self.end == End::ClientGone {
            flags.remove(Flag::StreamIncomplete);
        }
        verdict.class = self.class(flags, lenient);
        verdict.flags = flags;
        self.fill(&mut verdict);
        verdict
    }

    /// Reads a body that is one document. True if it was odd and could be read all the same.
    fn read_body(&mut self, flags: &mut FlagSet) -> bool {
        let success = self.success();
        let gone = matches!(self.end, End::ClientGone | End::TimedOut(_) | End::Stopped);
        let short = !gone && (self.is_short() || self.end == End::Broken);
        let mut raise = |on: bool, flag| {
            if on && success {
                flags.insert(flag);
            }
        };
        raise(self.bad_encoding, Flag::NonJsonBody);
        match std::mem::replace(&mut self.rest, Rest::Opaque) {
            Rest::Empty => {
                let cut = self.cut_encoding && self.received > 0 && !gone;
                raise(!short && !gone && !self.partial && !cut, Flag::EmptyBody);
                raise(cut || (short && self.head.content_length.is_some_and(|l| l > 0)), Flag::BodyTruncated);
                raise(!gone && self.expects_stream && !self.partial, Flag::StreamIncomplete);
                self.rest = Rest::Empty;
            }
            Rest::Opaque => raise(!gone && !self.partial, Flag::NonJsonBody),
            Rest::Stream => {
                self.rest = Rest::Stream;
                raise(short && self.is_short(), Flag::BodyTruncated);
            }
            Rest::Json(held, cut) => {
                let mut doc = Scratch::default();
                let declared = self.head.inference_header_length.as_deref();
                let complete = !cut && !short && !gone && !self.partial;
                let mut framed = Framed::split(self.ask.wire, declared, &held, complete);
                let (root, odd) = doc.parse(framed.json);
                let short = short || (self.cut_encoding && odd.broken && !gone);
                self.partial |= cut || odd.cut;
                let broken = odd.broken && !self.partial && !gone;
                self.broken = odd.broken;
                let Some(root) = root.filter(|r| r.is_object() || r.is_array()) else {
                    raise(short, Flag::BodyTruncated);
                    raise(!short && !gone, Flag::NonJsonBody);
                    return false;
                };
                self.partial |= gone && odd.broken;
                let at = self.first_byte_ms.unwrap_or(self.at_ms);
                framed.look_behind(self.ask.wire, root);
                if self.ask.wire == Wire::KserveInfer {
                    let whole = complete && !framed.broken && !odd.broken && success;
                    self.answer.tensors(root, Tail { bytes: framed.tail, whole }, at, self.ask);
                } else {
                    self.answer.document(root, wire::Form::Whole, at, self.ask);
                }
                raise(short, Flag::BodyTruncated);
                raise((broken || framed.broken) && !short, Flag::MalformedJson);
                raise(odd.nonstandard, Flag::MalformedJson);
                let invalid = odd.invalid_utf8 && std::str::from_utf8(framed.json).is_err();
                raise(invalid, Flag::EncodingError);
                self.rest = Rest::Json(Vec::new(), cut);
                return odd.nonstandard && !odd.broken && !framed.broken;
            }
        }
        false
    }

    fn fault_flags(&mut self, flags: &mut FlagSet) {
        let success = self.success();
        let failed = self.answer.choices.iter().any(|c| c.ending() == Some(Ending::Failure));
        if success && (self.answer.fault.is_some() || failed) {
            let event = self.is_stream() && self.answer.has_events;
            flags.insert(if event { Flag::StreamErrorEvent } else { Flag::UpstreamErrorIn200 });
        }
        match self.answer.fault.as_ref().map(|f| f.kind) {
            Some(FaultKind::RateLimited | FaultKind::Quota) => flags.insert(Flag::RateLimited),
            Some(FaultKind::Overloaded) => flags.insert(Flag::Overloaded),
            Some(FaultKind::Filtered) => flags.insert(Flag::ContentFiltered),
            _ => {}
        }
        match self.head.status {
            429 => flags.insert(Flag::RateLimited),
            503 | 529 | 498 => flags.insert(Flag::Overloaded),
            _ => {}
        }
        if matches!(self.end, End::TimedOut(Limit::FirstText | Limit::StreamIdle)) {
            flags.insert(Flag::Stall);
        }
    }

    fn stream_flags(&self, flags: &mut FlagSet) {
        if !self.is_stream()
            || !self.success()
            || matches!(self.end, End::ClientGone | End::TimedOut(_) | End::Stopped)
        {
            return;
        }
        if self.answer.fault.is_some() && !self.answer.has_events {
            return; // an error body under a stream's name, and no stream at all
        }
        let ended = self.answer.marked_end || self.answer.all_finished();
        if (!ended && !self.partial) || (self.end == End::Broken && !self.answer.marked_end) {
            flags.insert(Flag::StreamIncomplete);
        }
        let reasons = self.answer.choices.iter().all(|c| c.finish.is_some());
        if self.answer.marked_end && !reasons {
            flags.insert(Flag::FinishReasonMissing);
        }
    }

    /// Whether the answer came to its own end, so that what is missing from it means something.
    fn is_whole(&self, flags: FlagSet) -> bool {
        let spoiled = [
            Flag::StreamIncomplete,
            Flag::BodyTruncated,
            Flag::EmptyBody,
            Flag::NonJsonBody,
            Flag::StreamErrorEvent,
            Flag::UpstreamErrorIn200,
        ];
        let unread = self.broken || (self.partial && self.answer.choices.is_empty());
        self.success()
            && (self.end == End::Complete || (self.end == End::Broken && self.answer.marked_end))
            && !spoiled.iter().any(|f| flags.contains(*f))
            && !unread
            && !self.answer.flags.contains(Flag::UnparseableEvent)
    }

    fn text_flags(&mut self, whole: bool, flags: &mut FlagSet, verdict: &mut Verdict) {
        for (place, choice) in self.answer.choices.iter_mut().enumerate() {
            let report = choice.close(self.ask);
            let mut raised = report.flags;
            if !whole {
                raised.remove(Flag::ThinkUnbalanced);
                raised.remove(Flag::ToolCallLeakedText);
            }
            if self.ask.choices > 0 && choice.refused {
                raised.insert(Flag::Refusal);
            }
            match choice.ending() {
                Some(Ending::Limit) => raised.insert(Flag::Truncated),
                Some(Ending::Filter) => raised.insert(Flag::ContentFiltered),
                Some(Ending::Refusal) => raised.insert(Flag::Refusal),
                _ => {}
            }
            if whole
                && report.think_only
                && !raised.contains(Flag::ThinkUnbalanced)
                && choice.tools.is_empty()
            {
                raised.insert(Flag::ReasoningOnly);
            }
            *flags = flags.union(raised);
            if place == 0 {
                verdict.signals.repetition = report.repetition;
                verdict.signals.compression = report.compression;
                verdict.signals.foreign_share = report.foreign_share;
            }
        }
    }

    fn content_flags(&self, flags: &mut FlagSet, verdict: &mut Verdict) {
        let filtered =
            self.answer.flags.contains(Flag::ContentFiltered) || flags.contains(Flag::ContentFiltered);
        if self.answer.choices.is_empty() && !self.partial && !filtered {
            flags.insert(Flag::EmptyOutput);
            verdict.empty_cause = Some("no_choices");
        }
        for choice in &self.answer.choices {
            if !filtered && !self.partial {
                self.emptiness(choice, flags, verdict);
            }
            self.shape(choice, filtered, flags);
        }
        let reasons = self.answer.choices.iter().all(|c| c.finish.is_some());
        if !self.is_stream() && !reasons {
            flags.insert(Flag::FinishReasonMissing);
        }
    }

    /// Whether so few tokens were wanted that together they may be less than a character, which servers
    /// then leave out: outside Latin a character takes up to four.
    fn is_sliver(&self) -> bool {
        let counts = self.answer.counts;
        let reasoned = counts.and_then(|c| c.reasoning).is_some_and(|n| n > 0);
        let made = counts.and_then(|c| c.output).and_then(|n| u64::try_from(n).ok());
        let made = made.or(self.ask.max_tokens).or(Some(self.answer.confidence.positions).filter(|n| *n > 0));
        !reasoned && made.is_some_and(|n| (1..=MAX_SLIVER).contains(&n))
    }

    fn emptiness(&self, choice: &Choice, flags: &mut FlagSet, verdict: &mut Verdict) {
        let limit = choice.ending() == Some(Ending::Limit);
        let text = choice.has_visible_text() || (limit && choice.text_bytes > 0);
        let declined = choice.refused || choice.ending() == Some(Ending::Refusal);
        if limit && self.is_sliver() {
            return;
        }
        if text || declined || choice.other || !choice.tools.is_empty() || choice.text_cut {
            return;
        }
        let reasoned = self.answer.counts.and_then(|c| c.reasoning).is_some_and(|n| n > 0);
        if choice.reasoning_bytes > 0 {
            flags.insert(Flag::ReasoningOnly);
            verdict.empty_cause = Some(if limit { "thinking_took_the_budget" } else { "reasoning_only" });
            return;
        }
        if !flags.contains(Flag::WhitespaceRunaway) {
            flags.insert(Flag::EmptyOutput);
        }
        let generated = self.answer.counts.and_then(|c| c.output).is_some_and(|n| n > 1);
        verdict.empty_cause = Some(match () {
            () if limit && reasoned => "thinking_took_the_budget",
            () if choice.text_bytes > 0 => "white_space",
            () if choice.ending() == Some(Ending::Tool) => "tool_call_missing",
            () if generated => "swallowed_by_the_parser",
            () => "nothing_generated",
        });
    }

    /// Schema, tools.
    fn shape(&self, choice: &Choice, filtered: bool, flags: &mut FlagSet) {
        let ending = choice.ending();
        let excused = filtered || choice.refused || matches!(ending, Some(Ending::Limit | Ending::Refusal));
        if excused {
            return;
        }
        let tools = &self.ask.tools;
        if choice.tools.is_empty() {
            let format = self.ask.format.as_ref().filter(|_| choice.has_visible_text() && !choice.text_cut);
            if format.is_some_and(|f| !f.allows(&choice.text)) {
                flags.insert(Flag::SchemaInvalid);
            }
        }
        let called = || choice.tools.iter().map(|t| t.name.as_str());
        let announced = ending == Some(Ending::Tool) && choice.tools.is_empty();
        if announced || (self.ask.readable && tools.misses(called())) {
            flags.insert(Flag::ToolCallMissing);
        }
        if choice.tools.iter().any(|t| !t.cut && !t.free && !tools.allows(&t.name, &t.arguments)) {
            flags.insert(Flag::ToolCallInvalid);
        }
    }

    fn signals(&self, whole: bool, flags: &mut FlagSet, verdict: &mut Verdict) {
        let text: u64 = self.answer.choices.iter().map(|c| c.text_bytes).sum();
        let confidence = &self.answer.confidence;
        let tokens = verdict.usage.output.filter(|_| self.success());
        let signals: &mut Signals = &mut verdict.signals;
        signals.text_bytes = text;
        signals.tokens = tokens;
        // Hidden reasoning has no logprobs and is no loss of coverage.
        let spoken = tokens.map(|t| t.saturating_sub(verdict.usage.reasoning.unwrap_or(0)));
        let on_wire = self.substance() == Substance::Text && self.ask.wire != Wire::Messages;
        confidence.report(signals, on_wire, self.ask.logprobs, spoken);
        if confidence.odd {
            flags.insert(Flag::LogprobsInvalid);
        }
        if whole && self.ask.logprobs && confidence.positions == 0 && text > 0 {
            flags.insert(Flag::LogprobsMissing);
        }
        if let (true, Some(first), Some(tokens)) = (self.is_stream(), self.answer.first_ms, tokens) {
            let span = self.answer.last_ms.saturating_sub(first);
            if span > 0 && tokens > 1 {
                verdict.tokens_per_second = Some((tokens - 1) as f64 * 1000.0 / span as f64);
            }
        }
    }

    fn fill(self, verdict: &mut Verdict) {
        let is_stream = self.is_stream();
        let fault = self.answer.fault;
        verdict.ttft_ms = if is_stream { self.answer.first_ms } else { self.first_byte_ms };
        verdict.lasting = fault.as_ref().is_some_and(|f| {
            matches!(f.kind, FaultKind::Quota | FaultKind::Filtered)
                || (f.kind == FaultKind::Client && !self.answer.has_content)
        }) || verdict.flags.contains(Flag::ContentFiltered);
        verdict.retry_after_ms = fault.as_ref().and_then(|f| f.retry_after_ms);
        verdict.error = fault.map(|f| f.message);
        verdict.model = self.answer.model;
        verdict.embedding = self.answer.vectors.first;
        verdict.partial = self.partial;
        verdict.light = self.answer.depth == Depth::Light;
        verdict.streamed = is_stream;
        verdict.logprob_positions = self.answer.confidence.valid;
        if let Some(first) = self.answer.confidence.first_position {
            verdict.first_position = Some(first);
        }
        if let Some(first) = self.answer.choices.into_iter().min_by_key(|c| c.index) {
            verdict.finish_reason = first.finish.map(|f| f.0);
            verdict.text = first.text[..first.text.floor_char_boundary(MAX_TEXT)].into();
            verdict.tool_calls =
                first.tools.into_iter().take(MAX_CALLS).map(|t| (t.name, t.arguments)).collect();
        }
    }
}

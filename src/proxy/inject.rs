//! Questions of the daemon's own in a caller's request, and what they bring cut out of the answer again.
//!
//! With `inject = "live"` a target's chat and completion requests ask for logprobs, and streams for their usage, where
//! the caller said nothing of either; what it said itself, an explicit `false` too, is obeyed. The judge reads the whole
//! answer, the caller gets it without the members that it did not ask for: `choices[].logprobs`, in streams the
//! top-level `usage`, and of an event that brings usage alone nothing. Every other byte stays, as in [`super::splice`].
//!
//! Pure: bytes in, bytes out. What reads no JSON, or is larger than the limits, is passed on as it is.

use std::ops::Range;

use bytes::Bytes;

use super::members::{Member, members, skip_space, skip_value};
use crate::judge::Ask;
use crate::verdict::Wire;

/// Alternatives a position; as many as golden bursts ask for, enough for the entropy.
const TOP_K: u32 = 5;

/// What was asked for on the daemon's behalf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Injected {
    pub(super) logprobs: bool,
    /// `stream_options.include_usage`.
    pub(super) usage: bool,
}

impl Injected {
    /// As the response header says it.
    pub(super) const fn as_str(self) -> &'static str {
        match (self.logprobs, self.usage) {
            (true, true) => "logprobs, usage",
            (true, false) => "logprobs",
            _ => "usage",
        }
    }

    /// What the judge of the answer is told was asked.
    pub(super) fn asked(self, ask: &Ask) -> Ask {
        let mut asked = ask.clone();
        if self.logprobs {
            (asked.logprobs, asked.top_logprobs) = (true, Some(TOP_K));
        }
        if self.usage {
            asked.include_usage = Some(true);
        }
        asked
    }
}

/// The request with the daemon's questions; `None` where there is nothing to ask, or nothing that can be read.
pub(super) fn with_questions(wire: Wire, body: &Bytes) -> Option<(Bytes, Injected)> {
    if !matches!(wire, Wire::Chat | Wire::Completions) {
        return None;
    }
    let members = members(body, skip_space(body, 0))?;
    let has = |name: &str| members.iter().any(|m| m.is(body, name));
    let value = |name: &str| members.iter().rev().find(|m| m.is(body, name)).map(|m| &body[m.value.clone()]);
    // A prompt that is repeated would come with logprobs of its own.
    let logprobs = !has("logprobs") && !has("top_logprobs") && !has("echo");
    let (mut usage, mut nested) = (false, None);
    if value("stream") == Some(b"true") {
        let options = members.iter().find(|m| m.is(body, "stream_options"));
        match options {
            None => usage = true,
            Some(options) if body[options.value.start] == b'{' => {
                let inner = self::members(body, options.value.start)?;
                if !inner.iter().any(|m| m.is(body, "include_usage")) {
                    nested = Some((options.value.start + 1, inner.is_empty()));
                }
            }
            Some(_) => {}
        }
    }
    let injected = Injected { logprobs, usage: usage || nested.is_some() };
    let first = members.first()?.start;
    if !injected.logprobs && !injected.usage {
        return None;
    }
    let mut out = Vec::with_capacity(body.len() + 80);
    out.extend_from_slice(&body[..first]);
    match wire {
        _ if !logprobs => {}
        Wire::Completions => out.extend_from_slice(format!("\"logprobs\":{TOP_K},").as_bytes()),
        _ => out.extend_from_slice(format!("\"logprobs\":true,\"top_logprobs\":{TOP_K},").as_bytes()),
    }
    if usage {
        out.extend_from_slice(b"\"stream_options\":{\"include_usage\":true},");
    }
    match nested {
        None => out.extend_from_slice(&body[first..]),
        Some((at, is_empty)) => {
            out.extend_from_slice(&body[first..at]);
            out.extend_from_slice(b"\"include_usage\":true");
            out.extend_from_slice(if is_empty { b"" } else { b"," });
            out.extend_from_slice(&body[at..]);
        }
    }
    Some((out.into(), injected))
}

/// What is left of a document.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// All of it.
    All,
    /// All but these stretches, in order.
    Without(Vec<Range<usize>>),
    /// Nothing: it was there for the daemon's sake alone.
    Nothing,
}

/// What of a JSON document was not asked for by the caller; `is_event` for one of a stream.
pub(super) fn left_of(document: &[u8], injected: Injected, is_event: bool) -> Left {
    let mut cuts = Vec::new();
    match find(document, injected, is_event, &mut cuts) {
        Some(true) => Left::Nothing,
        Some(false) if !cuts.is_empty() => {
            cuts.sort_by_key(|cut| cut.start);
            Left::Without(cuts)
        }
        _ => Left::All,
    }
}

/// Collects the cuts; true if the document holds nothing but what was injected.
fn find(document: &[u8], injected: Injected, is_event: bool, cuts: &mut Vec<Range<usize>>) -> Option<bool> {
    let top = members(document, skip_space(document, 0))?;
    let usage = |m: &Member| is_event && injected.usage && m.is(document, "usage");
    cut(&top, &usage, cuts);
    let mut choices = None;
    for member in top.iter().filter(|m| m.is(document, "choices")) {
        let mut at = member.value.start;
        if document[at] != b'[' {
            continue;
        }
        choices = Some(0);
        at = skip_space(document, at + 1);
        while document.get(at)? != &b']' {
            *choices.get_or_insert(0) += 1;
            if document[at] == b'{' && injected.logprobs {
                cut(&members(document, at)?, &|m| m.is(document, "logprobs"), cuts);
            }
            at = skip_space(document, skip_value(document, at)?);
            match document.get(at)? {
                b',' => at = skip_space(document, at + 1),
                b']' => {}
                _ => return None,
            }
        }
    }
    let brings_usage = top.iter().any(|m| usage(m) && document[m.value.start] == b'{');
    Some(brings_usage && choices == Some(0))
}

/// The document without what was not asked for.
pub(super) fn without(document: &Bytes, cuts: &[Range<usize>]) -> Bytes {
    let mut out = Vec::with_capacity(document.len());
    let mut done = 0;
    for cut in cuts {
        out.extend_from_slice(&document[done..cut.start]);
        done = cut.end;
    }
    out.extend_from_slice(&document[done..]);
    out.into()
}

/// Stretches that take the chosen members of one object out, and with each of them one comma.
fn cut(members: &[Member], chosen: &dyn Fn(&Member) -> bool, cuts: &mut Vec<Range<usize>>) {
    let mut kept = false;
    for (i, member) in members.iter().enumerate() {
        if !chosen(member) {
            kept = true;
        } else if kept {
            cuts.push(members[i - 1].value.end..member.value.end);
        } else {
            cuts.push(member.start..members.get(i + 1).map_or(member.value.end, |next| next.start));
        }
    }
}

#[cfg(test)]
mod tests;

//! Takes what was injected out of an answer while it passes.
//!
//! A JSON answer is cut once it is all there, a stream event by event. Nothing waits longer than for the end of its own
//! event; what grows beyond the limits is passed on uncut.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;

use super::body::Broken;
use super::inject::{Injected, Left, left_of, without};
use super::tap::Tap;

/// A larger JSON answer is passed on uncut, as is what follows a larger event of a stream.
const MAX_DOCUMENT: usize = 8 << 20;
const MAX_EVENT: usize = 1 << 20;

/// Cuts the bytes of one answer.
#[derive(Debug)]
pub(super) struct Cutter {
    injected: Injected,
    /// What has come and not yet left.
    buffer: Vec<u8>,
    /// Where the line under way begins in it.
    line: usize,
    form: Form,
    /// The last event ended with CR, so that an LF next belongs to it; whether the event was dropped.
    after_cr: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Unknown,
    Document,
    Events,
    /// Passed on as it is.
    Uncut,
}

impl Cutter {
    pub(super) const fn new(injected: Injected) -> Self {
        Self { injected, buffer: Vec::new(), line: 0, form: Form::Unknown, after_cr: None }
    }

    /// A whole answer, cut.
    pub(super) fn whole(injected: Injected, body: Bytes) -> Bytes {
        let mut cutter = Self::new(injected);
        let first = cutter.push(body);
        let rest = cutter.finish();
        match (first.is_empty(), rest.is_empty()) {
            (_, true) => first,
            (true, false) => rest,
            (false, false) => [first, rest].concat().into(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Takes the next piece; returns what may leave.
    pub(super) fn push(&mut self, piece: Bytes) -> Bytes {
        if self.form == Form::Unknown {
            self.form = match piece.iter().find(|b| !b.is_ascii_whitespace()) {
                None => return piece,
                Some(b'{') => Form::Document,
                Some(_) => Form::Events,
            };
        }
        match self.form {
            Form::Unknown | Form::Uncut => piece,
            Form::Document => {
                self.buffer.extend_from_slice(&piece);
                if self.buffer.len() > MAX_DOCUMENT { self.give_up() } else { Bytes::new() }
            }
            Form::Events => self.events(&piece),
        }
    }

    /// What is left when nothing more comes.
    pub(super) fn finish(&mut self) -> Bytes {
        let rest = Bytes::from(std::mem::take(&mut self.buffer));
        if self.form != Form::Document {
            return rest; // of an event that never ended
        }
        match left_of(&rest, self.injected, false) {
            Left::Without(cuts) => without(&rest, &cuts),
            Left::All | Left::Nothing => rest,
        }
    }

    fn give_up(&mut self) -> Bytes {
        self.form = Form::Uncut;
        self.line = 0;
        std::mem::take(&mut self.buffer).into()
    }

    fn events(&mut self, piece: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(self.buffer.len() + piece.len());
        let mut piece = piece;
        if let (Some(dropped), Some(b'\n')) = (self.after_cr, piece.first()) {
            out.extend_from_slice(if dropped { b"" } else { b"\n" });
            piece = &piece[1..];
        }
        if !piece.is_empty() {
            self.after_cr = None;
        }
        self.buffer.extend_from_slice(piece);
        let mut done = 0;
        while let Some((end, is_blank)) = line_end(&self.buffer, self.line) {
            self.line = end;
            if !is_blank {
                continue;
            }
            let event = &self.buffer[done..end];
            let dropped = cut_event(event, self.injected, &mut out);
            done = end;
            if end == self.buffer.len() && self.buffer.ends_with(b"\r") {
                self.after_cr = Some(dropped);
            }
        }
        self.buffer.drain(..done);
        self.line -= done;
        if self.buffer.len() > MAX_EVENT {
            out.extend_from_slice(&self.give_up());
        }
        out.into()
    }
}

/// Where the line that begins at `from` ends, its terminator (LF, CR, CRLF) included, and whether it is empty. A CR at
/// the very end ends an empty line only: behind others an LF may be on its way.
fn line_end(buffer: &[u8], from: usize) -> Option<(usize, bool)> {
    let at = from + memchr::memchr2(b'\n', b'\r', buffer.get(from..)?)?;
    let is_blank = at == from;
    match (buffer[at], buffer.get(at + 1)) {
        (b'\r', Some(b'\n')) => Some((at + 2, is_blank)),
        (b'\r', None) if !is_blank => None,
        _ => Some((at + 1, is_blank)),
    }
}

/// Writes what is left of an event; true if that is nothing.
fn cut_event(event: &[u8], injected: Injected, out: &mut Vec<u8>) -> bool {
    let mut data = None;
    let mut at = 0;
    while let Some((end, _)) = line_end(event, at) {
        if let Some(value) = event[at..end].strip_prefix(b"data:") {
            if data.is_some() {
                // A document over several lines; nobody writes these.
                out.extend_from_slice(event);
                return false;
            }
            let space = usize::from(value.first() == Some(&b' '));
            data = Some(at + 5 + space..end);
        }
        at = end;
    }
    let data = data.unwrap_or(0..0);
    let names: [&[u8]; 2] = [b"logprobs", b"usage"];
    // A name may be written with escapes.
    let plain = !event[data.clone()].contains(&b'\\');
    if plain && names.iter().all(|name| memchr::memmem::find(&event[data.clone()], name).is_none()) {
        out.extend_from_slice(event);
        return false;
    }
    match left_of(&event[data.clone()], injected, true) {
        Left::Nothing => return true,
        Left::All => out.extend_from_slice(event),
        Left::Without(cuts) => {
            let mut done = 0;
            for cut in cuts {
                out.extend_from_slice(&event[done..data.start + cut.start]);
                done = data.start + cut.end;
            }
            out.extend_from_slice(&event[done..]);
        }
    }
    false
}

/// A tapped answer, cut on its way to the caller; the tap has seen all of it.
#[derive(Debug)]
pub(super) struct Cutting {
    tap: Tap,
    cutter: Cutter,
    /// What follows the last bytes.
    next: VecDeque<Result<Frame<Bytes>, Broken>>,
    over: bool,
    /// What was given last must be written before an error, at which the server drops what it has not.
    written: bool,
}

impl Cutting {
    pub(super) fn new(tap: Tap, injected: Injected) -> Self {
        Self { tap, cutter: Cutter::new(injected), next: VecDeque::new(), over: false, written: false }
    }

    pub(super) fn is_end(&self) -> bool {
        self.next.is_empty() && self.cutter.is_empty() && (self.over || self.tap.is_end())
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            if matches!(self.next.front(), Some(Err(_))) && !std::mem::replace(&mut self.written, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Some(next) = self.next.pop_front() {
                return Poll::Ready(Some(next));
            }
            if self.over {
                return Poll::Ready(None);
            }
            let frame = match ready!(self.tap.poll_frame(cx)) {
                Some(Ok(frame)) => frame.into_data().map_err(Ok),
                Some(Err(broken)) => Err(Err(broken)),
                None => Ok(Bytes::new()),
            };
            self.over = self.tap.is_end() || frame.is_err();
            let mut bytes = Bytes::new();
            match frame {
                Ok(data) => bytes = self.cutter.push(data),
                Err(last) => self.next.push_back(last),
            }
            if self.over {
                let rest = self.cutter.finish();
                bytes = if bytes.is_empty() { rest } else { [bytes, rest].concat().into() };
            }
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
        }
    }
}

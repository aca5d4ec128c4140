//! From body bytes to documents: content encoding, then framing.
//!
//! What a body is, is told by its first bytes and only then by `content-type`: servers send JSON errors
//! as `text/event-stream`, streams as `application/json`, and HTML or gzip as anything.

use super::Head;
use super::encoding::Encoding;
use crate::verdict::Wire;
use crate::wire::ndjson::Ndjson;
use crate::wire::sse::{self, Sse};

/// Longest JSON body that is analysed, bytes.
pub(super) const MAX_JSON: usize = 8 << 20;
/// Longest line or event of a stream that is analysed, bytes. A chunk of logprobs takes a few kB; a
/// closing event that repeats the whole answer may take far more.
const MAX_LINE: usize = 256 << 10;
/// First bytes that tell what a body is.
const SNIFF: usize = 6;

/// One readable unit of a stream.
pub(super) enum Unit<'a> {
    /// An event's name and data.
    Event(&'a [u8], &'a [u8]),
    /// A line that is a document by itself.
    Line(&'a [u8]),
    /// A keep-alive.
    Comment,
    /// Something over a limit was dropped.
    Dropped,
}

/// What a body turned out to be, at its end.
pub(super) enum Rest {
    /// Nothing but white space.
    Empty,
    /// One JSON document, or what should be one; whether it was cut at the limit.
    Json(Vec<u8>, bool),
    /// Something else.
    Opaque,
    /// A stream; its units have been given out.
    Stream,
}

#[derive(Debug)]
enum Framing {
    Undecided(Vec<u8>),
    Sse(Sse),
    Ndjson(Ndjson),
    Json(Vec<u8>, bool),
    Opaque,
}

/// The body between two pieces of it.
#[derive(Debug)]
pub(super) struct Body {
    encoding: Encoding,
    framing: Framing,
    /// The head announced events.
    pub(super) expects_sse: bool,
    expects_lines: bool,
    /// The head announced lines.
    announced_lines: bool,
    /// Bytes as they came.
    pub(super) received: u64,
    /// A byte that is not white space has come.
    has_substance: bool,
}

impl Body {
    pub(super) fn new(head: &Head, wire: Wire, stream: bool) -> Self {
        let kind = head.content_type.as_deref().unwrap_or_default().to_ascii_lowercase();
        // Raw tensors may follow the document: not a byte of it may be lost, white space included.
        let framed = wire == Wire::KserveInfer && head.inference_header_length.is_some();
        let ollama = matches!(wire, Wire::OllamaChat | Wire::OllamaGenerate);
        let announced_lines = ["ndjson", "jsonl", "stream+json"].iter().any(|k| kind.contains(k));
        Self {
            encoding: Encoding::declared(head.content_encoding.as_deref().unwrap_or_default()),
            framing: if framed { Framing::Json(Vec::new(), false) } else { Framing::Undecided(Vec::new()) },
            expects_sse: kind.contains("event-stream"),
            expects_lines: announced_lines || (ollama && stream),
            announced_lines,
            received: 0,
            has_substance: false,
        }
    }

    /// Whether anything but white space came; of an encoded body, anything.
    pub(super) fn has_begun(&self) -> bool {
        self.has_substance || (self.received > 0 && !self.encoding.is_identity())
    }

    /// Whether the body came as a stream of events or lines.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.framing, Framing::Sse(_) | Framing::Ndjson(_))
    }

    /// Takes the next bytes. True if bytes of a whole JSON body came, white space aside.
    pub(super) fn push(&mut self, bytes: &[u8], emit: &mut dyn FnMut(Unit<'_>)) -> bool {
        self.received = self.received.saturating_add(bytes.len() as u64);
        if self.encoding.is_identity() {
            return self.plain(bytes, emit);
        }
        let mut encoding = std::mem::take(&mut self.encoding);
        let mut substance = false;
        encoding.push(bytes, &mut |plain| {
            substance |= self.plain(plain, emit);
            self.wants_more()
        });
        self.encoding = encoding;
        substance
    }

    /// Whether further bytes can change anything.
    fn wants_more(&self) -> bool {
        !matches!(self.framing, Framing::Json(_, true))
    }

    fn plain(&mut self, bytes: &[u8], emit: &mut dyn FnMut(Unit<'_>)) -> bool {
        match &mut self.framing {
            Framing::Sse(sse) => {
                sse.push(bytes, |event| emit(unit(event)));
                false
            }
            Framing::Ndjson(lines) => {
                let announced = self.announced_lines;
                lines.push(bytes, |line| emit(line_unit(line, announced)));
                false
            }
            Framing::Json(held, cut) => {
                let room = MAX_JSON - held.len();
                held.extend_from_slice(&bytes[..bytes.len().min(room)]);
                *cut |= bytes.len() > room;
                let substance = !bytes.trim_ascii().is_empty();
                self.has_substance |= substance;
                substance
            }
            Framing::Opaque => false,
            Framing::Undecided(seen) => {
                let bytes = if seen.is_empty() { bytes.trim_ascii_start() } else { bytes };
                // A first line that arrives in crumbs is not looked through again for each of them.
                let goes_on = matches!(seen.first(), Some(b'{' | b'['))
                    && seen.len() + bytes.len() <= MAX_LINE
                    && !bytes.iter().any(|b| matches!(b, b'\n' | b'\r'));
                seen.extend_from_slice(bytes);
                self.has_substance |= !seen.is_empty();
                if goes_on {
                    return false;
                }
                let seen = std::mem::take(seen);
                match self.sniff(&seen) {
                    None => {
                        self.framing = Framing::Undecided(seen);
                        false
                    }
                    Some(framing) => {
                        self.framing = framing;
                        self.plain(&seen, emit)
                    }
                }
            }
        }
    }

    /// What a body is that begins with these bytes, as soon as they tell.
    fn sniff(&self, seen: &[u8]) -> Option<Framing> {
        let seen = seen.strip_prefix(b"\xef\xbb\xbf").unwrap_or(seen).trim_ascii_start();
        let json = || Framing::Json(Vec::new(), false);
        let lines = || Framing::Ndjson(Ndjson::new(MAX_LINE));
        match seen.first()? {
            // Announced as events or lines: one JSON line among others, or one document.
            b'{' | b'[' if self.expects_sse || self.expects_lines => {
                let Some(end) = seen.iter().position(|&b| b == b'\n' || b == b'\r') else {
                    let too_long = seen.len() > MAX_LINE;
                    return too_long.then(|| if self.announced_lines { lines() } else { json() });
                };
                let is_line = matches!(seen[..end].trim_ascii_end().last(), Some(b'}' | b']'));
                return Some(match is_line {
                    true if self.expects_sse => Framing::Sse(Sse::new(MAX_LINE)),
                    true => lines(),
                    false => json(),
                });
            }
            b'{' | b'[' => return Some(json()),
            b'<' | 0x1f => return Some(Framing::Opaque),
            b':' => return Some(Framing::Sse(Sse::new(MAX_LINE))),
            _ if self.expects_sse => return Some(Framing::Sse(Sse::new(MAX_LINE))),
            _ => {}
        }
        let fields: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b"error:"];
        if fields.iter().any(|f| seen.starts_with(f)) {
            return Some(Framing::Sse(Sse::new(MAX_LINE)));
        }
        (seen.len() >= SNIFF || !fields.iter().any(|f| f.starts_with(seen))).then(json)
    }

    /// Something could not be analysed.
    pub(super) fn is_partial(&self) -> bool {
        self.encoding.is_partial
    }

    /// The declared encoding is not what the bytes are.
    pub(super) fn has_bad_encoding(&self) -> bool {
        self.encoding.is_broken
    }

    /// The encoded bytes stopped before the encoding's own end.
    pub(super) fn is_cut(&self) -> bool {
        self.encoding.is_cut()
    }

    /// Ends the body.
    pub(super) fn finish(self, emit: &mut dyn FnMut(Unit<'_>)) -> Rest {
        match self.framing {
            Framing::Sse(sse) => {
                sse.finish(|event| emit(unit(event)));
                Rest::Stream
            }
            Framing::Ndjson(lines) => {
                let announced = self.announced_lines;
                lines.finish(|line| emit(line_unit(line, announced)));
                Rest::Stream
            }
            Framing::Json(..) if !self.has_substance => Rest::Empty,
            Framing::Json(held, cut) => Rest::Json(held, cut),
            Framing::Opaque => Rest::Opaque,
            Framing::Undecided(_) if !self.has_substance => Rest::Empty,
            // A single line without its end.
            Framing::Undecided(seen) if self.expects_lines && matches!(seen.first(), Some(b'{' | b'[')) => {
                emit(line_unit(Some(seen.trim_ascii()), self.announced_lines));
                Rest::Stream
            }
            Framing::Undecided(seen) => match seen.first() {
                Some(b'{' | b'[' | 0xef) => Rest::Json(seen, false),
                _ => Rest::Opaque,
            },
        }
    }
}

/// A line is an event where lines were announced; else its content will tell.
fn line_unit(line: Option<&[u8]>, announced: bool) -> Unit<'_> {
    match line {
        None => Unit::Dropped,
        Some(line) if announced => Unit::Event(b"", line),
        Some(line) => Unit::Line(line),
    }
}

fn unit(event: sse::Event<'_>) -> Unit<'_> {
    match event {
        sse::Event::Data { name, data } => Unit::Event(name, data),
        sse::Event::Bare(line) => Unit::Line(line),
        sse::Event::Comment => Unit::Comment,
        sse::Event::TooLong => Unit::Dropped,
    }
}

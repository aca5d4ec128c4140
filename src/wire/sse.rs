//! Server-sent events out of bytes as they come.
//!
//! Line ends may be LF, CRLF, CR or a mixture, cut anywhere; `data:` may lack its space; one event may
//! have several data lines (joined by LF); comments are keep-alives. A line or event over the limit is
//! dropped and reported, and reading resumes with the next. Kinder than the standard in three things
//! seen in the wild: an event without its closing blank line counts at the end of the stream, a bare
//! JSON line is an event of its own, and `error: {…}` is an event named `error`.

/// Buffers larger than this are given back after use.
const KEPT: usize = 8 << 10;

/// One event. Bytes, since the reader of the data decides about their encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// An event with data.
    Data {
        /// The `event:` field; empty if none.
        name: &'a [u8],
        /// The data lines joined by LF.
        data: &'a [u8],
    },
    /// A comment line: a keep-alive.
    Comment,
    /// A line that began like JSON instead of a field.
    Bare(&'a [u8]),
    /// A line or event over the limit was dropped.
    TooLong,
}

/// The reader's state between two pieces of the stream.
#[derive(Debug)]
pub struct Sse {
    limit: usize,
    line: Vec<u8>,
    line_too_long: bool,
    data: Vec<u8>,
    has_data: bool,
    data_too_long: bool,
    name: Vec<u8>,
    after_cr: bool,
    started: bool,
}

impl Sse {
    /// A reader that holds at most `limit` bytes of one line and of one event's data.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            line_too_long: false,
            data: Vec::new(),
            has_data: false,
            data_too_long: false,
            name: Vec::new(),
            after_cr: false,
            started: false,
        }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8], mut emit: impl FnMut(Event<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if let Some(behind) = self.whole_event(rest, &mut emit) {
                rest = behind;
                continue;
            }
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = line_end(rest) else {
                self.keep(rest);
                return;
            };
            let (line, tail) = rest.split_at(end);
            self.after_cr = tail[0] == b'\r';
            rest = &tail[1..];
            if self.line.is_empty() && !self.line_too_long {
                self.line_done(line, &mut emit);
            } else {
                self.keep(line);
                let mut held = std::mem::take(&mut self.line);
                self.line_done(&held, &mut emit);
                held.clear();
                self.line = if held.capacity() > KEPT { Vec::new() } else { held };
            }
        }
    }

    /// Gives out an event of one data line that begins here and is here as a whole, as nearly all are, without keeping
    /// it first; what stands behind it.
    fn whole_event<'b>(&mut self, bytes: &'b [u8], emit: &mut impl FnMut(Event<'_>)) -> Option<&'b [u8]> {
        let waits = self.after_cr || self.line_too_long || self.has_data || self.data_too_long;
        let value = bytes.strip_prefix(b"data:").filter(|_| !waits && self.line.is_empty())?;
        let end = line_end(value)?;
        let (value, behind) = (&value[..end], value[end..].strip_prefix(b"\n\n")?);
        if value.len() + b"data:".len() > self.limit {
            return None;
        }
        self.started = true;
        emit(Event::Data { name: &self.name, data: value.strip_prefix(b" ").unwrap_or(value) });
        self.name.clear();
        Some(behind)
    }

    /// Ends the stream; what still waits for its line end or blank line is given out.
    pub fn finish(mut self, mut emit: impl FnMut(Event<'_>)) {
        if !self.line.is_empty() || self.line_too_long {
            let held = std::mem::take(&mut self.line);
            self.line_done(&held, &mut emit);
        }
        self.dispatch(&mut emit);
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.line_too_long || self.line.len() + piece.len() > self.limit {
            self.line_too_long = true;
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(piece);
        }
    }

    fn line_done(&mut self, line: &[u8], emit: &mut impl FnMut(Event<'_>)) {
        if std::mem::take(&mut self.line_too_long) || line.len() > self.limit {
            self.started = true;
            emit(Event::TooLong);
            return;
        }
        let line = if self.started { line } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) };
        self.started = true;
        if line.is_empty() {
            return self.dispatch(emit);
        }
        let (field, value) = match line.iter().position(|&b| b == b':') {
            Some(at) => (&line[..at], line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..])),
            None => (line, &[][..]),
        };
        match field {
            b"" => emit(Event::Comment),
            b"data" => self.add(value),
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(&value[..value.len().min(64)]);
            }
            b"error" => {
                self.name.clear();
                self.name.extend_from_slice(b"error");
                self.add(value);
            }
            _ if matches!(line[0], b'{' | b'[') => emit(Event::Bare(line)),
            _ => {}
        }
    }

    fn add(&mut self, value: &[u8]) {
        if self.data_too_long || self.data.len() + value.len() + 1 > self.limit {
            self.data_too_long = true;
            self.data = Vec::new();
            return;
        }
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(value);
    }

    fn dispatch(&mut self, emit: &mut impl FnMut(Event<'_>)) {
        if std::mem::take(&mut self.data_too_long) {
            emit(Event::TooLong);
        } else if self.has_data {
            emit(Event::Data { name: &self.name, data: &self.data });
        }
        self.has_data = false;
        self.data.clear();
        self.name.clear();
        if self.data.capacity() > KEPT {
            self.data = Vec::new();
        }
    }
}

/// Position of the first line end.
fn line_end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr2(b'\n', b'\r', bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]], limit: usize) -> Vec<String> {
        let mut out = Vec::new();
        let mut emit = |e: Event<'_>| {
            out.push(match e {
                Event::Data { name, data } => {
                    format!("{}|{}", String::from_utf8_lossy(name), String::from_utf8_lossy(data))
                }
                Event::Comment => ":".to_owned(),
                Event::Bare(line) => format!("bare {}", String::from_utf8_lossy(line)),
                Event::TooLong => "too long".to_owned(),
            });
        };
        let mut sse = Sse::new(limit);
        for piece in pieces {
            sse.push(piece, &mut emit);
        }
        sse.finish(&mut emit);
        out
    }

    #[test]
    fn every_line_end_closes_a_line_once() {
        let all: [&[u8]; 5] = [b"data: a\n\r\n", b"data: b\r\r", b"data: c\r", b"\n\r", b"\n"];
        assert_eq!(events(&all, 100), ["|a", "|b", "|c"]);
    }

    #[test]
    fn data_lines_join_and_the_space_is_optional() {
        assert_eq!(
            events(&[b"event: x\ndata:{\ndata:  1}\nid: 7\nretry: 5\nother\n\ndata\n\n"], 100),
            ["x|{\n 1}", "|"]
        );
    }

    #[test]
    fn comments_are_not_data_and_a_name_alone_is_no_event() {
        assert_eq!(events(&[b": hi\n\n:\n\nevent: ping\n\ndata: a\n\n"], 100), [":", ":", "|a"]);
    }

    #[test]
    fn a_long_line_is_dropped_and_reading_resumes() {
        let all: [&[u8]; 4] = [
            b"data: 0123456789",
            b"0123456789\n\ndata: a\n\n",
            b"data: 12345678\ndata: 1234567890\n\n",
            b"data: b\n\n",
        ];
        assert_eq!(events(&all, 16), ["too long", "|a", "too long", "|b"]);
    }

    #[test]
    fn the_last_event_counts_without_its_blank_line() {
        assert_eq!(events(&[b"data: [DONE]"], 100), ["|[DONE]"]);
        assert_eq!(events(&[b"data: [DONE]\n"], 100), ["|[DONE]"]);
    }

    #[test]
    fn bare_json_and_error_fields_are_events() {
        assert_eq!(events(&[b"{\"error\":1}\n\nerror: {}\n\n"], 100), ["bare {\"error\":1}", "error|{}"]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert_eq!(events(&[b"\xef\xbb\xbfdata: a\n\n"], 100), ["|a"]);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(text in "(data: ?[a-z]{0,12}|event: x|: c|[\r\n]|\\{1|\u{feff}){0,12}",
                                           cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
            let bytes = text.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|c| c.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(events(&pieces, 14), events(&[bytes], 14));
        }
    }
}

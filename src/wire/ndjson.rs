//! Newline-delimited JSON out of bytes as they come.
//!
//! A line is one document; blank lines are keep-alives; a line over the limit is dropped and reported,
//! and reading resumes with the next.

/// The reader's state between two pieces of the stream.
#[derive(Debug)]
pub struct Ndjson {
    limit: usize,
    line: Vec<u8>,
    too_long: bool,
}

impl Ndjson {
    /// A reader that holds at most `limit` bytes of one line.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), too_long: false }
    }

    /// Takes the next bytes; gives out each line that is not blank, `None` for one over the limit.
    pub fn push(&mut self, bytes: &[u8], mut emit: impl FnMut(Option<&[u8]>)) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&b| b == b'\n' || b == b'\r') {
            let (line, tail) = rest.split_at(end);
            rest = &tail[1..];
            self.keep(line);
            self.close(&mut emit);
        }
        self.keep(rest);
    }

    /// Ends the stream; a last line without its end counts.
    pub fn finish(mut self, mut emit: impl FnMut(Option<&[u8]>)) {
        self.close(&mut emit);
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.too_long || self.line.len() + piece.len() > self.limit {
            self.too_long = true;
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(piece);
        }
    }

    fn close(&mut self, emit: &mut impl FnMut(Option<&[u8]>)) {
        if std::mem::take(&mut self.too_long) {
            emit(None);
        } else if !self.line.trim_ascii().is_empty() {
            emit(Some(self.line.trim_ascii()));
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<Option<String>> {
        let mut out = Vec::new();
        let mut emit = |l: Option<&[u8]>| out.push(l.map(|l| String::from_utf8_lossy(l).into_owned()));
        let mut reader = Ndjson::new(8);
        for piece in pieces {
            reader.push(piece, &mut emit);
        }
        reader.finish(&mut emit);
        out
    }

    #[test]
    fn lines_come_out_whole_whatever_the_cuts() {
        let some = |s: &str| Some(s.to_owned());
        assert_eq!(
            lines(&[b"{\"a\"", b":1}\r", b"\n\n {}", b"\n[]"]),
            [some("{\"a\":1}"), some("{}"), some("[]")]
        );
        assert_eq!(lines(&[b"0123456789", b"0\n{}\n"]), [None, some("{}")]);
    }
}

//! Content encodings, undone on the judge's copy as the bytes arrive.
//!
//! What a server flushes must come out at once, so that the text of an encoded stream is seen when the
//! caller sees it. That rules out decoders that hold a window back until the end, the pure Rust ones of
//! Zstandard among them; hence the reference library. Output is handed on in small pieces and counted:
//! a body that inflates without end costs its limit and no more memory than a piece.

use brotli_decompressor::{
    BrotliDecompressStream, BrotliResult, BrotliState, SliceWrapper as _, StandardAlloc,
};
use flate2::{Decompress, FlushDecompress, Status};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

/// Most decoded bytes of a body, and of each of its encodings.
const MAX_DECODED: usize = 64 << 20;
/// Decoded bytes handed on at a time.
const PIECE: usize = 16 << 10;
/// Encodings over one another that are undone; servers use one.
const MAX_LAYERS: usize = 3;
/// Largest window of Zstandard over HTTP, as a power of two (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 23;
/// Window of deflate, as a power of two (RFC 1951).
const DEFLATE_WINDOW_LOG: u8 = 15;

/// Takes decoded bytes; false if no more are wanted.
type Give<'g> = dyn FnMut(&[u8]) -> bool + 'g;

/// Why decoding ended before the body did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The bytes are not what was declared.
    Broken,
    /// The limit is reached.
    Limit,
    /// Enough has been seen.
    Enough,
}

/// The encodings of one body.
#[derive(Debug, Default)]
pub(super) struct Encoding {
    /// The outermost first.
    layers: Vec<Layer>,
    /// Nothing further is decoded.
    stopped: bool,
    /// The declared encoding is not what the bytes are.
    pub(super) is_broken: bool,
    /// Something was not decoded: an encoding that is not known, or more than the limit.
    pub(super) is_partial: bool,
}

impl Encoding {
    /// As `content-encoding` declares it: the last named was applied last.
    pub(super) fn declared(header: &str) -> Self {
        let mut encoding = Self::default();
        for name in header.rsplit(',').map(|n| n.trim().to_ascii_lowercase()) {
            let codec = match name.as_str() {
                "" | "identity" => continue,
                "gzip" | "x-gzip" => Some(Codec::Gzip(Decompress::new_gzip(DEFLATE_WINDOW_LOG))),
                "deflate" => Some(Codec::Deflate),
                "br" => Some(Codec::Brotli(Box::new(Brotli::new()))),
                "zstd" => Zstd::new().map(|z| Codec::Zstd(Box::new(z))),
                _ => None,
            };
            match codec {
                Some(codec) if encoding.layers.len() < MAX_LAYERS => {
                    encoding.layers.push(Layer { codec, decoded: 0, ended: false, closed: false });
                }
                _ => (encoding.stopped, encoding.is_partial) = (true, true),
            }
        }
        encoding
    }

    /// Whether the bytes are the body itself.
    pub(super) fn is_identity(&self) -> bool {
        self.layers.is_empty() && !self.stopped
    }

    /// Whether the encoded bytes stopped before their own end.
    pub(super) fn is_cut(&self) -> bool {
        !self.stopped && self.layers.iter().any(|layer| !layer.ended)
    }

    /// Decodes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8], give: &mut Give<'_>) {
        if self.stopped || bytes.is_empty() {
            return;
        }
        if let Err(stop) = undo(&mut self.layers, bytes, give) {
            self.stopped = true;
            self.is_partial = stop != Stop::Enough;
            self.is_broken = stop == Stop::Broken;
        }
    }
}

fn undo(layers: &mut [Layer], bytes: &[u8], give: &mut Give<'_>) -> Result<(), Stop> {
    match layers.split_first_mut() {
        None if give(bytes) => Ok(()),
        None => Err(Stop::Enough),
        Some((outer, inner)) => outer.decode(bytes, &mut |plain| undo(inner, plain, give)),
    }
}

struct Layer {
    codec: Codec,
    decoded: usize,
    /// The encoding's own end was seen.
    ended: bool,
    /// Something else stood behind the end: no further byte is looked at.
    closed: bool,
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layer").field("decoded", &self.decoded).field("ended", &self.ended).finish()
    }
}

enum Codec {
    Gzip(Decompress),
    /// Waits for the first byte, which tells zlib from raw deflate: servers send either by this name.
    Deflate,
    Inflate(Decompress),
    Brotli(Box<Brotli>),
    Zstd(Box<Zstd>),
}

impl Layer {
    fn decode(
        &mut self,
        mut bytes: &[u8],
        give: &mut dyn FnMut(&[u8]) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if let (Codec::Deflate, Some(first)) = (&self.codec, bytes.first()) {
            self.codec = Codec::Inflate(Decompress::new(first & 0x0f == 8));
        }
        let mut out = [0; PIECE];
        let mut stood_still = false;
        loop {
            if self.ended && (bytes.is_empty() || !self.begin_again(bytes[0])) {
                return Ok(());
            }
            let step = match &mut self.codec {
                Codec::Gzip(state) | Codec::Inflate(state) => inflate(state, bytes, &mut out),
                Codec::Brotli(state) => state.step(bytes, &mut out),
                Codec::Zstd(state) => state.step(bytes, &mut out),
                Codec::Deflate => return Ok(()), // nothing came
            };
            bytes = &bytes[step.read..];
            self.ended = step.ended;
            if step.written > 0 {
                self.decoded += step.written;
                if self.decoded > MAX_DECODED {
                    return Err(Stop::Limit);
                }
                give(&out[..step.written])?;
            }
            if step.broken {
                if let Codec::Brotli(state) = &self.codec {
                    state.unwritten().chunks(PIECE).try_for_each(give)?;
                }
                return Err(Stop::Broken);
            }
            if bytes.is_empty() && step.written < PIECE {
                return Ok(());
            }
            let stands = step.read == 0 && step.written == 0;
            if stands && (stood_still || !step.ended) {
                return Err(Stop::Broken); // it would for ever
            }
            stood_still = stands;
        }
    }

    /// Readies the codec for what may follow its end: a further member of gzip, a further frame of
    /// Zstandard, each told by its first byte. Anything else behind the end belongs to nobody.
    fn begin_again(&mut self, first: u8) -> bool {
        match &mut self.codec {
            _ if self.closed => {}
            Codec::Gzip(state) if first == 0x1f => *state = Decompress::new_gzip(DEFLATE_WINDOW_LOG),
            Codec::Zstd(_) if matches!(first, 0x28 | 0x50..=0x5f) => {} // by itself
            _ => self.closed = true,
        }
        self.ended = self.closed;
        !self.closed
    }
}

/// What one call of a decoder did. What came out before a fault counts, so that the cuts of the network
/// do not decide how much is seen of a broken body.
struct Step {
    read: usize,
    written: usize,
    ended: bool,
    broken: bool,
}

#[allow(clippy::cast_possible_truncation)] // differences within one buffer
fn inflate(state: &mut Decompress, bytes: &[u8], out: &mut [u8]) -> Step {
    let (read, written) = (state.total_in(), state.total_out());
    let status = state.decompress(bytes, out, FlushDecompress::None);
    Step {
        read: (state.total_in() - read) as usize,
        written: (state.total_out() - written) as usize,
        ended: matches!(status, Ok(Status::StreamEnd)),
        broken: status.is_err(),
    }
}

/// RFC 7932, without the large windows that are none of HTTP's.
struct Brotli(BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>);

impl Brotli {
    fn new() -> Self {
        let alloc = StandardAlloc::default;
        Self(BrotliState::new_strict(alloc(), alloc(), alloc()))
    }

    fn step(&mut self, bytes: &[u8], out: &mut [u8]) -> Step {
        let (mut left, mut read, mut room, mut written, mut total) = (bytes.len(), 0, out.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut read,
            bytes,
            &mut room,
            &mut written,
            out,
            &mut total,
            &mut self.0,
        );
        let broken = matches!(result, BrotliResult::ResultFailure);
        Step { read, written, ended: matches!(result, BrotliResult::ResultSuccess), broken }
    }

    /// What was decoded before a fault and not handed out: it stays in the ring.
    fn unwritten(&self) -> &[u8] {
        let state = &self.0;
        let (Ok(size), Ok(pos)) = (u64::try_from(state.ringbuffer_size), u64::try_from(state.pos)) else {
            return &[];
        };
        let decoded = state.rb_roundtrips.saturating_mul(size).saturating_add(pos.min(size));
        let length = decoded.saturating_sub(state.partial_pos_out);
        let start = state.partial_pos_out.checked_rem(size).unwrap_or(0);
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        state.ringbuffer.slice().get(at(start)..at(start + length)).unwrap_or_default()
    }
}

/// RFC 8878 with the window of RFC 9659.
struct Zstd {
    context: DCtx<'static>,
    /// No byte of the frame has been read.
    fresh: bool,
}

impl Zstd {
    fn new() -> Option<Self> {
        let mut context = DCtx::try_create()?;
        context.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).ok()?;
        Some(Self { context, fresh: true })
    }

    fn step(&mut self, bytes: &[u8], out: &mut [u8]) -> Step {
        // A frame that is all there is decoded in one go, and where it is broken nothing comes out of it.
        let bytes = if self.fresh { &bytes[..bytes.len().min(1)] } else { bytes };
        let mut input = InBuffer::around(bytes);
        let mut output = OutBuffer::around(out);
        let hint = self.context.decompress_stream(&mut output, &mut input);
        self.fresh = hint == Ok(0);
        Step { read: input.pos(), written: output.pos(), ended: hint == Ok(0), broken: hint.is_err() }
    }
}

#[cfg(test)]
pub(super) mod tests;

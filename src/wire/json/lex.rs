//! Where white space, strings, numbers and arrays of numbers end.

use super::Kind;
use super::lanes;

/// Whether white space may be so.
#[inline]
pub(super) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Where the white space from `at` on ends.
#[inline]
pub(super) fn space(text: &[u8], mut at: usize) -> usize {
    // Nearly always there is none.
    while text.get(at).is_some_and(|b| *b <= b' ' && is_space(*b)) {
        at += 1;
    }
    at
}

/// A byte of each value in a word, and their high bits.
pub(super) const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES << 7;

/// The eight bytes from `at` on, the first lowest.
#[inline]
pub(super) fn word(text: &[u8], at: usize) -> Option<u64> {
    text.get(at..).and_then(<[u8]>::first_chunk::<8>).map(|block| u64::from_le_bytes(*block))
}

/// How many of the eight bytes are digits before the first that is none: what is no digit reaches its high bit.
#[inline]
pub(super) const fn leading_digits(word: u64) -> usize {
    let low = word ^ (ONES * b'0' as u64);
    ((low.wrapping_add(ONES * 0x76) | low) & HIGH).trailing_zeros() as usize / 8
}

/// Where the digits from `at` on end.
#[inline]
fn digits(text: &[u8], mut at: usize) -> usize {
    while let Some(word) = word(text, at) {
        let n = leading_digits(word);
        at += n;
        if n < 8 {
            return at;
        }
    }
    while matches!(text.get(at), Some(b'0'..=b'9')) {
        at += 1;
    }
    at
}

/// Where an array of nothing but digits and commas ends that begins at `start`; `None` for any other, and for one that
/// stands at the very beginning or end of the text.
pub(super) fn whole_numbers(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    if let [first, second] = *text.get(at..at + 2)?
        && (!first.is_ascii_digit() || first == b'0' && second.is_ascii_digit())
    {
        return None;
    }
    loop {
        let (stops, bad) = lanes::array(text.get(at.checked_sub(2)?..)?.first_chunk()?);
        // up to the first stop
        if bad & (stops ^ stops.wrapping_sub(1)) != 0 {
            return None;
        }
        if stops != 0 {
            let end = at + stops.trailing_zeros() as usize;
            return (text.get(end) == Some(&b']')).then_some(end + 1);
        }
        at += lanes::ARRAY;
    }
}

/// Where an array of nothing but standard numbers ends that begins at `start`.
pub(super) fn numbers(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at = space(text, at);
        at = space(text, strict_number(text, at)?);
        match text.get(at) {
            Some(b',') => at += 1,
            Some(b']') => return Some(at + 1),
            _ => return None,
        }
    }
}

/// Where the plain string ends that begins at `start`, behind its closing quote; `None` if there is anything else.
#[inline(always)]
pub(super) fn plain_string(text: &[u8], start: usize) -> Option<usize> {
    if text.get(start) != Some(&b'"') {
        return None;
    }
    let end = start + 1 + plain_length(&text[start + 1..])?;
    (text[end] == b'"').then_some(end + 1)
}

/// `null`, `true` or `false` at `at`, and where it ends.
#[inline]
pub(super) fn literal(text: &[u8], at: usize) -> Option<(Kind, usize)> {
    let four = text.get(at..)?.first_chunk::<4>()?;
    let (kind, end) = match four {
        b"null" => (Kind::Null, at + 4),
        b"true" => (Kind::True, at + 4),
        b"fals" if text.get(at + 4) == Some(&b'e') => (Kind::False, at + 5),
        _ => return None,
    };
    let goes_on = text.get(end).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    (!goes_on).then_some((kind, end))
}

/// Bytes of a string before its end, an escape or a control character; `None` if none of these comes.
#[inline(always)]
pub(super) fn plain_length(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(bytes) = text.get(at..).and_then(<[u8]>::first_chunk) {
        let stops = lanes::stops(bytes);
        if stops != 0 {
            return Some(at + stops.trailing_zeros() as usize);
        }
        at += lanes::STRING;
    }
    last_length(text, at)
}

/// The same for the last few bytes of a text, of which those before `at` are none.
fn last_length(text: &[u8], at: usize) -> Option<usize> {
    let stops = |b: &u8| matches!(b, b'"' | b'\\' | ..=0x1f);
    text[at..].iter().position(stops).map(|rest| at + rest)
}

/// Where a number by the standard's grammar ends that begins at `start`.
#[inline]
pub(super) fn strict_number(text: &[u8], start: usize) -> Option<usize> {
    let whole = start + usize::from(text.get(start) == Some(&b'-'));
    let mut end = digits(text, whole);
    if end == whole || (end > whole + 1 && text[whole] == b'0') {
        return None;
    }
    if text.get(end) == Some(&b'.') {
        let fraction = end + 1;
        end = digits(text, fraction);
        if end == fraction {
            return None;
        }
    }
    if let Some(b'e' | b'E') = text.get(end) {
        let exponent = end + 1 + usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        end = digits(text, exponent);
        if end == exponent {
            return None;
        }
    }
    Some(end)
}

/// Where a number by the standard's grammar ends that begins at `start`, if nothing goes on behind it.
#[inline]
pub(super) fn number_end(text: &[u8], start: usize) -> Option<usize> {
    let end = strict_number(text, start)?;
    matches!(text.get(end), Some(b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t')).then_some(end)
}

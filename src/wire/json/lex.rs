//! Where white space, strings, numbers and arrays of numbers end.

use super::Kind;

/// Whether white space may be so.
#[inline]
pub(super) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Where the white space from `at` on ends.
#[inline]
pub(super) fn space(text: &[u8], mut at: usize) -> usize {
    while text.get(at).is_some_and(|b| is_space(*b)) {
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

/// All bits of a byte, or none.
#[inline]
const fn mark(on: bool) -> u8 {
    if on { 0xff } else { 0 }
}

/// Where an array of nothing but digits and commas ends that begins at `start`; `None` for any other, and for one that
/// stands at the very beginning or end of the text.
///
/// Sixteen bytes at a time, each beside the two before it, in the vector units: where a number ends cannot be foreseen,
/// and a wrong guess for each costs more than the rest.
#[inline]
pub(super) fn whole_numbers(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        let bytes = text.get(at.checked_sub(2)?..)?.first_chunk::<18>()?;
        let (mut stops, mut bad) = ([0; 16], [0; 16]);
        for i in 0..16 {
            let [two_back, one_back, byte] = [bytes[i], bytes[i + 1], bytes[i + 2]];
            let digit = mark(byte.wrapping_sub(b'0') <= 9);
            let first = mark(one_back == b',') | mark(one_back == b'[');
            let second = (mark(two_back == b',') | mark(two_back == b'[')) & mark(one_back == b'0');
            stops[i] = !(digit | mark(byte == b','));
            bad[i] = first & !digit | second & digit; // no number, or 01
        }
        let (stops, bad) = (u128::from_le_bytes(stops), u128::from_le_bytes(bad));
        // up to the first stop
        if bad & (stops ^ stops.wrapping_sub(1)) != 0 {
            return None;
        }
        if stops != 0 {
            let end = at + stops.trailing_zeros() as usize / 8;
            return (text.get(end) == Some(&b']')).then_some(end + 1);
        }
        at += 16;
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
///
/// Eight at a time: a byte less than n borrows from its own high bit alone, so that the lowest bit that is set stands
/// at the first hit (H. S. Warren, "Hacker's Delight", 2nd ed., §6-1).
#[inline(always)]
pub(super) fn plain_length(text: &[u8]) -> Option<usize> {
    let below = |word: u64, n: u64| word.wrapping_sub(ONES * n) & !word;
    let mut at = 0;
    while let Some(word) = word(text, at) {
        let (quote, escape) = (word ^ (ONES * u64::from(b'"')), word ^ (ONES * u64::from(b'\\')));
        let stops = (below(quote, 1) | below(escape, 1) | below(word, 0x20)) & HIGH;
        if stops != 0 {
            return Some(at + stops.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
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

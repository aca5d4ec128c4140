//! Where white space, strings and numbers end.

/// Where the white space from `at` on ends.
#[inline]
pub(super) fn space(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

/// A byte of each value in a word, and their high bits.
const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES << 7;

/// The eight bytes from `at` on, the first lowest.
#[inline]
fn word(text: &[u8], at: usize) -> Option<u64> {
    text.get(at..).and_then(<[u8]>::first_chunk::<8>).map(|block| u64::from_le_bytes(*block))
}

/// How many of the eight bytes are digits before the first that is none: what is no digit reaches its high bit.
#[inline]
const fn leading_digits(word: u64) -> usize {
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

/// Appends the digits that `text` begins with to `number`, which may wrap; how many there were. Eight digits are three
/// multiplications (D. Lemire, "Quickly parsing eight digits", 2018).
#[inline]
pub(super) fn take_digits(text: &[u8], number: &mut u64) -> usize {
    let mut at = 0;
    while let Some(word) = word(text, at).filter(|word| leading_digits(*word) == 8) {
        let pairs = (word ^ (ONES * u64::from(b'0'))).wrapping_mul(10 << 8 | 1) >> 8;
        let fours = (pairs & 0x00ff_00ff_00ff_00ff).wrapping_mul(100 << 16 | 1) >> 16;
        let eight = (fours & 0x0000_ffff_0000_ffff).wrapping_mul(10_000 << 32 | 1) >> 32;
        *number = number.wrapping_mul(100_000_000).wrapping_add(eight);
        at += 8;
    }
    while let Some(digit @ b'0'..=b'9') = text.get(at) {
        *number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        at += 1;
    }
    at
}

/// High bits of the bytes that are `byte`, each for itself (Warren, as below, §6-1).
#[inline]
const fn equal(word: u64, byte: u8) -> u64 {
    let differs = word ^ (ONES * byte as u64);
    !(((differs & !HIGH) + (ONES * 0x7f)) | differs) & HIGH
}

/// Where an array of nothing but digits and commas ends that begins at `start`; `None` for any other, and for one that
/// stands at the very end of the text.
///
/// Eight bytes at a time and each beside the two before it, since where a number ends cannot be foreseen and a wrong
/// guess for each costs more than the rest.
#[inline]
pub(super) fn whole_numbers(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    let mut before = u64::from(b',');
    loop {
        let word = word(text, at)?;
        let one_back = word << 8 | before & 0xff;
        let two_back = word << 16 | (before & 0xff) << 8 | before >> 8;
        let low = word ^ (ONES * u64::from(b'0'));
        let other = (((low & !HIGH) + ONES * 0x76) | low) & HIGH; // than a digit
        let comma = equal(word, b',');
        let behind_comma = equal(one_back, b',');
        let behind_zero = equal(one_back, b'0') & equal(two_back, b',');
        let bad = (other & !comma) | (comma & behind_comma) | (!other & behind_zero);
        let end = equal(word, b']');
        // what stands before the end: all of it if there is none
        if bad & (end & end.wrapping_neg()).wrapping_sub(1) != 0 {
            return None;
        }
        if end != 0 {
            let n = end.trailing_zeros() as usize / 8;
            return (behind_comma >> (8 * n) & 0x80 == 0).then_some(at + n + 1);
        }
        before = word >> 56 | (word >> 48 & 0xff) << 8;
        at += 8;
    }
}

/// Bytes of a string before its end, an escape or a control character; `None` if none of these comes.
///
/// Eight at a time: a byte less than n borrows from its own high bit alone, so that the lowest bit that is set stands
/// at the first hit (H. S. Warren, "Hacker's Delight", 2nd ed., §6-1).
#[inline]
pub(super) fn plain_length(text: &[u8]) -> Option<usize> {
    let below = |word: u64, n: u64| word.wrapping_sub(ONES * n) & !word & HIGH;
    let mut at = 0;
    while let Some(word) = word(text, at) {
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let escape = below(word ^ (ONES * u64::from(b'\\')), 1);
        let hits = quote | escape | below(word, 0x20);
        if hits != 0 {
            return Some(at + hits.trailing_zeros() as usize / 8);
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

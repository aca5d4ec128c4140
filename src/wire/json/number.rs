//! What a number is worth.

use super::lanes;
use super::lex::{ONES, leading_digits, strict_number, word};

/// So many digits an unsigned word always holds.
const MOST_DIGITS: usize = 19;
/// Eight of the digit 0.
const ZEROS: u64 = ONES * b'0' as u64;
const TENS: [u64; 17] = {
    let mut tens = [1; 17];
    let mut i = 1;
    while i < tens.len() {
        tens[i] = tens[i - 1] * 10;
        i += 1;
    }
    tens
};
const POWERS: [f64; MOST_DIGITS + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19,
];

/// A number as loosely as it may be written; `None` if it is none.
#[inline]
pub(super) fn loose(token: &[u8]) -> Option<f64> {
    // Fifteen digits are less than 2^53, and their quotient by a power of ten is rounded once.
    if let Some(number) = decimal(token, 15) {
        return Some(number);
    }
    // The standard library reads every form meant here: signs, no digit on one side, nan, inf, infinity.
    std::str::from_utf8(token).ok()?.parse().ok()
}

/// The elements of an array of numbers, brackets included; of another array none but `None` is sure.
pub(in crate::wire) fn list(array: &[u8]) -> impl Iterator<Item = Option<f64>> + use<'_> {
    let inside = array.strip_prefix(b"[").unwrap_or(array);
    let inside = inside.strip_suffix(b"]").unwrap_or(inside);
    inside.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|t| !t.is_empty()).map(loose)
}

/// A number in a hurry: two roundings instead of one, so that the last bit may be another than [`loose`]'s.
#[inline]
pub(super) fn rough_token(token: &[u8]) -> Option<f64> {
    decimal(token, MOST_DIGITS).or_else(|| loose(token))
}

/// The standard number that `text` has at `start`, as [`rough_token`] reads it, and where it ends.
#[inline]
pub(super) fn rough(text: &[u8], start: usize) -> Option<(f64, usize)> {
    fixed(text, start).map(|(number, end)| (number.value(), end)).or_else(|| other(text, start))
}

/// With an exponent, with very many digits, or near the end of the text.
#[cold]
fn other(text: &[u8], start: usize) -> Option<(f64, usize)> {
    let end = strict_number(text, start)?;
    Some((rough_token(&text[start..end])?, end))
}

/// A number before it is divided by a power of ten. All else is known of twenty numbers while one is divided: that is
/// done later, for all of them together.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    digits: f64,
    power: f64,
}

impl Decimal {
    /// No number.
    pub const NONE: Self = Self { digits: f64::NAN, power: 1.0 };

    /// The number itself.
    #[inline]
    #[must_use]
    pub const fn value(self) -> f64 {
        self.digits / self.power
    }
}

impl From<f64> for Decimal {
    fn from(digits: f64) -> Self {
        Self { digits, power: 1.0 }
    }
}

/// One below zero with a point, one or two digits before it and no exponent, as logprobs are. How many digits its
/// fraction has decides nothing but shifts, since no guess at it would be right; what stands before hardly changes from
/// one to the next.
#[inline(always)]
pub(super) fn fixed(text: &[u8], start: usize) -> Option<(Decimal, usize)> {
    let bytes = text.get(start..)?.first_chunk::<WINDOW>()?;
    let digit = |i: usize| u64::from(bytes[i] - b'0');
    let (Decimal { digits, power }, length) = match bytes {
        [b'-', b'0'..=b'9', b'.', ..] => fraction::<3>(bytes, digit(1))?,
        [b'-', b'1'..=b'9', b'0'..=b'9', b'.', ..] => fraction::<4>(bytes, digit(1) * 10 + digit(2))?,
        _ => return None,
    };
    Some((Decimal { digits: -digits, power }, start + length))
}

/// A sign, two digits, the point, sixteen digits, two more and what comes behind.
const WINDOW: usize = 23;

/// The value and the length of a number whose fraction begins at `FROM`, behind a whole part of this value.
#[inline(always)]
fn fraction<const FROM: usize>(bytes: &[u8; WINDOW], whole: u64) -> Option<(Decimal, usize)> {
    let (digits, mut count) = lanes::digits(bytes[FROM..].first_chunk()?);
    // What is no digit goes; zeros come in front.
    let digits = digits.checked_shl(128 - 8 * count as u32)?;
    let (first, second) = (eight_digits(digits as u64), eight_digits((digits >> 64) as u64));
    let mut mantissa = whole * TENS[count] + first * TENS[8] + second;
    // A double has seventeen digits; zeros may stand before them.
    while (16..18).contains(&count) && bytes[FROM + count].is_ascii_digit() && mantissa < TENS[16] * 10 {
        mantissa = mantissa * 10 + u64::from(bytes[FROM + count] - b'0');
        count += 1;
    }
    if matches!(bytes[FROM + count], b'0'..=b'9' | b'e' | b'E') {
        return None;
    }
    Some((Decimal { digits: mantissa.cast_signed() as f64, power: POWERS[count] }, FROM + count))
}

/// Eight digits, the first lowest, in three multiplications (D. Lemire, "Quickly parsing eight digits", 2018).
#[inline]
const fn eight_digits(digits: u64) -> u64 {
    let pairs = digits.wrapping_mul(10 << 8 | 1) >> 8;
    let fours = (pairs & 0x00ff_00ff_00ff_00ff).wrapping_mul(100 << 16 | 1) >> 16;
    (fours & 0x0000_ffff_0000_ffff).wrapping_mul(10_000 << 32 | 1) >> 32
}

/// At most `most` digits (up to 19) with at most one point; `None` for all else. Of two exact doubles one division
/// rounds correctly (W. D. Clinger, "How to read floating point numbers accurately", 1990).
#[inline]
fn decimal(token: &[u8], most: usize) -> Option<f64> {
    let (negative, digits) = match token.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, token),
    };
    let mut mantissa = 0;
    let whole = take_digits(digits, &mut mantissa);
    let fraction = match digits.get(whole) {
        None => 0,
        Some(b'.') => take_digits(&digits[whole + 1..], &mut mantissa),
        _ => return None,
    };
    let count = whole + fraction;
    let is_all = digits.len() == count + usize::from(whole < digits.len());
    if !is_all || count == 0 || count > most {
        return None;
    }
    let value = mantissa as f64 / POWERS[fraction];
    Some(if negative { -value } else { value })
}

/// Appends the digits that `text` begins with to `number`, which may wrap; how many there were.
#[inline]
fn take_digits(text: &[u8], number: &mut u64) -> usize {
    let mut at = 0;
    while let Some(word) = word(text, at).filter(|word| leading_digits(*word) == 8) {
        let eight = eight_digits(word ^ ZEROS);
        *number = number.wrapping_mul(100_000_000).wrapping_add(eight);
        at += 8;
    }
    while let Some(digit @ b'0'..=b'9') = text.get(at) {
        *number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        at += 1;
    }
    at
}

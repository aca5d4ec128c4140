//! Many bytes at once: a bit for each that is so, the first lowest.
//!
//! How long a string or a number is cannot be foreseen, and a wrong guess costs more than looking at all bytes it
//! might have (G. Langdale, D. Lemire, "Parsing gigabytes of JSON per second", VLDB Journal 28, 2019, §3).

use wide::u8x16;

/// So many bytes of a string are looked at together.
pub(super) const STRING: usize = 16;

/// Where a string might stop among these bytes: a quote, a backslash or a control character.
#[inline(always)]
pub(super) fn stops(bytes: &[u8; STRING]) -> u32 {
    let lanes = u8x16::new(*bytes);
    let control = at_most(lanes, 0x1f);
    (lanes.simd_eq(u8x16::splat(b'"')) | lanes.simd_eq(u8x16::splat(b'\\')) | control).to_bitmask()
}

/// So many bytes of an array of numbers are looked at together, each beside the two before it.
pub(super) const ARRAY: usize = 32;

/// Where an array of whole numbers might stop among all but the first two of these bytes: at what is neither digit nor
/// comma; and where it is none: at a comma or an end behind a comma, at a digit behind a 0 behind a comma.
#[inline(always)]
pub(super) fn array(bytes: &[u8; ARRAY + 2]) -> (u32, u32) {
    let [low, high] = [
        half(sixteen::<0>(bytes), sixteen::<1>(bytes), sixteen::<2>(bytes)),
        half(sixteen::<16>(bytes), sixteen::<17>(bytes), sixteen::<18>(bytes)),
    ];
    (!(low.0 | high.0 << 16), low.1 | high.1 << 16)
}

#[inline(always)]
fn half(two_back: u8x16, one_back: u8x16, this: u8x16) -> (u32, u32) {
    let is = |lanes: u8x16, byte: u8| lanes.simd_eq(u8x16::splat(byte));
    let digit = at_most(this - u8x16::splat(b'0'), 9);
    let led = is(two_back, b',') & is(one_back, b'0') & digit;
    let bad = led | (is(one_back, b',') & !digit);
    ((digit | is(this, b',')).to_bitmask(), bad.to_bitmask())
}

#[inline(always)]
fn sixteen<const FROM: usize>(bytes: &[u8; ARRAY + 2]) -> u8x16 {
    u8x16::new(*bytes[FROM..].first_chunk().expect("FROM is at most ARRAY - 14"))
}

/// The worth of the digits that these bytes begin with, each in its own byte, and how many there are.
#[inline(always)]
pub(super) fn digits(bytes: &[u8; 16]) -> (u128, usize) {
    let worth = u8x16::new(*bytes) - u8x16::splat(b'0');
    let count = (!at_most(worth, 9).to_bitmask()).trailing_zeros();
    (u128::from_le_bytes(worth.to_array()), count as usize)
}

#[inline(always)]
fn at_most(lanes: u8x16, most: u8) -> u8x16 {
    lanes.min(u8x16::splat(most)).simd_eq(lanes)
}

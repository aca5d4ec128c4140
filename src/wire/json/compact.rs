//! An alternative that is written as nearly all are: the three members in the order of the API or in that of the
//! alphabet, nothing between them, a plain token of at most 31 bytes, a logprob with a point, bytes in at most 64
//! characters.
//!
//! Such a one fits into a window of fixed size, and nothing in it can stand outside: there is nothing to be checked but
//! the text itself.

use super::alternatives::{Entry, Span};
use super::lanes::{self, ARRAY, STRING};
use super::number::fixed;

/// Names and signs (34), an array (64), a number (22), a string (31), and what is looked at together at their ends.
const WINDOW: usize = 192;

/// Adds the alternative that `text` has at `at`; where it ends.
#[inline(always)]
pub(super) fn take(text: &[u8], at: usize, entries: &mut Vec<Entry>) -> Option<usize> {
    let rest = text.get(at..)?;
    match rest.first_chunk() {
        Some(window) => read(window, at, entries),
        None => last(rest, at, entries),
    }
}

/// One near the text's end. Nulls stand in no number and in no string.
fn last(rest: &[u8], at: usize, entries: &mut Vec<Entry>) -> Option<usize> {
    let mut window = [0; WINDOW];
    window[..rest.len()].copy_from_slice(rest);
    read(&window, at, entries)
}

/// Adds the alternative that the window begins with, which itself begins at `start`; where it ends.
#[inline(always)]
fn read(window: &[u8; WINDOW], start: usize, entries: &mut Vec<Entry>) -> Option<usize> {
    let (token, bytes, logprob, end);
    if starts(window, 0, b"{\"token\":\"") {
        token = (10, string(window, 10)?);
        let at = behind(window, token.1, b"\",\"logprob\":")?;
        let (value, at) = fixed(window, at)?;
        logprob = value;
        let at = behind(window, at, b",\"bytes\":[")?;
        bytes = (at - 1, array(window, at)? + 1);
        end = behind(window, bytes.1 - 1, b"]}")?;
    } else {
        let at = behind(window, 0, b"{\"bytes\":[")?;
        bytes = (at - 1, array(window, at)? + 1);
        let at = behind(window, bytes.1 - 1, b"],\"logprob\":")?;
        let (value, at) = fixed(window, at)?;
        logprob = value;
        let at = behind(window, at, b",\"token\":\"")?;
        token = (at, string(window, at)?);
        end = behind(window, token.1, b"\"}")?;
    }
    let span = |(from, to): (usize, usize)| Span::new(start + from, start + to);
    // Put where it stays: read again at once from elsewhere, it would have to wait for its own writing.
    entries.push(Entry { token: span(token), bytes: span(bytes), logprob });
    Some(start + end)
}

#[inline(always)]
fn starts<const N: usize>(window: &[u8; WINDOW], at: usize, with: &[u8; N]) -> bool {
    window[at..at + N] == *with
}

/// What stands behind `word` if that stands at `at`.
#[inline(always)]
fn behind<const N: usize>(window: &[u8; WINDOW], at: usize, word: &[u8; N]) -> Option<usize> {
    starts(window, at, word).then_some(at + N)
}

/// Where a string that begins at `at` stops.
#[inline(always)]
fn string(window: &[u8; WINDOW], at: usize) -> Option<usize> {
    for at in [at, at + STRING] {
        let stops = lanes::stops(window[at..].first_chunk()?);
        if stops != 0 {
            return Some(at + stops.trailing_zeros() as usize % STRING);
        }
    }
    None
}

/// Where an array of whole numbers stops whose first begins at `at`.
#[inline(always)]
fn array(window: &[u8; WINDOW], at: usize) -> Option<usize> {
    if !window[at].is_ascii_digit() || window[at] == b'0' && window[at + 1].is_ascii_digit() {
        return None;
    }
    for at in [at, at + ARRAY] {
        let (stops, bad) = lanes::array(window[at - 2..].first_chunk()?);
        // up to the first stop
        if bad & (stops ^ stops.wrapping_sub(1)) != 0 {
            return None;
        }
        if stops != 0 {
            return Some(at + stops.trailing_zeros() as usize % ARRAY);
        }
    }
    None
}

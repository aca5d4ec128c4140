//! `[fallback]`, and how much of the traffic one fallback target takes.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::units::Ms;

/// All of it: a limit is for those who know how much the smaller model can take.
const MAX_SHARE: f64 = 1.0;
/// The share is told over a minute.
const WINDOW: Ms = Ms::from_secs(60);
/// A target whose tier was left because it failed is left alone for a quarter of a minute, so that requests
/// do not go to and fro between two tiers.
const COOL_DOWN: Ms = Ms::from_secs(15);
/// Below so many requests in the window one is already too large a share.
const LEAST: u32 = 10;
const SLICES: u64 = 10;

/// `[fallback]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawFallback", into = "RawFallback")]
pub struct FallbackParams(RawFallback);

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawFallback {
    max_share: f64,
    window: Ms,
    cool_down: Ms,
    on_content_filter: bool,
    trim_oldest: bool,
}

impl Default for RawFallback {
    fn default() -> Self {
        Self {
            max_share: MAX_SHARE,
            window: WINDOW,
            cool_down: COOL_DOWN,
            on_content_filter: false,
            trim_oldest: false,
        }
    }
}

/// Why `[fallback]` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FallbackError {
    /// Not a share.
    #[error("max_share: must be a share above 0 and at most 1; leave the tier out to send nothing there")]
    Share,
    /// A window that holds nothing.
    #[error("window: must be at least 1s")]
    Window,
}

impl TryFrom<RawFallback> for FallbackParams {
    type Error = FallbackError;

    fn try_from(raw: RawFallback) -> Result<Self, FallbackError> {
        if !raw.max_share.is_finite() || raw.max_share <= 0.0 || raw.max_share > 1.0 {
            return Err(FallbackError::Share);
        }
        if raw.window < Ms::from_secs(1) {
            return Err(FallbackError::Window);
        }
        Ok(Self(raw))
    }
}

impl From<FallbackParams> for RawFallback {
    fn from(params: FallbackParams) -> Self {
        params.0
    }
}

impl FallbackParams {
    /// Largest share of a route's requests that one fallback target takes; `None` for all.
    #[must_use]
    pub fn max_share(&self) -> Option<f64> {
        (self.0.max_share < 1.0).then_some(self.0.max_share)
    }

    /// The share is told over this time, milliseconds.
    #[must_use]
    pub const fn window_ms(&self) -> u64 {
        self.0.window.as_millis()
    }

    /// A target whose tier was left cools down for so long, milliseconds.
    #[must_use]
    pub const fn cool_down_ms(&self) -> u64 {
        self.0.cool_down.as_millis()
    }

    /// Whether the oldest turns of a conversation may be cut where only a tier with a shorter context can answer.
    #[must_use]
    pub const fn trims_oldest(&self) -> bool {
        self.0.trim_oldest
    }

    /// Whether an answer that a filter withheld is asked for elsewhere.
    #[must_use]
    pub const fn on_content_filter(&self) -> bool {
        self.0.on_content_filter
    }
}

/// Requests of one route, and which of them fell back where.
#[derive(Clone, Debug)]
pub struct Share {
    slice_ms: u64,
    slices: VecDeque<Slice>,
}

#[derive(Clone, Debug, Default)]
struct Slice {
    index: u64,
    requests: u32,
    fallbacks: Vec<(usize, u32)>,
}

impl Share {
    /// Nothing has been counted.
    #[must_use]
    pub fn new(window_ms: u64) -> Self {
        Self { slice_ms: (window_ms / SLICES).max(1), slices: VecDeque::new() }
    }

    /// A request came.
    pub fn request(&mut self, now: Timestamp) {
        self.slice(now).requests += 1;
    }

    /// A request went to this target as a fallback.
    pub fn fallback(&mut self, now: Timestamp, target: usize) {
        let slice = self.slice(now);
        match slice.fallbacks.iter_mut().find(|(t, _)| *t == target) {
            Some((_, n)) => *n += 1,
            None => slice.fallbacks.push((target, 1)),
        }
    }

    /// Whether one more would still be within `most` of the window's requests.
    #[must_use]
    pub fn allows(&self, now: Timestamp, target: usize, most: f64) -> bool {
        let index = now.as_millis() / self.slice_ms;
        let in_window = || self.slices.iter().filter(|s| s.index + SLICES > index);
        let requests: u32 = in_window().map(|s| s.requests).sum();
        let taken: u32 =
            in_window().flat_map(|s| &s.fallbacks).filter(|(t, _)| *t == target).map(|(_, n)| *n).sum();
        f64::from(taken + 1) <= most * f64::from(requests.max(LEAST)) + 1e-9
    }

    fn slice(&mut self, now: Timestamp) -> &mut Slice {
        let index = now.as_millis() / self.slice_ms;
        let newest = self.slices.back().map_or(0, |s| s.index);
        if newest > index + 2 * SLICES {
            self.slices.clear(); // the clock was corrected
        }
        while self.slices.front().is_some_and(|s| s.index + SLICES <= index) {
            self.slices.pop_front();
        }
        if self.slices.back().is_none_or(|s| s.index < index) {
            self.slices.push_back(Slice { index, ..Slice::default() });
        }
        let at = self.slices.len() - 1;
        &mut self.slices[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_fallback_takes_its_share_of_the_window_and_no_more() {
        let mut share = Share::new(60_000);
        let mut sent = 0;
        for i in 0..1_000u64 {
            share.request(at(i * 50));
            if share.allows(at(i * 50), 1, 0.4) {
                share.fallback(at(i * 50), 1);
                sent += 1;
            }
        }
        assert_eq!(sent, 400);
        assert!(share.allows(at(50_000), 2, 0.4), "each target has its own");
        assert!(share.allows(at(200_000), 1, 0.4), "the window has passed");
        assert!(share.allows(at(0), 1, 0.4) == share.allows(at(0), 1, 0.4), "reading changes nothing");
        share.request(at(300_000));
        share.request(at(1)); // a clock set back
        assert!(share.allows(at(1), 1, 0.4));
    }

    #[test]
    fn a_share_of_nothing_is_refused() {
        for text in ["max_share = 0.0", "max_share = 1.5", "max_share = nan", "window = \"0s\""] {
            assert!(toml::from_str::<FallbackParams>(text).is_err(), "{text}");
        }
    }
}

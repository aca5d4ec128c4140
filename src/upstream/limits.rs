//! `[limits]`: how long a call may take and how large it may be.
//!
//! Every limit can be set for all, per target and per route; the nearer word wins. The defaults follow
//! what inference servers do: a prompt may be read for a minute before the headers come, but once a
//! stream stands, ten seconds without a first word or thirty without a next one mean that it hangs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{ByteSize, Ms};

/// A loaded accept queue still answers within seconds; a host that is gone does not.
const CONNECT: Ms = Ms::from_secs(5);
/// A long prompt is read before the headers are sent.
const HEADERS: Ms = Ms::from_secs(60);
/// Three times a slow first token of a large model; a target that was calibrated to be slower gets three times its
/// own 99th percentile.
const FIRST_TEXT: Ms = Ms::from_secs(10);
/// Longer than any pause between tokens under load.
const STREAM_IDLE: Ms = Ms::from_secs(30);
/// The longest answer worth waiting for.
const TOTAL: Ms = Ms::from_secs(300);
/// A prompt with several pictures in base64.
const MAX_REQUEST_BYTES: ByteSize = ByteSize::mib(32);
/// Generous for tokens and baggage, too small to fill memory.
const MAX_HEADER_BYTES: ByteSize = ByteSize::kib(64);

/// Limits that hold for one call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawLimits", into = "RawLimits")]
pub struct Limits {
    connect: Ms,
    headers: Ms,
    first_text: Option<Ms>,
    stream_idle: Ms,
    total: Ms,
    min_tokens_per_second: f64,
    max_request_bytes: ByteSize,
    max_header_bytes: ByteSize,
}

/// Why limits cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// A limit that nothing can meet.
    #[error("{0}: must be longer than nothing")]
    Zero(&'static str),
    /// Not a rate.
    #[error("min_tokens_per_second: must be a number of at least 0, where 0 switches the limit off")]
    Rate,
    /// Smaller than HTTP can work with.
    #[error("max_header_bytes: must be at least 8KiB")]
    HeaderBytes,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawLimits {
    connect: Ms,
    headers: Ms,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_text: Option<Ms>,
    stream_idle: Ms,
    total: Ms,
    min_tokens_per_second: f64,
    max_request_bytes: ByteSize,
    max_header_bytes: ByteSize,
}

impl Default for RawLimits {
    fn default() -> Self {
        Limits::default().into()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: CONNECT,
            headers: HEADERS,
            first_text: None,
            stream_idle: STREAM_IDLE,
            total: TOTAL,
            min_tokens_per_second: 0.0,
            max_request_bytes: MAX_REQUEST_BYTES,
            max_header_bytes: MAX_HEADER_BYTES,
        }
    }
}

impl From<Limits> for RawLimits {
    fn from(l: Limits) -> Self {
        Self {
            connect: l.connect,
            headers: l.headers,
            first_text: l.first_text,
            stream_idle: l.stream_idle,
            total: l.total,
            min_tokens_per_second: l.min_tokens_per_second,
            max_request_bytes: l.max_request_bytes,
            max_header_bytes: l.max_header_bytes,
        }
    }
}

impl TryFrom<RawLimits> for Limits {
    type Error = LimitsError;

    fn try_from(raw: RawLimits) -> Result<Self, LimitsError> {
        for (name, limit) in [
            ("connect", raw.connect),
            ("headers", raw.headers),
            ("first_text", raw.first_text.unwrap_or(FIRST_TEXT)),
            ("stream_idle", raw.stream_idle),
            ("total", raw.total),
        ] {
            if limit.as_millis() == 0 {
                return Err(LimitsError::Zero(name));
            }
        }
        if raw.max_request_bytes.as_u64() == 0 {
            return Err(LimitsError::Zero("max_request_bytes"));
        }
        if raw.max_header_bytes < ByteSize::kib(8) {
            return Err(LimitsError::HeaderBytes);
        }
        if !raw.min_tokens_per_second.is_finite() || raw.min_tokens_per_second < 0.0 {
            return Err(LimitsError::Rate);
        }
        Ok(Self {
            connect: raw.connect,
            headers: raw.headers,
            first_text: raw.first_text,
            stream_idle: raw.stream_idle,
            total: raw.total,
            min_tokens_per_second: raw.min_tokens_per_second,
            max_request_bytes: raw.max_request_bytes,
            max_header_bytes: raw.max_header_bytes,
        })
    }
}

impl Limits {
    /// Until the connection stands.
    #[must_use]
    pub const fn connect(&self) -> Duration {
        self.connect.as_duration()
    }

    /// Until the response headers.
    #[must_use]
    pub const fn headers(&self) -> Duration {
        self.headers.as_duration()
    }

    /// Until the first text of a stream.
    #[must_use]
    pub fn first_text(&self) -> Duration {
        self.first_text.unwrap_or(FIRST_TEXT).as_duration()
    }

    /// Whether somebody wrote `first_text`; what was learned then has no say.
    #[must_use]
    pub const fn names_first_text(&self) -> bool {
        self.first_text.is_some()
    }

    /// These limits for a target whose first text is worth waiting for so many milliseconds, as its calibration
    /// found; never less than the default.
    #[must_use]
    pub fn learned(mut self, first_text_ms: Option<u64>) -> Self {
        if let (None, Some(ms)) = (self.first_text, first_text_ms) {
            self.first_text = Some(Ms(ms).max(FIRST_TEXT));
        }
        self
    }

    /// Between two pieces of progress of a stream.
    #[must_use]
    pub const fn stream_idle(&self) -> Duration {
        self.stream_idle.as_duration()
    }

    /// Whole duration of one try.
    #[must_use]
    pub const fn total(&self) -> Duration {
        self.total.as_duration()
    }

    /// Least output tokens a second; 0 is no limit.
    #[must_use]
    pub const fn min_tokens_per_second(&self) -> f64 {
        self.min_tokens_per_second
    }

    /// Largest request body, bytes.
    #[must_use]
    pub fn max_request_bytes(&self) -> usize {
        self.max_request_bytes.as_usize()
    }

    /// Largest request head, bytes.
    #[must_use]
    pub fn max_header_bytes(&self) -> usize {
        self.max_header_bytes.as_usize()
    }

    /// These limits with what a target or route says differently.
    #[must_use]
    pub fn with(mut self, patch: &LimitsPatch) -> Self {
        self.connect = patch.connect.unwrap_or(self.connect);
        self.headers = patch.headers.unwrap_or(self.headers);
        self.first_text = patch.first_text.or(self.first_text);
        self.stream_idle = patch.stream_idle.unwrap_or(self.stream_idle);
        self.total = patch.total.unwrap_or(self.total);
        self.min_tokens_per_second = patch.min_tokens_per_second.unwrap_or(self.min_tokens_per_second);
        self.max_request_bytes = patch.max_request_bytes.unwrap_or(self.max_request_bytes);
        self
    }
}

/// What one target or route says differently; `[target.limits]`, `[route.limits]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawPatch", into = "RawPatch")]
pub struct LimitsPatch {
    connect: Option<Ms>,
    headers: Option<Ms>,
    first_text: Option<Ms>,
    stream_idle: Option<Ms>,
    total: Option<Ms>,
    min_tokens_per_second: Option<f64>,
    max_request_bytes: Option<ByteSize>,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawPatch {
    #[serde(skip_serializing_if = "Option::is_none")]
    connect: Option<Ms>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Ms>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_text: Option<Ms>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_idle: Option<Ms>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Ms>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_tokens_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_request_bytes: Option<ByteSize>,
}

impl From<LimitsPatch> for RawPatch {
    fn from(p: LimitsPatch) -> Self {
        Self {
            connect: p.connect,
            headers: p.headers,
            first_text: p.first_text,
            stream_idle: p.stream_idle,
            total: p.total,
            min_tokens_per_second: p.min_tokens_per_second,
            max_request_bytes: p.max_request_bytes,
        }
    }
}

impl TryFrom<RawPatch> for LimitsPatch {
    type Error = LimitsError;

    fn try_from(raw: RawPatch) -> Result<Self, LimitsError> {
        let patch = Self {
            connect: raw.connect,
            headers: raw.headers,
            first_text: raw.first_text,
            stream_idle: raw.stream_idle,
            total: raw.total,
            min_tokens_per_second: raw.min_tokens_per_second,
            max_request_bytes: raw.max_request_bytes,
        };
        let whole: RawLimits = Limits::default().with(&patch).into();
        Limits::try_from(whole)?; // the same rules as for the whole
        Ok(patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_word_wins_and_the_rest_stays() {
        let patch: LimitsPatch =
            toml::from_str("first_text = \"2s\"\nmin_tokens_per_second = 3").expect("reads");
        let limits = Limits::default().with(&patch);
        assert_eq!(limits.first_text(), Duration::from_secs(2));
        assert!((limits.min_tokens_per_second() - 3.0).abs() < 1e-9);
        assert_eq!(limits.headers(), Duration::from_secs(60));
    }

    #[test]
    fn what_calibration_found_of_the_first_text_counts_where_nobody_wrote_it_and_it_is_longer() {
        let free = Limits::default();
        assert_eq!(free.learned(Some(24_000)).first_text(), Duration::from_secs(24));
        assert_eq!(
            free.learned(Some(900)).first_text(),
            Duration::from_secs(10),
            "never less than the default"
        );
        assert_eq!(free.learned(None).first_text(), Duration::from_secs(10));
        let written: Limits = toml::from_str("first_text = \"2s\"").expect("reads");
        assert_eq!(written.learned(Some(24_000)).first_text(), Duration::from_secs(2));
        let patch: LimitsPatch = toml::from_str("first_text = \"3s\"").expect("reads");
        assert_eq!(free.with(&patch).learned(Some(24_000)).first_text(), Duration::from_secs(3));
    }

    #[test]
    fn a_limit_that_nothing_can_meet_is_refused_by_name() {
        let fault = toml::from_str::<Limits>("headers = \"0s\"").expect_err("refused").to_string();
        assert!(fault.contains("headers: must be longer than nothing"), "{fault}");
        let fault =
            toml::from_str::<LimitsPatch>("min_tokens_per_second = -1").expect_err("refused").to_string();
        assert!(fault.contains("min_tokens_per_second"), "{fault}");
        assert!(toml::from_str::<Limits>("colour = 3").is_err());
    }
}

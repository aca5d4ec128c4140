//! `[queue]`: who may wait for a permit, and how long.

use serde::{Deserialize, Serialize};

use crate::units::Ms;

/// A hundred short waits are a burst; more is an overload that refusing ends sooner than queueing.
const SIZE: usize = 100;
/// Callers of language models wait half a minute for a first word, hardly longer.
const TIMEOUT: Ms = Ms::from_secs(30);

/// `[queue]`: requests that wait for a permit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawParams", into = "RawParams")]
pub struct Params(RawParams);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawParams {
    size: usize,
    timeout: Ms,
}

impl Default for RawParams {
    fn default() -> Self {
        Self { size: SIZE, timeout: TIMEOUT }
    }
}

/// Why `[queue]` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// Memory is finite.
    #[error("size: {0} is too many to wait; at most 100000")]
    Size(usize),
}

impl TryFrom<RawParams> for Params {
    type Error = ParamsError;

    fn try_from(raw: RawParams) -> Result<Self, ParamsError> {
        if raw.size > 100_000 { Err(ParamsError::Size(raw.size)) } else { Ok(Self(raw)) }
    }
}

impl From<Params> for RawParams {
    fn from(params: Params) -> Self {
        params.0
    }
}

impl Params {
    /// Requests that may wait in one pool.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.0.size
    }

    /// Longest wait, milliseconds.
    #[must_use]
    pub const fn timeout_ms(&self) -> u64 {
        self.0.timeout.as_millis()
    }
}

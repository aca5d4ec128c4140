//! What a decision takes and gives.

use crate::clock::Timestamp;
use crate::sample::Admission;

/// What the request allows and needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Prompt tokens, estimated.
    pub input_tokens: u64,
    /// The call must not be made twice, anywhere; a cached answer will do.
    pub no_retry: bool,
    /// The caller wants no lower tier.
    pub no_fallback: bool,
}

/// The published states.
pub trait Board {
    /// What is published of the target at this place of the list.
    fn admission(&self, target: usize) -> Admission;
    /// Takes a live probe's place at a half-open target, if one is free.
    fn take_probe(&mut self, target: usize) -> bool;
}

/// What a decision needs from outside.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The present.
    pub now: Timestamp,
    /// Uniform over 0..1; decides about ramps.
    pub roll: f64,
    /// Counts up with each request of the route; shares a tier out in turn.
    pub turn: usize,
    /// Whether the published states are too old to be believed.
    pub stale: bool,
}

/// What may still be spent.
#[derive(Clone, Copy, Debug)]
pub struct Purse {
    /// Further tries of this request.
    pub tokens: u32,
    /// Whether the common bucket holds a token.
    pub shared: bool,
    /// Longest wait worth it: the configured one, or what is left until the deadline, milliseconds.
    pub patience_ms: u64,
    /// Further tries at the same target after an unusable answer.
    pub quality_retries: u32,
}

/// What a step draws from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// No extra call.
    Nothing,
    /// One of the request's tokens.
    Request,
    /// One of the request's tokens and one of the common bucket.
    RequestAndShared,
}

/// How long to wait first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    None,
    /// So many milliseconds, as the server asked.
    Exactly(u64),
    /// As the back-off says for this further try, counted from 0.
    BackOff(u32),
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Call this target.
    Send {
        /// Tier.
        tier: usize,
        /// Place in the list of all targets.
        target: usize,
        /// Whether a live probe's place was taken for it.
        probe: bool,
        /// Generation of the breaker.
        generation: u64,
        /// Wait first.
        wait: Wait,
        /// What to draw.
        cost: Cost,
    },
    /// Look into the cache; where it has nothing, call [`super::Course::cache_missed`].
    Cache {
        /// Tier.
        tier: usize,
    },
    /// Nothing further.
    GiveUp(GiveUp),
}

/// Why nothing further is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// Every tier is open.
    Open {
        /// Until the first of them is due, milliseconds.
        retry_after_ms: u64,
    },
    /// A further try was possible, but no token is left.
    NoTokens,
    /// The rules allow nothing else, or everything has been tried.
    Nothing,
}

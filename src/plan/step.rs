//! What a decision takes and gives.

use crate::clock::Timestamp;
use crate::sample::Admission;
use crate::verdict::Reason;

/// What the request allows and needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Prompt tokens, estimated.
    pub input_tokens: u64,
    /// Inputs of a batch (texts to embed, documents to rank).
    pub batch: u32,
    /// A withheld answer may be asked for elsewhere (`fallback.on_content_filter`).
    pub on_content_filter: bool,
    /// The call must not be made twice, anywhere; a cached answer will do.
    pub no_retry: bool,
    /// The caller wants no lower tier.
    pub no_fallback: bool,
    /// Prompt tokens to which it could be cut, where its oldest turns may go (`fallback.trim_oldest`).
    pub trims_to: Option<u64>,
}

/// The published states.
pub trait Board {
    /// What is published of the target at this place of the list.
    fn admission(&self, target: usize) -> Admission;
    /// Takes a live probe's place at a half-open target, if one is free.
    fn take_probe(&mut self, target: usize) -> bool;
    /// Whether the target takes an extra call now.
    fn may_retry(&self, _target: usize) -> bool {
        true
    }
    /// Whether a call of the target would have to wait for a permit.
    fn is_busy(&self, _target: usize) -> bool {
        false
    }
    /// Until when this caller leaves the target alone, beside what is published of it.
    fn cooling_until(&self, _target: usize) -> Option<Timestamp> {
        None
    }
    /// Whether the target, as a fallback, has some of its share of the traffic left.
    fn has_share(&self, _target: usize) -> bool {
        true
    }
}

/// Why a call that was decided on cannot be made; nothing has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// Permits and queue are full, or waiting would outlast the deadline.
    Overloaded {
        /// When it is worth asking again, milliseconds.
        retry_after_ms: u64,
    },
    /// The target is degraded and takes small requests only.
    TooLarge,
    /// As a fallback it has had its share.
    ShareLimit,
    /// The hour's or day's money is spent.
    Spent {
        /// When it is worth asking again, milliseconds.
        retry_after_ms: u64,
    },
    /// The call alone would cost more than one may.
    TooExpensive,
}

impl Away {
    /// The word for leaving a tier because of this.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::Overloaded { .. } | Self::TooLarge => Reason::Overloaded,
            Self::ShareLimit => Reason::ShareLimit,
            Self::Spent { .. } | Self::TooExpensive => Reason::CostBudget,
        }
    }
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
    /// Look into the cache; where it has nothing, call [`super::Course::missed`].
    Cache {
        /// Tier.
        tier: usize,
    },
    /// Leave the step out; where that is not possible for this protocol, call [`super::Course::missed`].
    Omit {
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
    /// Who could answer turned the request away.
    Away(Away),
    /// The rules allow nothing else, or everything has been tried.
    Nothing,
}

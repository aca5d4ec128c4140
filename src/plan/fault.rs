//! What went wrong with a try, as far as the next step depends on it.

use crate::verdict::{FaultClass, Flag, Reason};

/// The rows of the table of consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// 429, 503, 529, or the same said in a body.
    Backpressure,
    /// The target's quota or money is spent, which does not pass by itself.
    Spent,
    /// No connection, a reset before any byte, a 5xx, 408 or 425.
    Broken,
    /// Accepted, then silence up to a limit.
    Silent,
    /// Cut, stalled or an error event within the answer.
    Cut,
    /// The answer is unusable.
    Quality(Flag),
    /// The prompt is longer than the context.
    ContextLength,
    /// A filter or policy withheld the answer.
    ContentFilter,
    /// 401, 403, 404: the target refuses its key, model or path.
    Misconfigured,
    /// Another 4xx: the caller's fault.
    Caller,
}

/// One failed try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// The wait that the server asked for, milliseconds.
    pub retry_after_ms: Option<u64>,
}

/// Whether the same target may be asked again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Same {
    Never,
    /// Once, where the tier has no other target.
    IfAlone,
    /// So often after an unusable answer, before any other target.
    Quality,
}

/// Whether another target may be asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Elsewhere {
    Never,
    Any,
    LargerContext,
}

impl FaultKind {
    pub(super) const fn same(self) -> Same {
        match self {
            Self::Backpressure | Self::Broken | Self::Cut => Same::IfAlone,
            Self::Quality(_) => Same::Quality,
            _ => Same::Never,
        }
    }

    pub(super) const fn elsewhere(self) -> Elsewhere {
        match self {
            Self::ContextLength => Elsewhere::LargerContext,
            Self::ContentFilter | Self::Caller => Elsewhere::Never,
            _ => Elsewhere::Any,
        }
    }

    /// Whether another try at the same target could mend it.
    #[must_use]
    pub const fn is_repeatable(self) -> bool {
        !matches!(self.same(), Same::Never)
    }

    /// The word for leaving a tier because of this.
    #[must_use]
    pub const fn reason(self) -> (Reason, Option<Flag>) {
        match self {
            Self::Backpressure | Self::Spent => (Reason::CoolingDown, None),
            Self::Silent => (Reason::Slow, None),
            Self::Quality(flag) => (Reason::Quality, Some(flag)),
            Self::ContextLength => (Reason::ContextTooLong, None),
            Self::ContentFilter => (Reason::Quality, Some(Flag::ContentFiltered)),
            _ => (Reason::UpstreamError, None),
        }
    }

    /// The row for a status outside 2xx; `None` for one that is no fault. A context or policy error is
    /// told by the body, which the caller of this function has read.
    #[must_use]
    pub const fn of_status(status: u16) -> Option<Self> {
        match status {
            429 | 503 | 529 => Some(Self::Backpressure),
            401 | 403 | 404 => Some(Self::Misconfigured),
            408 | 425 | 500..=599 => Some(Self::Broken),
            400..=499 => Some(Self::Caller),
            _ => None,
        }
    }

    /// The class that the contract gives this.
    #[must_use]
    pub const fn class(self) -> FaultClass {
        match self {
            Self::Backpressure | Self::Spent => FaultClass::Backpressure,
            Self::Broken | Self::Cut => FaultClass::Upstream,
            Self::Silent => FaultClass::Slow,
            Self::Quality(_) => FaultClass::QualityHard,
            Self::ContextLength | Self::Caller | Self::Misconfigured => FaultClass::Client,
            Self::ContentFilter => FaultClass::Info,
        }
    }
}

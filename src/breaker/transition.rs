//! The words of a change of state, and what of a breaker survives a restart.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::verdict::{BreakerState, FaultClass, FlagSet};

macro_rules! causes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        /// Why a breaker is in its state; closed, fit for a metric label.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Cause {
            $($(#[$doc])* #[serde(rename = $text)] $variant),+
        }
        impl Cause {
            /// Every cause.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Reads the word.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

causes! {
    /// Nothing has happened yet.
    Start = "start",
    /// The failing share of the window.
    FailureRatio = "failure_ratio",
    /// The number of failures in the window.
    FailureCount = "failure_count",
    /// Failures in a row.
    ConsecutiveFailures = "consecutive_failures",
    /// The slow share of the window.
    SlowCalls = "slow_calls",
    /// Hard quality faults of live answers (arm C2).
    HardFaults = "hard_faults",
    /// A golden burst showed the target to be worse (arm B1).
    GoldenBurst = "golden_burst",
    /// A plain rule held for its time.
    Rule = "rule",
    /// The open time is over.
    Due = "due",
    /// The open time was over long ago and nobody acted.
    Watchdog = "watchdog",
    /// Enough sound probes.
    ProbesPassed = "probes_passed",
    /// The golden burst accepted health.
    BurstPassed = "burst_passed",
    /// A probe failed.
    ProbeFailed = "probe_failed",
    /// The golden burst did not accept health.
    BurstFailed = "burst_failed",
    /// The trial's time ran out.
    TrialTimeout = "trial_timeout",
    /// The last target of a route, degraded but admitted in part.
    LastTarget = "last_target",
    /// An operator's word.
    Operator = "operator",
    /// Taken up again after a restart.
    Restored = "restored",
}

impl Cause {
    /// Whether the cause speaks about quality, so that quality must be proven before closing.
    #[must_use]
    pub const fn is_quality(self) -> bool {
        matches!(self, Self::HardFaults | Self::GoldenBurst | Self::Rule | Self::BurstFailed)
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A change of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// State before.
    pub from: BreakerState,
    /// State after.
    pub to: BreakerState,
    /// Why, in a closed word.
    pub cause: Cause,
    /// Why, in words and numbers.
    pub message: String,
    /// When.
    pub at: Timestamp,
    /// When an open breaker will half-open.
    pub due: Option<Timestamp>,
    /// Generation that begins here.
    pub generation: u64,
}

/// What survives a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// State.
    pub state: BreakerState,
    /// Generation.
    pub generation: u64,
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub cause: Cause,
    /// Why, in words and numbers.
    pub message: String,
    /// When an open breaker is due.
    pub due: Option<Timestamp>,
    /// Openings in a row.
    pub openings: u32,
    /// Whether quality must be proven before closing.
    pub quality: bool,
    /// Ramp step.
    pub ramp: usize,
    /// Degraded but admitted in part as the last target: why.
    pub last_target: Option<(Cause, String)>,
}

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Admit nothing until told otherwise.
    Open,
    /// Admit everything until told otherwise.
    Close,
    /// Decide by measurement again.
    Auto,
}

/// What a half-open probe showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeVerdict {
    /// Sound and quick enough.
    Sound,
    /// A hard failure; says which.
    Failed(String),
    /// Shows nothing (too slow, cached, refused by backpressure, check failed softly); says why.
    Void(String),
}

impl ProbeVerdict {
    /// What the class of a probe's answer alone decides; `None` where it is the answer that must.
    #[must_use]
    pub fn of_class(class: Option<FaultClass>, flags: FlagSet) -> Option<Self> {
        match class? {
            class @ (FaultClass::Upstream | FaultClass::Slow | FaultClass::QualityHard) => {
                Some(Self::Failed(format!("a probe failed ({class}: {flags})")))
            }
            class @ (FaultClass::Backpressure | FaultClass::Client | FaultClass::Info) => {
                Some(Self::Void(class.as_str().to_owned()))
            }
            FaultClass::QualitySoft => None,
        }
    }
}

/// What a half-open breaker needs to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialKind {
    /// Golden canaries.
    Probes,
    /// One golden burst.
    Burst,
    /// Callers' requests, backed by the next tier.
    Live,
}

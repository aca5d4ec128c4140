//! What the monitor and the probers say to each other.
//!
//! One task a target asks golden prompts; it is told what to ask for, and tells what came.

use std::sync::Arc;

use crate::baseline::{Baseline, Engine};
use crate::clock::Timestamp;
use crate::prompt::BurstReason;
use crate::sample::{Outcome, Sample};

/// What the monitor orders.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// A golden burst.
    Burst {
        /// Why.
        reason: BurstReason,
        /// Generation that its items carry.
        generation: u64,
    },
    /// The burst under way has its verdict.
    StopBurst,
    /// Half-open probes.
    Probes {
        /// Generation that they carry.
        generation: u64,
        /// How many.
        count: u32,
    },
    /// One small call that warms the target's caches.
    WarmUp,
}

/// One call of the prober.
#[derive(Debug)]
pub struct Called {
    /// For the detectors; its source says what the call was for.
    pub sample: Sample,
    /// For the breaker.
    pub outcome: Outcome,
    /// Who answered; `None` if nobody did.
    pub engine: Option<Engine>,
    /// Highest cosine to the prompt's healthy answers.
    pub similarity: Option<f64>,
    /// Waits to know whether the burst goes on.
    pub more: Option<tokio::sync::oneshot::Sender<bool>>,
}

/// The end of a calibration.
#[derive(Debug)]
pub struct Calibrated {
    /// Which target.
    pub target: Arc<str>,
    /// The baseline, or why there is none.
    pub result: Result<Arc<Baseline>, String>,
}

/// What the prober tells the monitor.
#[derive(Debug)]
pub enum Report {
    /// A call came back.
    Called(Box<Called>),
    /// A burst begins.
    BurstStarted {
        /// Which target.
        target: Arc<str>,
        /// Why.
        reason: BurstReason,
        /// Items planned.
        planned: u32,
        /// Generation that its items carry.
        generation: u64,
    },
    /// The burst has no further items.
    BurstEnded {
        /// Which target.
        target: Arc<str>,
    },
    /// A half-open probe could not be made.
    ProbeLost {
        /// Which target.
        target: Arc<str>,
        /// Generation that it would have carried.
        generation: u64,
        /// Why.
        why: String,
    },
    /// A calibration goes on.
    Calibrating {
        /// Which target.
        target: Arc<str>,
        /// Calls made.
        done: usize,
        /// Calls planned.
        planned: usize,
    },
    /// A calibration ended.
    Calibrated(Calibrated),
    /// When the next call is due.
    NextCall {
        /// Which target.
        target: Arc<str>,
        /// When; `None` where nothing is scheduled.
        at: Option<Timestamp>,
    },
}

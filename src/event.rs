//! What happened: transitions and findings, as the events API, the store and the log tell them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// What kind of thing happened; a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The breaker changed state.
    BreakerTransition,
    /// In shadow mode: it would have opened.
    WouldOpen,
    /// Health of a target changed.
    HealthChange,
    /// A detector's finding.
    Finding,
    /// A plain rule held for its time, or ceased to.
    Rule,
    /// A golden burst ended.
    Burst,
    /// A target's calibration ended.
    Calibration,
    /// A signal was lost or came back.
    SignalLost,
    /// All targets of a route moved together: what callers ask has changed.
    Workload,
    /// A target refuses the configured key, model or path.
    Misconfigured,
    /// The monitor stood still.
    GateStale,
    /// An operator acted.
    Operator,
    /// Configuration was reloaded, or refused.
    Config,
    /// The store failed or recovered.
    Store,
    /// The daemon started or stops.
    Lifecycle,
}

/// One event. `reason` is a closed word fit for a label; `message` says it in words and numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Rises by one with each event; kept across restarts. 0 until the monitor numbered it.
    pub id: u64,
    /// When.
    pub at: Timestamp,
    /// What kind.
    pub kind: EventKind,
    /// Which target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Arc<str>>,
    /// Which route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<Arc<str>>,
    /// A closed word.
    pub reason: String,
    /// In words and numbers.
    pub message: String,
    /// Statistic, n, limit, from, to, due and the like.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub data: serde_json::Value,
}

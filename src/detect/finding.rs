//! What a detector says, always with statistic, number, limit, promise and onset.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// Which detector speaks; the label `arm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// Canary scores against the calibration's.
    A1,
    /// Border inputs: first tokens of near ties.
    A2,
    /// First tokens never seen in health.
    A3,
    /// Golden burst.
    B1,
    /// Statistics of blocks of live answers.
    C1,
    /// Hard faults of live answers.
    C2,
    /// A plain rule.
    Rule,
    /// A signal that health had is gone.
    Coverage,
    /// What a classifier's scores are has changed.
    Output,
    /// Another engine or model answers.
    Engine,
}

impl Arm {
    /// The label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A1 => "a1",
            Self::A2 => "a2",
            Self::A3 => "a3",
            Self::B1 => "b1",
            Self::C1 => "c1",
            Self::C2 => "c2",
            Self::Rule => "rule",
            Self::Coverage => "coverage",
            Self::Output => "output",
            Self::Engine => "engine",
        }
    }
}

/// What a finding claims. "Changed" is not "worse".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Worth telling; decides nothing.
    Alert,
    /// Different from health: a golden burst must tell whether it is worse.
    Suspect,
    /// Shown to be worse: opens.
    Degraded,
}

/// One statement of a detector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// When.
    pub at: Timestamp,
    /// Which route's stream, if it is one route's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Arc<str>>,
    /// Which detector.
    pub arm: Arm,
    /// What it claims.
    pub level: Level,
    /// A closed word or the rule's name.
    pub reason: String,
    /// The statistic.
    pub statistic: f64,
    /// Observations it rests on.
    pub n: u64,
    /// The limit it passed.
    pub limit: f64,
    /// Promised mean number of observations between false alarms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arl0: Option<f64>,
    /// When it seems to have begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onset: Option<Timestamp>,
    /// In words and numbers.
    pub message: String,
}

/// How much a detector has seen and said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Observations.
    pub n: u64,
    /// Alarms.
    pub alarms: u64,
}

impl Tally {
    /// Observations an alarm; `None` before the first.
    #[must_use]
    pub fn realised(self) -> Option<f64> {
        (self.alarms > 0).then(|| self.n as f64 / self.alarms as f64)
    }
}

/// Where a detector stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmStatus {
    /// Which detector.
    pub arm: Arm,
    /// Which route's stream, if it is one route's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Arc<str>>,
    /// Whether it runs, and why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// The statistic now.
    pub statistic: f64,
    /// Observations so far.
    pub n: u64,
    /// Its limit.
    pub limit: f64,
    /// Promised mean number of observations between false alarms.
    pub arl0: Option<f64>,
    /// Observations a finding so far; `None` before the first.
    pub realised: Option<f64>,
    /// When what it sees seems to have begun; `None` while nothing accumulates.
    pub onset: Option<Timestamp>,
    /// Observations until a finding if every answer were bad from now on.
    pub expected_delay: Option<f64>,
}

//! `[quality.arms]`: which arms run, and what the burst calls a loss.

use serde::{Deserialize, Serialize};

use super::burst;

/// The detectors' values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// A1 and A3: canaries that look different raise suspicion.
    canaries: bool,
    /// C1: blocks of live answers that look different raise suspicion.
    blocks: bool,
    /// C2: hard faults of live answers open.
    hard_faults: bool,
    /// B1: what a golden burst calls worse.
    golden: burst::Params,
}

impl Default for Params {
    fn default() -> Self {
        Self { canaries: true, blocks: true, hard_faults: true, golden: burst::Params::default() }
    }
}

impl Params {
    /// Whether A1 and A3 run.
    #[must_use]
    pub const fn canaries(&self) -> bool {
        self.canaries
    }

    /// Whether C1 runs.
    #[must_use]
    pub const fn blocks(&self) -> bool {
        self.blocks
    }

    /// Whether C2 runs.
    #[must_use]
    pub const fn hard_faults(&self) -> bool {
        self.hard_faults
    }

    /// The burst's values.
    #[must_use]
    pub const fn golden(&self) -> &burst::Params {
        &self.golden
    }
}

//! `[store]`: where the file is and how long it remembers.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::units::Ms;

/// Name of the file in the data directory.
const FILE_NAME: &str = "touchstone.db";

/// A month: the hard-fault arm and the shadow report look back no further.
const DEFAULT_RETENTION: Ms = Ms(30 * 24 * 3_600 * 1_000);

/// About 300,000 samples with their exchanges; fits the smallest volumes that clusters hand out.
const DEFAULT_MAX_MB: u64 = 512;

/// Fifty a second say all that a statistic can learn; at hundreds a second the file would
/// hold minutes and not weeks.
const DEFAULT_MAX_SAMPLES_PER_SECOND: u32 = 50;

/// `[store]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawParams", into = "RawParams")]
pub struct Params {
    path: Option<PathBuf>,
    pub(super) retention: Ms,
    pub(super) max_mb: u64,
    pub(super) keep_text: bool,
    pub(super) max_samples_per_second: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawParams {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    retention: Ms,
    max_mb: u64,
    keep_text: bool,
    max_samples_per_second: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            path: None,
            retention: DEFAULT_RETENTION,
            max_mb: DEFAULT_MAX_MB,
            keep_text: false,
            max_samples_per_second: DEFAULT_MAX_SAMPLES_PER_SECOND,
        }
    }
}

impl Default for RawParams {
    fn default() -> Self {
        Params::default().into()
    }
}

impl From<Params> for RawParams {
    fn from(p: Params) -> Self {
        Self {
            path: p.path,
            retention: p.retention,
            max_mb: p.max_mb,
            keep_text: p.keep_text,
            max_samples_per_second: p.max_samples_per_second,
        }
    }
}

/// Why the parameters are refused.
#[derive(Debug, thiserror::Error)]
pub enum ParamsError {
    /// Shorter than what the daemon itself looks back.
    #[error("retention: {0} is too short; at least 1h")]
    Retention(Ms),
    /// The empty tables alone take a part of it.
    #[error("max_mb: {0} is too small; at least 8")]
    Size(u64),
    /// Nothing would ever be stored.
    #[error("max_samples_per_second: at least 1")]
    Rate,
}

impl TryFrom<RawParams> for Params {
    type Error = ParamsError;

    fn try_from(raw: RawParams) -> Result<Self, ParamsError> {
        if raw.retention < Ms::from_secs(3_600) {
            return Err(ParamsError::Retention(raw.retention));
        }
        if raw.max_mb < 8 {
            return Err(ParamsError::Size(raw.max_mb));
        }
        if raw.max_samples_per_second == 0 {
            return Err(ParamsError::Rate);
        }
        Ok(Self {
            path: raw.path,
            retention: raw.retention,
            max_mb: raw.max_mb,
            keep_text: raw.keep_text,
            max_samples_per_second: raw.max_samples_per_second,
        })
    }
}

impl Params {
    /// Where the file is, given the data directory.
    #[must_use]
    pub fn file(&self, data_dir: &Path) -> PathBuf {
        self.path.clone().unwrap_or_else(|| data_dir.join(FILE_NAME))
    }
}

//! The sentence embedder on a thread of its own: tokenise, forward, pool; bounded queue in, vectors out.
//!
//! A BERT of a few layers turns a text into a unit vector; texts that mean the same lie near each other.
//! The program carries a compact copy of all-MiniLM-L6-v2 (`models/`), so that it runs when copied alone
//! to another machine; any local folder of the BERT family can replace it.
//!
//! The forward pass is small enough to be written here on candle's tensors. Matrices are unpacked to 32-bit
//! floats at start, because candle's matrix product for those chooses the processor's widest
//! instructions while running and works on the threads it is given; its quantised product does neither.
//! Word vectors, half of the weights, stay packed and are unpacked row by row. Texts go one by one: no
//! padding, hence no attention mask, and a long answer never delays a short one by more than itself.
//!
//! Nothing here waits for room: a full queue or a spent CPU budget means that a live answer is skipped
//! and counted. Golden answers have a queue of their own that goes first and ignores the budget, since a
//! breaker waits for them.

mod bert;
mod kernels;
mod model;
mod weights;
mod worker;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use model::{BUILTIN_SHA256, Embedder};
pub use worker::{EmbedHandle, EmbedStats, Pending};

/// Three hundredths of one core, one to three texts a second by length and machine: plenty for a sample of live
/// answers, and not felt by traffic on the smallest machine.
const DEFAULT_MAX_CPU_SHARE: f64 = 0.03;
/// One: the machine belongs to the traffic.
const DEFAULT_THREADS: usize = 1;
/// A few seconds of work; what waits longer is better skipped.
const DEFAULT_QUEUE: usize = 64;
/// The word for the model that the program carries.
const BUILTIN: &str = "builtin";

/// Why there is no vector.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// A model's file cannot be used.
    #[error("{file}: {reason}")]
    Model {
        /// The file, or what stands for it in the program.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The text cannot be split into tokens.
    #[error("cannot tokenise the text: {0}")]
    Tokenise(String),
    /// The forward pass failed.
    #[error("forward pass: {0}")]
    Forward(#[from] candle_core::Error),
    /// The weights led to a vector without direction.
    #[error("the vector is not finite or has no length")]
    NoDirection,
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(String),
}

/// A text's meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// Tokens read, special ones included, after truncation.
    pub tokens: usize,
    /// Unit vector.
    pub vector: Vec<f32>,
}

/// Where the model comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ModelSource {
    /// The copy of all-MiniLM-L6-v2 that the program carries.
    Builtin,
    /// A folder with `config.json`, `tokenizer.json` and `model.safetensors` or `model.gguf`.
    Folder(PathBuf),
}

impl From<String> for ModelSource {
    fn from(text: String) -> Self {
        if text == BUILTIN || text.is_empty() { Self::Builtin } else { Self::Folder(text.into()) }
    }
}

impl From<ModelSource> for String {
    fn from(source: ModelSource) -> Self {
        match source {
            ModelSource::Builtin => BUILTIN.to_owned(),
            ModelSource::Folder(path) => path.to_string_lossy().into_owned(),
        }
    }
}

/// `[embed]` of the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawParams")]
pub struct Params {
    model: ModelSource,
    max_cpu_share: f64,
    threads: usize,
    queue: usize,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawParams {
    model: ModelSource,
    max_cpu_share: f64,
    threads: usize,
    queue: usize,
}

/// Why parameters are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// Out of range.
    #[error("max_cpu_share: must be from 0 (no live answer is embedded) to 1 (one whole core)")]
    Share,
    /// Out of range.
    #[error("threads: must be from 1 to 64")]
    Threads,
    /// Out of range.
    #[error("queue: must be from 1 to 65536")]
    Queue,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            model: ModelSource::Builtin,
            max_cpu_share: DEFAULT_MAX_CPU_SHARE,
            threads: DEFAULT_THREADS,
            queue: DEFAULT_QUEUE,
        }
    }
}

impl Default for RawParams {
    fn default() -> Self {
        let Params { model, max_cpu_share, threads, queue } = Params::default();
        Self { model, max_cpu_share, threads, queue }
    }
}

impl TryFrom<RawParams> for Params {
    type Error = ParamsError;

    fn try_from(raw: RawParams) -> Result<Self, ParamsError> {
        let RawParams { model, max_cpu_share, threads, queue } = raw;
        if !(0.0..=1.0).contains(&max_cpu_share) {
            return Err(ParamsError::Share);
        }
        if !(1..=64).contains(&threads) {
            return Err(ParamsError::Threads);
        }
        if !(1..=65_536).contains(&queue) {
            return Err(ParamsError::Queue);
        }
        Ok(Self { model, max_cpu_share, threads, queue })
    }
}

impl Params {
    /// These parameters with another model.
    #[must_use]
    pub fn with_model(mut self, model: ModelSource) -> Self {
        self.model = model;
        self
    }

    /// Where the model comes from.
    #[must_use]
    pub const fn model(&self) -> &ModelSource {
        &self.model
    }

    /// Share of one core that live answers may take, 0..=1.
    #[must_use]
    pub const fn max_cpu_share(&self) -> f64 {
        self.max_cpu_share
    }

    /// Threads of one forward pass.
    #[must_use]
    pub const fn threads(&self) -> usize {
        self.threads
    }

    /// Live answers that may wait.
    #[must_use]
    pub const fn queue(&self) -> usize {
        self.queue
    }
}

#[cfg(test)]
mod tests;

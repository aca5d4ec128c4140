//! One golden prompt and the check its answer must meet, as written in `prompts.jsonl`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::verdict::Wire;

/// Which stream a golden prompt belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptKind {
    /// Short, one token where logprobs exist, sent all day long.
    Canary,
    /// Longer, with a check; sent on suspicion, in half-open, every few hours.
    Burst,
}

/// Why a golden burst runs; closed, fit for a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BurstReason {
    /// Its period is over.
    Schedule,
    /// A detector or rule raised suspicion, or the last burst was undecided.
    Suspicion,
    /// The target has changed and awaits an operator's word.
    Changed,
    /// The target is degraded but not open, and may have recovered.
    Recheck,
    /// Half-open after a quality trip.
    HalfOpen,
    /// An operator asked.
    Demand,
}

impl BurstReason {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Suspicion => "suspicion",
            Self::Changed => "changed",
            Self::Recheck => "recheck",
            Self::HalfOpen => "half_open",
            Self::Demand => "demand",
        }
    }
}

/// What a sound answer must satisfy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The trimmed text equals one of these.
    Exact(OneOrMany),
    /// The text matches this regular expression.
    Regex(String),
    /// The text contains all of these, letter case ignored.
    Contains(OneOrMany),
    /// The text is JSON and valid against this schema.
    JsonSchema(serde_json::Value),
    /// This tool is called with arguments valid against its schema.
    Tool(String),
    /// The first label in the text (or the top class) is this one.
    Label(String),
    /// The answer's embedding is at least this near (cosine) to one of the references.
    Similarity(f64),
}

/// One string or several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl OneOrMany {
    /// As a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// One line of `prompts.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    /// Unique in the set.
    pub id: Arc<str>,
    /// Canary or burst.
    pub kind: PromptKind,
    /// Protocol it is asked in.
    pub wire: Wire,
    /// Chat messages (wire chat).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<serde_json::Value>,
    /// Prompt text (wire completions).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Input (embeddings, tensors).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<serde_json::Value>,
    /// Tools offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<serde_json::Value>,
    /// `response_format` asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_format: Option<serde_json::Value>,
    /// Limit of the answer, tokens.
    #[serde(default = "default_max_tokens")]
    pub max_tokens: u32,
    /// What the answer must satisfy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// Healthy answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<String>,
    /// Free words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// How an answer to a golden prompt is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Temperature; 0 takes the likeliest token each time.
    pub temperature: f64,
    /// Seed, where the wire has one.
    pub seed: u64,
}

impl Sampling {
    /// How every golden prompt is asked. Temperature 0 already makes most engines repeat themselves; the seed
    /// does so for those that break ties, or route to experts, at random. Any fixed number serves.
    pub const GREEDY: Self = Self { temperature: 0.0, seed: 7 };
}

const fn default_max_tokens() -> u32 {
    24
}

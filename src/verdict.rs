//! The closed vocabulary of the contract: flags, fault classes, states, reasons.
//!
//! Everything that leaves the daemon (headers, metrics, events, the store) takes its words from here,
//! so that label sets stay closed. No behaviour beyond naming.

mod substance;

use serde::{Deserialize, Serialize};

pub use substance::Substance;

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $text)] $variant),+
        }
        impl $name {
            /// Every word, in the contract's order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The contract's spelling.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Reads the contract's spelling.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Whose fault an attempt's failure is. Each class feeds its own counter; `info` feeds none.
    FaultClass {
        /// 4xx caused by the caller, or the caller left: never counts against the model.
        Client = "client",
        /// 429, 503 and 529: a cool-down, a breaker failure only once persistent.
        Backpressure = "backpressure",
        /// 5xx, connection, timeout, cut stream, error under 200.
        Upstream = "upstream",
        /// Time to first text, tokens per second or whole time over its limit.
        Slow = "slow",
        /// Deterministic: the answer is unusable.
        QualityHard = "quality_hard",
        /// Statistical.
        QualitySoft = "quality_soft",
        /// Worth knowing, no fault.
        Info = "info",
    }
}

words! {
    /// What can be odd about one answer.
    Flag {
        /// No text, no reasoning, no tool call, no refusal.
        EmptyOutput = "empty_output",
        /// Text only in a reasoning channel.
        ReasoningOnly = "reasoning_only",
        /// A character, token or phrase loops.
        Repetition = "repetition",
        /// Mostly white space up to the limit.
        WhitespaceRunaway = "whitespace_runaway",
        /// No readable language, mixed fragments.
        Gibberish = "gibberish",
        /// Another script or language than prompt and request call for.
        WrongLanguage = "wrong_language",
        /// Template control tokens printed as text.
        SpecialTokenLeak = "special_token_leak",
        /// A think tag without its partner.
        ThinkUnbalanced = "think_unbalanced",
        /// Ended by a limit.
        Truncated = "truncated",
        /// The model declines.
        Refusal = "refusal",
        /// The provider's filter withheld the answer.
        ContentFiltered = "content_filtered",
        /// Not the JSON or JSON Schema asked for.
        SchemaInvalid = "schema_invalid",
        /// Tool arguments do not parse or break the caller's schema.
        ToolCallInvalid = "tool_call_invalid",
        /// A tool call was required or announced and is absent.
        ToolCallMissing = "tool_call_missing",
        /// A tool call printed as text.
        ToolCallLeakedText = "tool_call_leaked_text",
        /// Choice or tool indexes that cannot be right.
        IndexAnomaly = "index_anomaly",
        /// NaN, null, sentinel, positive or overflowing logprobs.
        LogprobsInvalid = "logprobs_invalid",
        /// Logprobs asked for and not given.
        LogprobsMissing = "logprobs_missing",
        /// No readable usage.
        UsageMissing = "usage_missing",
        /// Counts that contradict the answer or are negative.
        UsageInconsistent = "usage_inconsistent",
        /// Success status, error body.
        UpstreamErrorIn200 = "upstream_error_in_200",
        /// Error event in a stream.
        StreamErrorEvent = "stream_error_event",
        /// Ended without a terminal sign, or broke.
        StreamIncomplete = "stream_incomplete",
        /// Terminal marker but no reason.
        FinishReasonMissing = "finish_reason_missing",
        /// An event whose data is not readable.
        UnparseableEvent = "unparseable_event",
        /// The body breaks JSON.
        MalformedJson = "malformed_json",
        /// The body is something else than JSON.
        NonJsonBody = "non_json_body",
        /// No byte but white space.
        EmptyBody = "empty_body",
        /// Shorter than declared.
        BodyTruncated = "body_truncated",
        /// Invalid UTF-8 or half a surrogate pair.
        EncodingError = "encoding_error",
        /// Open connection, no progress.
        Stall = "stall",
        /// Rate limited, by status or by body.
        RateLimited = "rate_limited",
        /// Overloaded, by status or by body.
        Overloaded = "overloaded",
        /// Zero vector.
        EmbeddingZero = "embedding_zero",
        /// Vector of length 0.
        EmbeddingEmpty = "embedding_empty",
        /// NaN, infinity or null in a vector.
        EmbeddingNonfinite = "embedding_nonfinite",
        /// Another dimension than the baseline.
        EmbeddingDimMismatch = "embedding_dim_mismatch",
        /// Another encoding than asked.
        EmbeddingEncodingMismatch = "embedding_encoding_mismatch",
        /// Another direction than the baseline.
        EmbeddingDrift = "embedding_drift",
        /// NaN or infinity in a tensor.
        TensorNonfinite = "tensor_nonfinite",
        /// Confidence beyond the calibrated quantile.
        LowConfidence = "low_confidence",
        /// Entropy above the calibrated quantile.
        EntropyHigh = "entropy_high",
        /// Entropy below the calibrated quantile.
        EntropyLow = "entropy_low",
    }
}

impl Flag {
    /// The fault class the contract gives this flag.
    #[must_use]
    pub const fn class(self) -> FaultClass {
        match self {
            Self::EmptyOutput
            | Self::Repetition
            | Self::WhitespaceRunaway
            | Self::Gibberish
            | Self::SchemaInvalid
            | Self::ToolCallInvalid
            | Self::ToolCallMissing
            | Self::EmbeddingZero
            | Self::EmbeddingEmpty
            | Self::EmbeddingNonfinite
            | Self::EmbeddingDimMismatch
            | Self::TensorNonfinite => FaultClass::QualityHard,
            Self::ReasoningOnly
            | Self::WrongLanguage
            | Self::SpecialTokenLeak
            | Self::ThinkUnbalanced
            | Self::ToolCallLeakedText
            | Self::IndexAnomaly
            | Self::EncodingError
            | Self::EmbeddingDrift
            | Self::LowConfidence
            | Self::EntropyHigh
            | Self::EntropyLow => FaultClass::QualitySoft,
            Self::UpstreamErrorIn200
            | Self::StreamErrorEvent
            | Self::StreamIncomplete
            | Self::MalformedJson
            | Self::NonJsonBody
            | Self::EmptyBody
            | Self::BodyTruncated => FaultClass::Upstream,
            Self::Stall => FaultClass::Slow,
            Self::RateLimited | Self::Overloaded => FaultClass::Backpressure,
            Self::Truncated
            | Self::Refusal
            | Self::ContentFiltered
            | Self::LogprobsInvalid
            | Self::LogprobsMissing
            | Self::UsageMissing
            | Self::UsageInconsistent
            | Self::FinishReasonMissing
            | Self::UnparseableEvent
            | Self::EmbeddingEncodingMismatch => FaultClass::Info,
        }
    }
}

/// A set of [`Flag`]s in one word.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct FlagSet(u64);

impl FlagSet {
    /// No flag.
    pub const EMPTY: Self = Self(0);

    /// Adds one flag.
    pub const fn insert(&mut self, flag: Flag) {
        self.0 |= 1 << flag as u32;
    }

    /// Takes one flag out.
    pub const fn remove(&mut self, flag: Flag) {
        self.0 &= !(1 << flag as u32);
    }

    /// Whether the flag is in the set.
    #[must_use]
    pub const fn contains(self, flag: Flag) -> bool {
        self.0 & (1 << flag as u32) != 0
    }

    /// Both sets together.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether no flag is set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The flags, in the contract's order.
    pub fn iter(self) -> impl Iterator<Item = Flag> {
        Flag::ALL.iter().copied().filter(move |f| self.contains(*f))
    }

    /// The first flag of the class, if any.
    #[must_use]
    pub fn first_of(self, class: FaultClass) -> Option<Flag> {
        self.iter().find(|f| f.class() == class)
    }
}

impl FromIterator<Flag> for FlagSet {
    fn from_iter<I: IntoIterator<Item = Flag>>(flags: I) -> Self {
        let mut set = Self::EMPTY;
        for flag in flags {
            set.insert(flag);
        }
        set
    }
}

impl std::fmt::Debug for FlagSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter().map(Flag::as_str)).finish()
    }
}

/// `flag,flag`, the form of `x-touchstone-verdict`; empty for no flag.
impl std::fmt::Display for FlagSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, flag) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            f.write_str(flag.as_str())?;
        }
        Ok(())
    }
}

impl Serialize for FlagSet {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for FlagSet {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Vec::<Flag>::deserialize(d)?.into_iter().collect())
    }
}

words! {
    /// Health of a target.
    HealthState {
        /// Not calibrated.
        Unknown = "unknown",
        /// As its golden self.
        Healthy = "healthy",
        /// An arm fired; a golden burst will tell.
        Suspect = "suspect",
        /// Different, not shown to be worse: alert only.
        Changed = "changed",
        /// Shown to be worse: opens.
        Degraded = "degraded",
        /// Cannot be reached or answers errors.
        Unavailable = "unavailable",
    }
}

words! {
    /// State of a target's breaker.
    BreakerState {
        /// Traffic flows.
        Closed = "closed",
        /// No traffic until due.
        Open = "open",
        /// Probes only.
        HalfOpen = "half_open",
        /// Opened by an operator.
        ForcedOpen = "forced_open",
        /// Closed by an operator.
        ForcedClosed = "forced_closed",
    }
}

words! {
    /// Whether decisions are applied or only recorded.
    Mode {
        /// Compute and record, apply nothing.
        Shadow = "shadow",
        /// Apply.
        Enforce = "enforce",
    }
}

words! {
    /// Why an answer did not come from tier 0 as asked; `x-touchstone-degraded`.
    Reason {
        /// The target's breaker is open.
        BreakerOpen = "breaker_open",
        /// Half-open and its probe slots are taken.
        HalfOpenBusy = "half_open_busy",
        /// Cooling down after backpressure.
        CoolingDown = "cooling_down",
        /// Permits and queue are full.
        Overloaded = "overloaded",
        /// The attempt failed.
        UpstreamError = "upstream_error",
        /// The attempt was too slow.
        Slow = "slow",
        /// The answer was unusable; the flag is appended after a colon.
        Quality = "quality",
        /// No retry token left.
        RetryBudget = "retry_budget",
        /// No money left.
        CostBudget = "cost_budget",
        /// Too long for the tier's context.
        ContextTooLong = "context_too_long",
        /// The fallback's share is used up.
        ShareLimit = "share_limit",
        /// A pipeline step was left out.
        StepOmitted = "step_omitted",
        /// Something was cut from the request.
        Trimmed = "trimmed",
        /// The last target, admitted though suspect.
        LastTarget = "last_target",
        /// An operator's word.
        Operator = "operator",
    }
}

words! {
    /// Errors made by the daemon; `error.code`.
    ErrorCode {
        /// Every tier is open and no cache entry fits: 503.
        BreakerOpen = "breaker_open",
        /// Permits and queue are full: 429.
        Overloaded = "overloaded",
        /// No token left for a further try.
        RetryBudgetExhausted = "retry_budget_exhausted",
        /// The window's money is spent: 429.
        CostBudgetExhausted = "cost_budget_exhausted",
        /// Over the per-request cap: 400.
        RequestTooExpensive = "request_too_expensive",
        /// The target is degraded and takes small batches only: 413.
        BatchTooLarge = "batch_too_large",
        /// Over `limits.max_request_bytes`: 413.
        RequestTooLarge = "request_too_large",
        /// The last try timed out: 504.
        UpstreamTimeout = "upstream_timeout",
        /// The last try could not connect: 502.
        UpstreamUnreachable = "upstream_unreachable",
        /// The request cannot be routed at all: 400.
        BadRequest = "bad_request",
        /// Not allowed by the passthrough rules: 403.
        ForbiddenPath = "forbidden_path",
        /// A proxy key is required: 401.
        Unauthorized = "unauthorized",
    }
}

words! {
    /// The protocol of one exchange, told by path.
    Wire {
        /// `/v1/chat/completions`
        Chat = "chat",
        /// `/v1/completions`
        Completions = "completions",
        /// `/v1/embeddings`
        Embeddings = "embeddings",
        /// `/v1/responses`
        Responses = "responses",
        /// `/v1/messages` (Anthropic)
        Messages = "messages",
        /// `/v1/rerank`
        Rerank = "rerank",
        /// `/api/chat` (Ollama)
        OllamaChat = "ollama_chat",
        /// `/api/generate` (Ollama)
        OllamaGenerate = "ollama_generate",
        /// `/api/embed` and `/api/embeddings` (Ollama)
        OllamaEmbed = "ollama_embed",
        /// `/v2/models/{m}/infer` (KServe, Triton)
        KserveInfer = "kserve",
        /// `/v1/models/{m}:predict` (TF Serving)
        TfPredict = "tfserving",
    }
}

words! {
    /// Where an observed exchange came from.
    Source {
        /// A caller's request.
        Live = "live",
        /// A golden canary.
        Canary = "canary",
        /// One item of a golden burst.
        Burst = "burst",
        /// A half-open probe.
        Probe = "probe",
        /// Reported through `/v1/observe`.
        Observe = "observe",
    }
}

words! {
    /// What a classifier's scores are.
    ClassOutput {
        /// A distribution: they add up to 1.
        Probabilities = "probabilities",
        /// Probabilities of labels that do not exclude each other.
        Independent = "independent",
        /// Raw scores, or logarithms of probabilities: softmax makes them a distribution.
        Logits = "logits",
    }
}

words! {
    /// Why a signal is not known.
    Unavailable {
        /// Nobody asked for it.
        NotRequested = "not_requested",
        /// Asked for, not given.
        EngineDropped = "engine_dropped",
        /// Only sentinel values came.
        SentinelOnly = "sentinel_only",
        /// Another k than the baseline's.
        KMismatch = "k_mismatch",
        /// This wire has no such signal.
        NotOnThisWire = "not_on_this_wire",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_fits_the_set_and_reads_back() {
        assert!(Flag::ALL.len() <= 64);
        for flag in Flag::ALL {
            assert_eq!(Flag::parse(flag.as_str()), Some(*flag));
            let set: FlagSet = [*flag].into_iter().collect();
            assert!(set.contains(*flag));
            assert_eq!(set.iter().collect::<Vec<_>>(), [*flag]);
            assert_eq!(set.to_string(), flag.as_str());
        }
    }

    #[test]
    fn a_set_survives_serialisation() {
        let set: FlagSet = [Flag::Repetition, Flag::EntropyLow].into_iter().collect();
        let text = serde_json::to_string(&set).expect("serialises");
        assert_eq!(text, r#"["repetition","entropy_low"]"#);
        assert_eq!(serde_json::from_str::<FlagSet>(&text).expect("reads"), set);
    }
}

//! The one table of names.

use super::{Counter, Gauge, Histogram, Metrics, Sum};
use crate::verdict::{BreakerState, FaultClass, Flag, HealthState, Reason};

/// Seconds. From a cached answer to the longest that callers wait.
const INFERENCE: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0];

/// Seconds. The daemon's own time is a tenth of a millisecond where all is well.
const OVERHEAD: &[f64] =
    &[0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 1.0];

/// Seconds. One forward pass of the sentence model.
const EMBED: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// What a family of series is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Whole numbers that rise.
    Counter,
    /// Real numbers that rise. The exporter counts in whole numbers, so they live in a gauge and are
    /// shown as the counters they are.
    Sum,
    /// Up and down.
    Gauge,
    /// A distribution with these upper bounds, seconds.
    Histogram(&'static [f64]),
}

impl Kind {
    /// The word of the `# TYPE` line.
    #[must_use]
    pub const fn type_word(self) -> &'static str {
        match self {
            Self::Counter | Self::Sum => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }

    /// Series that one set of label values makes: a histogram has one a bucket, `+Inf`, sum and count.
    #[must_use]
    pub fn series_each(self) -> u32 {
        match self {
            Self::Histogram(buckets) => u32::try_from(buckets.len() + 3).unwrap_or(u32::MAX),
            _ => 1,
        }
    }

    /// Whether the values of several owners may be added up.
    #[must_use]
    pub const fn adds_up(self) -> bool {
        !matches!(self, Self::Gauge)
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Whole name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Label names, in the order of the method's arguments.
    pub labels: &'static [&'static str],
    /// The `# HELP` line.
    pub help: &'static str,
}

/// A label's value.
trait Word {
    fn word(&self) -> &str;
}

impl Word for &str {
    fn word(&self) -> &str {
        self
    }
}

macro_rules! word {
    ($($name:ident),+) => { $(impl Word for $name {
        fn word(&self) -> &str {
            self.as_str()
        }
    })+ };
}

word!(BreakerState, FaultClass, Flag, HealthState, Reason);

macro_rules! table {
    (@kind $kind:ident) => { Kind::$kind };
    (@kind $kind:ident $buckets:ident) => { Kind::$kind($buckets) };
    ($($method:ident($($label:ident: $type:ty),*) -> $kind:ident $(in $buckets:ident)? $name:literal $help:literal;)+) => {
        /// Every metric of the daemon.
        pub const TABLE: &[Family] = &[$(Family {
            name: concat!("touchstone_", $name),
            kind: table!(@kind $kind $($buckets)?),
            labels: &[$(stringify!($label)),*],
            help: $help,
        }),+];

        #[allow(non_camel_case_types)] // named after their methods
        #[derive(Clone, Copy)]
        enum Row { $($method),+ }

        impl Metrics {
            $(
                #[doc = concat!("`touchstone_", $name, "`: ", $help)]
                #[must_use]
                pub fn $method(&self, $($label: $type),*) -> $kind {
                    self.registry.handle(Row::$method as usize, &[$($label.word()),*]).into()
                }
            )+
        }
    };
}

table! {
    requests(route: &str, target: &str, tier: &str, outcome: &'static str) -> Counter
        "requests_total" "Requests of callers, by who answered and how it ended.";
    attempts(target: &str, class: &'static str) -> Counter
        "attempts_total" "Attempts at a target, by fault class; ok where there was none.";
    failures(target: &str, class: FaultClass) -> Counter
        "failures_total" "Attempts that failed, by fault class.";
    partial_failure(target: &str) -> Gauge
        "partial_failure_ratio" "Share of slow or failing attempts while the breaker is closed, 0 to 1.";
    flags(target: &str, flag: Flag) -> Counter
        "flags_total" "Oddities seen in answers, by flag.";
    request_duration(route: &str, tier: &str) -> Histogram in INFERENCE
        "request_duration_seconds" "Time from a request's arrival to the last byte of its answer.";
    upstream_duration(target: &str) -> Histogram in INFERENCE
        "upstream_duration_seconds" "Time of one attempt, from sending to the last byte.";
    overhead(route: &str) -> Histogram in OVERHEAD
        "overhead_seconds" "Time spent in the daemon and not waiting for an upstream.";
    time_to_first_token(target: &str) -> Histogram in INFERENCE
        "time_to_first_token_seconds" "Time of one attempt from sending to the first text.";
    breaker_state(target: &str, state: BreakerState) -> Gauge
        "breaker_state" "1 for the state that the breaker is in, else 0.";
    breaker_transitions(target: &str, to: BreakerState, reason: &str) -> Counter
        "breaker_transitions_total" "Changes of the breaker's state.";
    breaker_open_seconds(target: &str) -> Sum
        "breaker_open_seconds_total" "Time that the breaker was open.";
    would_open(target: &str, reason: &str) -> Counter
        "would_open_total" "Openings that shadow mode recorded and did not apply.";
    health_state(target: &str, state: HealthState) -> Gauge
        "health_state" "1 for the health that the target has, else 0.";
    entropy(target: &str, stat: &'static str) -> Gauge
        "entropy_nats" "Token entropy of recent answers from their top logprobs.";
    logprob_coverage(target: &str) -> Gauge
        "logprob_coverage_ratio" "Usable logprob positions per output token of recent answers, 0 to 1.";
    drift_cosine(target: &str, kind: &'static str) -> Gauge
        "drift_cosine" "Cosine distance of recent prompts or responses to their reference, 0 to 2.";
    golden_accuracy(target: &str) -> Gauge
        "golden_accuracy_ratio" "Share of checks passed in recent golden prompts, 0 to 1.";
    detector_statistic(target: &str, route: &str, arm: &str) -> Gauge
        "detector_statistic" "Present statistic of a detector.";
    detector_limit(target: &str, route: &str, arm: &str) -> Gauge
        "detector_limit" "Limit at which the detector fires.";
    signal_available(target: &str, signal: &str) -> Gauge
        "signal_available" "1 if the target yields this signal, else 0.";
    fallback_share(route: &str) -> Gauge
        "fallback_ratio" "Share of recent requests that the first tier did not answer, 0 to 1.";
    fallbacks(route: &str, from: &str, to: &str, reason: Reason) -> Counter
        "fallbacks_total" "Requests that another target answered than the first of the route.";
    retries(target: &str, outcome: &'static str) -> Counter
        "retries_total" "Further tries, by how they ended or why they were refused.";
    retry_tokens(scope: &str) -> Gauge
        "retry_tokens" "Retry tokens left.";
    retry_waste(target: &str) -> Gauge
        "retry_waste_ratio" "Share of recent retries that failed, 0 to 1.";
    permits_in_use(target: &str) -> Gauge
        "permits_in_use" "Calls in flight.";
    permits_limit(target: &str) -> Gauge
        "permits_limit" "Calls that may be in flight.";
    queue_depth(target: &str) -> Gauge
        "queue_depth" "Requests that wait for a permit.";
    shed(target: &str, reason: &'static str) -> Counter
        "shed_total" "Requests refused before an attempt.";
    tokens(target: &str, direction: &'static str, source: &'static str) -> Counter
        "tokens_total" "Tokens in and out, as the upstream counted them or as estimated.";
    cost_usd(target: &str) -> Sum
        "cost_usd_total" "Money spent on attempts, US dollars.";
    budget_spent_usd(window: &'static str) -> Gauge
        "budget_spent_usd" "Money spent in the sliding window, US dollars.";
    budget_limit_usd(window: &'static str) -> Gauge
        "budget_limit_usd" "Money that may be spent in the sliding window, US dollars.";
    cache_requests(route: &str, result: &'static str) -> Counter
        "cache_requests_total" "Look-ups in the cache of answers that passed quality.";
    samples_dropped(stage: &'static str) -> Counter
        "samples_dropped_total" "Observations dropped under load, by where.";
    embed_queue_depth() -> Gauge
        "embed_queue_depth" "Texts that wait for the sentence model.";
    embed_duration() -> Histogram in EMBED
        "embed_duration_seconds" "Time of the sentence model for one text.";
    store_write_failures() -> Counter
        "store_write_failures_total" "Batches that could not be written to the store.";
    shared_state_up() -> Gauge
        "shared_state_up" "1 while the shared state of several instances is reachable; absent without one.";
    gate_stale() -> Gauge
        "gate_stale" "1 while the monitor stands still and its published states are not believed.";
    misconfigured(target: &str) -> Gauge
        "misconfigured" "1 while the target refuses the configured key, model or path.";
    build_info(version: &str) -> Gauge
        "build_info" "Always 1; the label tells the version.";
}

/// The rows in the order of their names.
pub(super) fn by_name() -> Vec<&'static Family> {
    let mut rows: Vec<_> = TABLE.iter().collect();
    rows.sort_unstable_by_key(|family| family.name);
    rows
}

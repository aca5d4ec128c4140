//! Every metric's name, unit, labels and buckets.
//!
//! Names are a contract with alert rules and dashboards, so they stand in one table (`table`) and
//! nowhere else; each row of the table is also a method of [`Metrics`] that takes the row's labels.
//! Label sets are closed where the vocabulary is closed, and bounded where it is not: beyond the limit
//! of series a counter or histogram adds up under `other`, and a gauge is not written, because a gauge
//! shared by many owners would say nothing true.
//!
//! The recorder is held, not installed globally: several daemons (tests, the demo) live in one process.
//! No NaN and no infinity is ever written; a value that is not known leaves its series out.

mod series;
mod table;

use std::sync::Arc;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde::{Deserialize, Serialize};

use crate::verdict::{BreakerState, HealthState};
use series::{Handle, Registry};
pub use table::{Family, Kind, TABLE};

/// Buffered histogram observations are folded into their buckets at least this often, milliseconds,
/// or at each scrape.
pub const UPKEEP_EVERY_MS: u64 = 5_000;

/// Enough for about twenty targets with all their histograms; a Prometheus server feels no difference
/// below some thousands.
const DEFAULT_MAX_SERIES: u32 = 2_000;

/// Below this the unlabelled series and the `other` bucket of each family would not fit.
const LEAST_MAX_SERIES: u32 = 200;

/// What can be configured of the metrics; `[metrics]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawParams", into = "RawParams")]
pub struct Params {
    max_series: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawParams {
    max_series: u32,
}

/// Why the parameters are refused.
#[derive(Debug, thiserror::Error)]
pub enum ParamsError {
    /// Too few series.
    #[error("max_series: {0} is too few; at least {LEAST_MAX_SERIES}")]
    TooFewSeries(u32),
}

impl Default for Params {
    fn default() -> Self {
        Self { max_series: DEFAULT_MAX_SERIES }
    }
}

impl Default for RawParams {
    fn default() -> Self {
        Params::default().into()
    }
}

impl From<Params> for RawParams {
    fn from(params: Params) -> Self {
        Self { max_series: params.max_series }
    }
}

impl TryFrom<RawParams> for Params {
    type Error = ParamsError;

    fn try_from(raw: RawParams) -> Result<Self, ParamsError> {
        if raw.max_series < LEAST_MAX_SERIES {
            return Err(ParamsError::TooFewSeries(raw.max_series));
        }
        Ok(Self { max_series: raw.max_series })
    }
}

/// All metrics of one daemon. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    handle: PrometheusHandle,
}

/// A whole number that only rises.
#[derive(Clone, Debug)]
pub struct Counter(Option<metrics::Counter>);

/// A real number that only rises, such as money or seconds.
#[derive(Clone, Debug)]
pub struct Sum(Option<metrics::Gauge>);

/// A number that goes up and down.
#[derive(Clone, Debug)]
pub struct Gauge(Option<metrics::Gauge>);

/// A distribution, in seconds.
#[derive(Clone, Debug)]
pub struct Histogram(Option<metrics::Histogram>);

impl Counter {
    /// One more.
    pub fn inc(&self) {
        self.add(1);
    }

    /// `n` more.
    pub fn add(&self, n: u64) {
        if let Some(counter) = &self.0 {
            counter.increment(n);
        }
    }

    /// Raises the counter to a total kept elsewhere; a lower total changes nothing.
    pub fn raise_to(&self, total: u64) {
        if let Some(counter) = &self.0 {
            counter.absolute(total);
        }
    }
}

impl Sum {
    /// `amount` more; what is negative or not finite changes nothing.
    pub fn add(&self, amount: f64) {
        if let Some(sum) = self.0.as_ref().filter(|_| amount.is_finite() && amount > 0.0) {
            sum.increment(amount);
        }
    }
}

impl Gauge {
    /// Sets the value; what is not finite changes nothing.
    pub fn set(&self, value: f64) {
        if let Some(gauge) = self.0.as_ref().filter(|_| value.is_finite()) {
            gauge.set(value);
        }
    }

    /// Sets 1 or 0.
    pub fn set_bool(&self, value: bool) {
        self.set(f64::from(u8::from(value)));
    }
}

impl Histogram {
    /// Takes one duration in seconds; what is negative or not finite is left out.
    pub fn observe(&self, seconds: f64) {
        if let Some(histogram) = self.0.as_ref().filter(|_| seconds.is_finite() && seconds >= 0.0) {
            histogram.record(seconds);
        }
    }

    /// Takes one duration in milliseconds.
    pub fn observe_ms(&self, ms: u64) {
        self.observe(std::time::Duration::from_millis(ms).as_secs_f64());
    }

    /// Takes one duration in microseconds.
    pub fn observe_us(&self, us: u64) {
        self.observe(std::time::Duration::from_micros(us).as_secs_f64());
    }
}

impl From<Handle> for Counter {
    fn from(handle: Handle) -> Self {
        match handle {
            Handle::Counter(counter) => Self(Some(counter)),
            _ => Self(None),
        }
    }
}

impl From<Handle> for Sum {
    fn from(handle: Handle) -> Self {
        match handle {
            Handle::Gauge(gauge) => Self(Some(gauge)),
            _ => Self(None),
        }
    }
}

impl From<Handle> for Gauge {
    fn from(handle: Handle) -> Self {
        match handle {
            Handle::Gauge(gauge) => Self(Some(gauge)),
            _ => Self(None),
        }
    }
}

impl From<Handle> for Histogram {
    fn from(handle: Handle) -> Self {
        match handle {
            Handle::Histogram(histogram) => Self(Some(histogram)),
            _ => Self(None),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(&Params::default())
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// A set of its own, with what needs no label already at its resting value.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        let mut builder = PrometheusBuilder::new();
        for family in TABLE {
            if let Kind::Histogram(buckets) = family.kind {
                builder = match builder.set_buckets_for_metric(Matcher::Full(family.name.to_owned()), buckets)
                {
                    Ok(builder) => builder,
                    Err(_) => unreachable!("the table's buckets are never empty"),
                };
            }
        }
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        let metrics = Self { registry: Arc::new(Registry::new(recorder, params.max_series)), handle };
        metrics.build_info(env!("CARGO_PKG_VERSION")).set(1.0);
        metrics.embed_queue_depth().set(0.0);
        metrics.gate_stale().set(0.0);
        metrics.store_write_failures().add(0);
        metrics
    }

    /// Shows `state` as the breaker's only one.
    pub fn set_breaker_state(&self, target: &str, state: BreakerState) {
        // The old one first: a page read in between shows no state, never two.
        for other in BreakerState::ALL.iter().filter(|each| **each != state) {
            self.breaker_state(target, *other).set_bool(false);
        }
        self.breaker_state(target, state).set_bool(true);
    }

    /// Shows `state` as the target's only health.
    pub fn set_health_state(&self, target: &str, state: HealthState) {
        for other in HealthState::ALL.iter().filter(|each| **each != state) {
            self.health_state(target, *other).set_bool(false);
        }
        self.health_state(target, state).set_bool(true);
    }

    /// Folds buffered observations into their buckets; call it every [`UPKEEP_EVERY_MS`].
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// Series in use and how many there may be.
    #[must_use]
    pub fn series(&self) -> (u32, u32) {
        self.registry.usage()
    }

    /// The Prometheus text: every family of the table, also those that have no series yet, by name.
    #[must_use]
    pub fn render(&self) -> String {
        let text = self.handle.render();
        let mut blocks: Vec<(&str, &str)> =
            text.split("\n\n").filter_map(|block| Some((name_of(block)?, block))).collect();
        blocks.sort_unstable();
        let mut out = String::with_capacity(text.len() + 8_192);
        for family in table::by_name() {
            let found = blocks.binary_search_by_key(&family.name, |(name, _)| name);
            out.push_str("# HELP ");
            out.push_str(family.name);
            out.push(' ');
            out.push_str(family.help);
            out.push_str("\n# TYPE ");
            out.push_str(family.name);
            out.push(' ');
            out.push_str(family.kind.type_word());
            out.push('\n');
            let Some((_, block)) = found.ok().and_then(|i| blocks.get(i)) else { continue };
            let mut lines: Vec<&str> =
                block.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
            if !matches!(family.kind, Kind::Histogram(_)) {
                lines.sort_unstable(); // a histogram's lines stand in the order of their buckets
            }
            for line in lines {
                out.push_str(line);
                out.push('\n');
            }
        }
        out
    }
}

/// Name of the family that a block of the exporter's text describes.
fn name_of(block: &str) -> Option<&str> {
    let line = block.lines().find(|line| line.starts_with("# TYPE "))?;
    line.split(' ').nth(2)
}

#[cfg(test)]
mod tests;

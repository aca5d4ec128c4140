//! Handles of series, found by label values without allocating, and the limit on their number.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{PoisonError, RwLock};

use foldhash::fast::RandomState;
use metrics::{Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::table::{Kind, TABLE};

/// The label value under which everything beyond the limit is counted.
const OTHER: &str = "other";

/// Longer label values are cut, bytes; names in the configuration are far shorter.
const MAX_LABEL_BYTES: usize = 128;

/// What the recorder gave for one series.
#[derive(Clone)]
pub(super) enum Handle {
    Counter(metrics::Counter),
    Gauge(metrics::Gauge),
    Histogram(metrics::Histogram),
    Nothing,
}

struct Series {
    labels: Box<[Box<str>]>,
    handle: Handle,
}

#[derive(Default)]
struct Known {
    /// By hash of the label values; a collision takes the next free number.
    series: Vec<HashMap<u64, Series, RandomState>>,
    used: u32,
}

/// All series of one daemon.
pub(super) struct Registry {
    recorder: PrometheusRecorder,
    hasher: RandomState,
    known: RwLock<Known>,
    max_series: u32,
    /// Kept free for the `other` bucket of each family.
    reserved: u32,
}

impl Registry {
    pub(super) fn new(recorder: PrometheusRecorder, max_series: u32) -> Self {
        let reserved = TABLE
            .iter()
            .filter(|f| !f.labels.is_empty() && f.kind.adds_up())
            .map(|f| f.kind.series_each())
            .sum();
        let series = TABLE.iter().map(|_| HashMap::default()).collect();
        Self {
            recorder,
            hasher: RandomState::default(),
            known: RwLock::new(Known { series, used: 0 }),
            max_series,
            reserved,
        }
    }

    pub(super) fn usage(&self) -> (u32, u32) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        (known.used, self.max_series)
    }

    /// The handle of family `index` at these label values, made if need be and if there is room.
    pub(super) fn handle(&self, index: usize, labels: &[&str]) -> Handle {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Ok(handle) = known.find(index, self.hasher.hash_one(labels), labels) {
            return handle;
        }
        drop(known);
        self.make(index, labels)
    }

    fn make(&self, index: usize, labels: &[&str]) -> Handle {
        let kind = TABLE[index].kind;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let key = match known.find(index, self.hasher.hash_one(labels), labels) {
            Ok(handle) => return handle,
            Err(key) => key,
        };
        let room = self.max_series.saturating_sub(self.reserved).saturating_sub(known.used);
        if room >= kind.series_each() {
            known.used += kind.series_each();
            return known.insert(index, key, labels, self.register(index, labels));
        }
        if !kind.adds_up() {
            return Handle::Nothing;
        }
        let other = vec![OTHER; labels.len()];
        match known.find(index, self.hasher.hash_one(other.as_slice()), &other) {
            Ok(handle) => handle,
            Err(key) => known.insert(index, key, &other, self.register(index, &other)),
        }
    }

    fn register(&self, index: usize, values: &[&str]) -> Handle {
        let family = &TABLE[index];
        let labels: Vec<Label> = family
            .labels
            .iter()
            .zip(values)
            .map(|(name, value)| Label::new(*name, cut(value).to_owned()))
            .collect();
        let key = Key::from_parts(family.name, labels);
        let metadata = Metadata::new(module_path!(), Level::INFO, None);
        match family.kind {
            Kind::Counter => Handle::Counter(self.recorder.register_counter(&key, &metadata)),
            Kind::Sum | Kind::Gauge => Handle::Gauge(self.recorder.register_gauge(&key, &metadata)),
            Kind::Histogram(_) => Handle::Histogram(self.recorder.register_histogram(&key, &metadata)),
        }
    }
}

impl Known {
    /// The handle, or the free number under which it would stand.
    fn find(&self, index: usize, hash: u64, labels: &[&str]) -> Result<Handle, u64> {
        let mut key = hash;
        while let Some(series) = self.series[index].get(&key) {
            if series.labels.iter().map(AsRef::as_ref).eq(labels.iter().copied()) {
                return Ok(series.handle.clone());
            }
            key = key.wrapping_add(1);
        }
        Err(key)
    }

    fn insert(&mut self, index: usize, key: u64, labels: &[&str], handle: Handle) -> Handle {
        let labels = labels.iter().map(|label| Box::from(*label)).collect();
        self.series[index].insert(key, Series { labels, handle: handle.clone() });
        handle
    }
}

fn cut(value: &str) -> &str {
    if value.len() <= MAX_LABEL_BYTES {
        return value;
    }
    let end = (0..=MAX_LABEL_BYTES).rev().find(|i| value.is_char_boundary(*i)).unwrap_or(0);
    &value[..end]
}

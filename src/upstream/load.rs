//! `[target.load]`: how full a target says it is, on its own Prometheus page.
//!
//! Inference servers count what waits and how much of their memory is taken before a caller feels it. Read as
//! backpressure only: above a share of fullness requests go elsewhere as long as somebody else can answer. Never as
//! readiness or health, since a page may be stale, missing or wrong while the model answers well. Off by default.
//!
//! Names are those of vLLM, SGLang, llama.cpp, TGI and Triton, told apart by themselves. Of several series of one
//! name (engines, cards, models) the fullest counts.

use serde::{Deserialize, Serialize};

use super::params::check_url;
use crate::units::Ms;

/// Often enough to see a queue grow, seldom enough not to be a load of its own.
const EVERY: Ms = Ms::from_secs(5);
/// Above four fifths of its memory a server begins to preempt and swap.
const ABOVE: f64 = 0.8;
/// So many waiting requests are a full queue: about half a minute of a server that answers one in two seconds.
const FULL_QUEUE: u32 = 16;

/// Share of the memory for keys and values that is taken, 0 to 1.
const CACHE: [&str; 5] = [
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "sglang_token_usage",
    "llamacpp:kv_cache_usage_ratio",
];
/// Share of time in which the card works, 0 to 1.
const GPU: [&str; 1] = ["nv_gpu_utilization"];
/// Requests that wait.
const QUEUE: [&str; 6] = [
    "vllm:num_requests_waiting",
    "sglang:num_queue_reqs",
    "sglang_num_queue_reqs",
    "llamacpp:requests_deferred",
    "tgi_queue_size",
    "nv_inference_pending_request_count",
];

/// `[target.load]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawLoad", into = "RawLoad")]
pub struct LoadParams(RawLoad);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLoad {
    url: String,
    #[serde(default = "every")]
    every: Ms,
    #[serde(default = "above")]
    above: f64,
    #[serde(default = "full_queue")]
    full_queue: u32,
}

const fn every() -> Ms {
    EVERY
}

const fn above() -> f64 {
    ABOVE
}

const fn full_queue() -> u32 {
    FULL_QUEUE
}

/// Why `[target.load]` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Not the URL of a page.
    #[error("{0}")]
    Url(String),
    /// Too often.
    #[error("every: must be at least 1s")]
    Every,
    /// Not a share.
    #[error("above: must be a share above 0 and below 1")]
    Above,
    /// No queue is ever full.
    #[error("full_queue: must be at least 1")]
    Queue,
}

impl TryFrom<RawLoad> for LoadParams {
    type Error = LoadError;

    fn try_from(raw: RawLoad) -> Result<Self, LoadError> {
        check_url(&raw.url).map_err(|fault| LoadError::Url(fault.to_string()))?;
        if raw.every < Ms::from_secs(1) {
            return Err(LoadError::Every);
        }
        if !(raw.above > 0.0 && raw.above < 1.0) {
            return Err(LoadError::Above);
        }
        if raw.full_queue == 0 {
            return Err(LoadError::Queue);
        }
        Ok(Self(raw))
    }
}

impl From<LoadParams> for RawLoad {
    fn from(params: LoadParams) -> Self {
        params.0
    }
}

impl LoadParams {
    /// The page.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// How often it is read, milliseconds.
    #[must_use]
    pub const fn every_ms(&self) -> u64 {
        self.0.every.as_millis()
    }

    /// Whether so full a target is under pressure.
    #[must_use]
    pub fn is_pressure(&self, load: &Load) -> bool {
        load.share > self.0.above
    }

    /// How full the page says the target is; `None` where it says nothing that is known.
    #[must_use]
    pub fn read(&self, page: &str) -> Option<Load> {
        let queue = f64::from(self.0.full_queue);
        let all = page.lines().filter_map(sample).filter_map(|(name, value)| {
            let (what, share) = if CACHE.contains(&name) {
                ("cache", value)
            } else if GPU.contains(&name) {
                ("gpu", value)
            } else if QUEUE.contains(&name) {
                ("queue", value / queue)
            } else {
                return None;
            };
            Some(Load { what, share: share.min(1.0) })
        });
        all.max_by(|a, b| a.share.total_cmp(&b.share))
    }
}

/// What of a target is fullest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// `queue`, `cache` or `gpu`.
    pub what: &'static str,
    /// How full, 0 to 1.
    pub share: f64,
}

/// Name and value of one line of the text format; `None` for comments, nonsense and what is no count or share.
fn sample(line: &str) -> Option<(&str, f64)> {
    let line = line.trim();
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    if name.is_empty() || name.starts_with('#') {
        return None;
    }
    let rest = match rest.strip_prefix('{') {
        Some(labels) => &labels[end_of_labels(labels)?..],
        None => rest,
    };
    let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((name, value))
}

/// Just behind the brace that closes the labels; one within a quoted value closes nothing.
fn end_of_labels(labels: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (i, byte) in labels.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(i + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn params() -> LoadParams {
        toml::from_str("url = \"http://127.0.0.1:8000/metrics\"").expect("reads")
    }

    #[test]
    fn the_fullest_of_each_servers_page_counts() {
        let vllm = "# HELP vllm:num_requests_waiting Number of requests waiting.\n\
             # TYPE vllm:num_requests_waiting gauge\n\
             vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 2.0\n\
             vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"a \\\"}\\\" b\"} 0.4\n\
             vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 0.91 1700000000000\n\
             vllm:kv_cache_usage_perc{engine=\"2\",model_name=\"m\"} NaN\n";
        let sglang = "sglang:num_queue_reqs{tp_rank=\"0\"} 3.0\nsglang:token_usage{tp_rank=\"0\"} 0.3\n";
        let llama = "llamacpp:requests_processing 4\nllamacpp:requests_deferred 46\n";
        let tgi = "tgi_request_count 9\r\ntgi_queue_size 12\r\n";
        let triton = "nv_gpu_utilization{gpu_uuid=\"GPU-1\"} 0.5\nnv_inference_pending_request_count{model=\"a\",version=\"1\"} 4\n";
        for (page, what, share) in [
            (vllm, "cache", 0.91),
            (sglang, "cache", 0.3),
            (llama, "queue", 1.0),
            (tgi, "queue", 0.75),
            (triton, "gpu", 0.5),
        ] {
            let load = params().read(page).expect(page);
            assert_eq!(load.what, what, "{page}");
            assert!((load.share - share).abs() < 1e-9, "{page}: {load:?}");
        }
        assert!(params().is_pressure(&Load { what: "cache", share: 0.81 }));
        assert!(!params().is_pressure(&Load { what: "cache", share: 0.8 }), "above, not at");
    }

    #[test]
    fn a_page_that_says_nothing_known_says_nothing() {
        for page in [
            "",
            "<html>404</html>",
            "process_cpu_seconds_total 3",
            "vllm:kv_cache_usage_perc",
            "tgi_queue_size -1",
        ] {
            assert_eq!(params().read(page), None, "{page}");
        }
    }

    #[test]
    fn odd_values_are_refused_by_name() {
        for (more, key) in [
            ("every = \"10ms\"", "every"),
            ("above = 1.0", "above"),
            ("full_queue = 0", "full_queue"),
            ("x = 1", "x"),
        ] {
            let text = format!("url = \"http://h/metrics\"\n{more}");
            let fault = toml::from_str::<LoadParams>(&text).expect_err(more).to_string();
            assert!(fault.contains(key), "{fault}");
        }
        assert!(toml::from_str::<LoadParams>("url = \"metrics\"").is_err());
    }

    proptest! {
        #[test]
        fn no_page_makes_it_fail_and_no_share_is_out_of_range(page in "(\\PC{0,20}|vllm:kv_cache_usage_perc|\\{a=\"|\\\\\"|\\} |[0-9.e+-]{0,6}|\n){0,30}") {
            if let Some(load) = params().read(&page) {
                prop_assert!((0.0..=1.0).contains(&load.share));
            }
        }
    }
}

//! What the monitor shows: counters as things happen, gauges and cards once a second.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::board::TargetCard;
use super::run::{Lane, Monitor};
use super::watched::Watched;
use crate::clock::Timestamp;
use crate::detect::Signal;
use crate::detect::drift::DriftSummary;
use crate::sample::{Done, Outcome};
use crate::verdict::{FaultClass, Mode};

/// The tier that answers from memory.
const CACHE: &str = "cache";
/// A caller that left before its answer.
const CLIENT_CLOSED: u16 = 499;

impl Monitor {
    /// Counts the end of an attempt.
    pub(super) fn count_outcome(&self, outcome: &Outcome) {
        let (m, target) = (&self.out.metrics, &*outcome.target);
        m.attempts(target, outcome.class.map_or("ok", FaultClass::as_str)).inc();
        if let Some(class) = outcome.class.filter(|c| *c != FaultClass::Info) {
            m.failures(target, class).inc();
        }
        for flag in outcome.flags.iter() {
            m.flags(target, flag).inc();
        }
        if outcome.light {
            m.samples_dropped("analysis").inc();
        }
        m.upstream_duration(target).observe_ms(outcome.timing.total_ms);
        if let Some(ms) = outcome.timing.ttft_ms {
            m.time_to_first_token(target).observe_ms(ms);
        }
        if let Some(usd) = outcome.cost_usd {
            m.cost_usd(target).add(usd);
        }
        let source = if outcome.usage.estimated { "estimated" } else { "upstream" };
        for (direction, count) in [("input", outcome.usage.input), ("output", outcome.usage.output)] {
            if let Some(count) = count {
                m.tokens(target, direction, source).add(count);
            }
        }
    }

    /// Counts the end of a caller's request.
    pub(super) fn count_done(&self, done: &Done) {
        let m = &self.out.metrics;
        let outcome = match done.client_status {
            CLIENT_CLOSED => "client_gone",
            200..400 if done.reason.is_some() => "degraded",
            200..400 => "ok",
            400..500 => "client_error",
            _ => "error",
        };
        m.requests(&done.route, &done.target, &done.tier, outcome).inc();
        m.request_duration(&done.route, &done.tier).observe_ms(done.ms);
        m.overhead(&done.route).observe_us(done.overhead_us);
        let has_cache =
            |lane: &Lane| lane.name == done.route && lane.tiers.iter().flatten().any(|n| **n == *CACHE);
        if self.lanes.iter().any(has_cache) && (*done.tier == *CACHE || *done.tier == *"none") {
            let result = if *done.tier == *CACHE { "hit" } else { "miss" };
            m.cache_requests(&done.route, result).inc();
        }
        let elsewhere = *done.tier != *"0" || done.target != done.first_target;
        if let Some(reason) = done.reason.filter(|_| elsewhere) {
            let to = if done.target.is_empty() { &done.tier } else { &done.target };
            m.fallbacks(&done.route, &done.first_target, to, reason).inc();
        }
    }

    /// Renews the board and the gauges.
    pub(super) fn show(&mut self, now: Timestamp) {
        let mut cards = BTreeMap::new();
        for (name, watched) in &self.targets {
            let drift = self.live.summaries(name);
            self.gauge(name, watched, &drift, now);
            cards.insert(Arc::clone(name), Arc::new(card(watched, &drift, now)));
        }
        let routes = self.route_cards(now);
        for route in &routes {
            if let Some(ratio) = route.fallback_ratio {
                self.out.metrics.fallback_share(&route.name).set(ratio);
            }
        }
        let m = &self.out.metrics;
        let store = self.out.store.health();
        m.store_write_failures().raise_to(store.write_failures);
        m.samples_dropped("store").raise_to(store.dropped);
        m.samples_dropped("store_rate").raise_to(store.spared);
        if let Some(embedder) = self.live.embedder() {
            let stats = embedder.stats();
            m.embed_queue_depth().set(stats.queue_depth as f64);
            if stats.done > std::mem::replace(&mut self.embedded_seen, stats.done) {
                m.embed_duration().observe_us(stats.last_us); // one a second stands for all
            }
            m.samples_dropped("embed_queue").raise_to(stats.skipped_full);
            m.samples_dropped("embed_budget").raise_to(stats.skipped_budget);
        }
        self.out.board.show(cards, routes);
    }

    fn gauge(&self, name: &str, watched: &Watched, drift: &[(Arc<str>, DriftSummary)], now: Timestamp) {
        let m = &self.out.metrics;
        let view = watched.core.view(now);
        m.set_breaker_state(name, view.breaker);
        m.set_health_state(name, view.health);
        m.misconfigured(name).set_bool(view.misconfigured);
        if let Some(ratio) = view.partial_failure_ratio {
            m.partial_failure(name).set(ratio);
        }
        let value = |signal| watched.core.signals().value(now, signal);
        for (stat, signal) in [("mean", Signal::EntropyMean), ("max", Signal::EntropyMax)] {
            if let Some(nats) = value(signal) {
                m.entropy(name, stat).set(nats);
            }
        }
        if let Some(coverage) = value(Signal::Coverage).or(view.coverage) {
            m.logprob_coverage(name).set(coverage);
        }
        if let Some(share) = value(Signal::GoldenAccuracy) {
            m.golden_accuracy(name).set(share);
        }
        for (kind, of) in [
            ("prompt", (|d: &DriftSummary| d.prompt) as fn(&DriftSummary) -> Option<f64>),
            ("response", |d| d.response),
        ] {
            if let Some(worst) = drift.iter().filter_map(|(_, d)| of(d)).max_by(f64::total_cmp) {
                m.drift_cosine(name, kind).set(worst);
            }
        }
        m.signal_available(name, "entropy")
            .set_bool(view.entropy_unavailable.is_none() && value(Signal::EntropyMean).is_some());
        m.signal_available(name, "drift").set_bool(drift.iter().any(|(_, d)| d.frozen));
        m.signal_available(name, "golden").set_bool(view.calibrated);
        for arm in &view.arms {
            let route = arm.route.as_deref().unwrap_or("");
            m.detector_statistic(name, route, arm.arm.as_str()).set(arm.statistic);
            m.detector_limit(name, route, arm.arm.as_str()).set(arm.limit);
        }
    }
}

fn card(watched: &Watched, drift: &[(Arc<str>, DriftSummary)], now: Timestamp) -> TargetCard {
    let view = watched.core.view(now);
    let mut reasons: Vec<String> = view.reasons.iter().map(|r| r.message.clone()).collect();
    if view.breaker_cause != "start"
        && !view.breaker_message.is_empty()
        && !reasons.contains(&view.breaker_message)
    {
        reasons.push(view.breaker_message.clone());
    }
    if let Some((done, planned)) = watched.calibration {
        reasons.push(format!("calibrating: {done} of {planned} golden calls made"));
    }
    let mut signals = serde_json::to_value(&view.signals).unwrap_or_default();
    if let Value::Object(map) = &mut signals {
        let mut missing = serde_json::Map::new();
        if !map.contains_key(Signal::EntropyMean.as_str()) {
            let why = view.entropy_unavailable.map_or("no answer with logprobs yet", |why| why.as_str());
            missing.insert("entropy".to_owned(), why.into());
        }
        match drift.iter().find(|(_, d)| d.frozen) {
            None => {
                let held = drift.iter().map(|(_, d)| d.reference).max().unwrap_or(0);
                let why = format!("the live reference is not frozen yet ({held} pairs)");
                missing.insert("drift".to_owned(), why.into());
            }
            Some((_, d)) if d.response.is_none() => {
                missing.insert("drift".to_owned(), "too few recent answers near the reference".into());
            }
            Some(_) => {}
        }
        map.insert("unavailable".to_owned(), Value::Object(missing));
    }
    let mut detail = serde_json::to_value(&view).unwrap_or_default();
    if let Value::Object(map) = &mut detail {
        for shown in
            ["name", "health", "breaker", "mode", "would_open", "reasons", "since", "calibrated", "signals"]
        {
            map.remove(shown); // stands on the card already
        }
        map.remove("next_probe_at");
        if let Some(load) = &watched.load {
            let load = load.as_ref().map_or_else(|why| json!({ "error": why }), |load| json!(load));
            map.insert("load".to_owned(), load);
        }
        map.insert("drift".to_owned(), drift_detail(drift));
        map.insert(
            "calibration".to_owned(),
            json!(watched.calibration.map(|(done, planned)| { json!({ "done": done, "planned": planned }) })),
        );
    }
    TargetCard {
        name: view.name,
        health: view.health,
        breaker: view.breaker,
        mode: watched.mode,
        would_open: watched.mode == Mode::Shadow && view.would_open,
        reasons,
        since: view.since,
        calibrated: view.calibrated,
        next_probe_at: view.next_probe_at.or(watched.next_call),
        signals,
        admission: watched.admission(now),
        detail,
    }
}

fn drift_detail(drift: &[(Arc<str>, DriftSummary)]) -> Value {
    let routes = drift
        .iter()
        .map(|(route, summary)| (route.to_string(), serde_json::to_value(summary).unwrap_or_default()));
    Value::Object(routes.collect())
}

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;
use crate::verdict::{FaultClass, Flag, Reason};

/// Names, labels of the public contract.
const CONTRACT: &str = "requests_total{route,target,tier,outcome} attempts_total{target,class} \
    failures_total{target,class} partial_failure_ratio{target} flags_total{target,flag} \
    request_duration_seconds{route,tier} upstream_duration_seconds{target} overhead_seconds{route} \
    time_to_first_token_seconds{target} breaker_state{target,state} \
    breaker_transitions_total{target,to,reason} breaker_open_seconds_total{target} \
    would_open_total{target,reason} health_state{target,state} entropy_nats{target,stat} \
    logprob_coverage_ratio{target} drift_cosine{target,kind} golden_accuracy_ratio{target} \
    detector_statistic{target,route,arm} detector_limit{target,route,arm} \
    signal_available{target,signal} fallback_ratio{route} fallbacks_total{route,from,to,reason} \
    retries_total{target,outcome} retry_tokens{scope} retry_waste_ratio{target} \
    permits_in_use{target} permits_limit{target} queue_depth{target} shed_total{target,reason} \
    tokens_total{target,direction,source} cost_usd_total{target} budget_spent_usd{window} \
    budget_limit_usd{window} cache_requests_total{route,result} samples_dropped_total{stage} \
    embed_queue_depth embed_duration_seconds store_write_failures_total shared_state_up gate_stale \
    misconfigured{target} build_info{version}";

fn samples(text: &str) -> usize {
    text.lines().filter(|line| !line.starts_with('#')).count()
}

fn one_of_each(metrics: &Metrics, target: &str) {
    metrics.requests("assistant", target, "0", "ok").inc();
    metrics.attempts(target, "ok").inc();
    metrics.failures(target, FaultClass::Slow).inc();
    metrics.partial_failure(target).set(0.25);
    metrics.flags(target, Flag::Repetition).inc();
    metrics.request_duration("assistant", "0").observe_ms(1_500);
    metrics.upstream_duration(target).observe_ms(1_400);
    metrics.overhead("assistant").observe_us(80);
    metrics.time_to_first_token(target).observe_ms(200);
    metrics.set_breaker_state(target, BreakerState::Open);
    metrics.breaker_transitions(target, BreakerState::Open, "golden_score").inc();
    metrics.breaker_open_seconds(target).add(1.5);
    metrics.would_open(target, "hard_faults").inc();
    metrics.set_health_state(target, HealthState::Degraded);
    metrics.entropy(target, "mean").set(1.25);
    metrics.logprob_coverage(target).set(1.0);
    metrics.drift_cosine(target, "response").set(0.09);
    metrics.golden_accuracy(target).set(0.9);
    metrics.detector_statistic(target, "assistant", "c2").set(3.0);
    metrics.detector_limit(target, "assistant", "c2").set(1e4);
    metrics.signal_available(target, "entropy").set_bool(true);
    metrics.fallback_share("assistant").set(0.1);
    metrics.fallbacks("assistant", target, "small", Reason::BreakerOpen).inc();
    metrics.retries(target, "succeeded").inc();
    metrics.retry_tokens("global").set(30.0);
    metrics.retry_waste(target).set(0.0);
    metrics.permits_in_use(target).set(1.0);
    metrics.permits_limit(target).set(3.0);
    metrics.queue_depth(target).set(0.0);
    metrics.shed(target, "overloaded").inc();
    metrics.tokens(target, "output", "reported").add(48);
    metrics.cost_usd(target).add(0.000_25);
    metrics.budget_spent_usd("hour").set(0.5);
    metrics.budget_limit_usd("hour").set(15.0);
    metrics.cache_requests("assistant", "hit").inc();
    metrics.samples_dropped("monitor").inc();
    metrics.embed_duration().observe(0.012);
    metrics.shared_state_up().set_bool(true);
    metrics.misconfigured(target).set_bool(false);
}

#[test]
fn the_table_is_the_contract() {
    let ours: BTreeSet<String> = TABLE
        .iter()
        .map(|f| match f.labels {
            [] => f.name.to_owned(),
            labels => format!("{}{{{}}}", f.name, labels.join(",")),
        })
        .collect();
    let contract: BTreeSet<String> =
        CONTRACT.split_whitespace().map(|name| format!("touchstone_{name}")).collect();
    assert_eq!(ours.difference(&contract).collect::<Vec<_>>(), Vec::<&String>::new(), "not promised");
    assert_eq!(contract.difference(&ours).collect::<Vec<_>>(), Vec::<&String>::new(), "promised");
    assert_eq!(TABLE.len(), contract.len(), "a name stands twice");
}

#[test]
fn every_name_is_shown_before_its_first_series() {
    let text = Metrics::default().render();
    for family in TABLE {
        assert!(text.contains(&format!("# TYPE {} {}\n", family.name, family.kind.type_word())));
        assert!(text.contains(&format!("# HELP {} {}\n", family.name, family.help)));
    }
    assert!(
        text.contains(&format!("touchstone_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION")))
    );
    assert!(text.contains("touchstone_gate_stale 0\n"));
    assert!(!text.contains("\ntouchstone_shared_state_up "), "no shared state is not a lost one");
}

#[test]
fn values_are_shown_as_they_were_given() {
    let metrics = Metrics::default();
    one_of_each(&metrics, "vllm-a");
    metrics.cost_usd("vllm-a").add(0.000_5);
    let text = metrics.render();
    for line in [
        r#"touchstone_requests_total{route="assistant",target="vllm-a",tier="0",outcome="ok"} 1"#,
        r#"touchstone_breaker_state{target="vllm-a",state="open"} 1"#,
        r#"touchstone_breaker_state{target="vllm-a",state="closed"} 0"#,
        r#"touchstone_health_state{target="vllm-a",state="degraded"} 1"#,
        r#"touchstone_cost_usd_total{target="vllm-a"} 0.00075"#,
        r#"touchstone_breaker_open_seconds_total{target="vllm-a"} 1.5"#,
        r#"touchstone_request_duration_seconds_bucket{route="assistant",tier="0",le="1"} 0"#,
        r#"touchstone_request_duration_seconds_bucket{route="assistant",tier="0",le="2.5"} 1"#,
        r#"touchstone_request_duration_seconds_bucket{route="assistant",tier="0",le="+Inf"} 1"#,
        r#"touchstone_overhead_seconds_count{route="assistant"} 1"#,
        r#"touchstone_tokens_total{target="vllm-a",direction="output",source="reported"} 48"#,
    ] {
        assert!(text.lines().any(|l| l == line), "missing: {line}\n{text}");
    }
}

#[test]
fn nothing_that_is_not_a_number_is_written() {
    let metrics = Metrics::default();
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        metrics.entropy("a", "mean").set(bad);
        metrics.cost_usd("a").add(bad);
        metrics.overhead("r").observe(bad);
    }
    metrics.cost_usd("a").add(-1.0);
    metrics.overhead("r").observe(-1.0);
    let text = metrics.render();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok());
        assert!(value.is_some_and(f64::is_finite), "{line}");
    }
    assert!(text.contains("touchstone_cost_usd_total{target=\"a\"} 0\n"));
    assert!(text.contains("touchstone_overhead_seconds_count{route=\"r\"} 0\n"));
}

#[test]
fn series_are_limited_and_the_rest_adds_up_under_other() {
    let metrics = Metrics::default();
    for i in 0..5_000 {
        one_of_each(&metrics, &format!("target-{i}"));
    }
    let text = metrics.render();
    assert!(samples(&text) <= 2_000, "{} series", samples(&text));
    assert!(samples(&text) > 1_500, "the limit is used: {}", samples(&text));
    assert!(text.contains("touchstone_attempts_total{target=\"other\",class=\"other\"} "));
    assert!(!text.contains("touchstone_permits_limit{target=\"other\"}"), "a gauge of many says nothing");
    let attempts: u64 = text
        .lines()
        .filter(|l| l.starts_with("touchstone_attempts_total{"))
        .filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok())
        .sum();
    assert_eq!(attempts, 5_000, "nothing is lost");
    let (used, limit) = metrics.series();
    assert!(used <= limit);
}

#[test]
fn odd_label_values_are_cut_and_escaped() {
    let metrics = Metrics::default();
    metrics.attempts("a\"b\\c\nd", "ok").inc();
    metrics.attempts(&"ü".repeat(4_000), "ok").inc();
    let text = metrics.render();
    assert!(text.contains(r#"target="a\"b\\c\nd""#), "{text}");
    assert!(text.lines().all(|line| line.len() < 400));
}

#[test]
fn two_daemons_in_one_process_do_not_mix() {
    let (a, b) = (Metrics::default(), Metrics::default());
    a.attempts("x", "ok").inc();
    assert!(!b.render().contains("target=\"x\""));
    let twin = a.clone();
    twin.attempts("x", "ok").inc();
    assert!(a.render().contains("touchstone_attempts_total{target=\"x\",class=\"ok\"} 2"));
}

#[test]
fn observations_survive_upkeep() {
    let metrics = Metrics::default();
    for _ in 0..3 {
        metrics.embed_duration().observe_ms(12);
        metrics.upkeep();
    }
    assert!(metrics.render().contains("touchstone_embed_duration_seconds_count 3\n"));
}

#[test]
fn a_total_kept_elsewhere_never_falls() {
    let metrics = Metrics::default();
    metrics.store_write_failures().raise_to(7);
    metrics.store_write_failures().raise_to(3);
    assert!(metrics.render().contains("touchstone_store_write_failures_total 7\n"));
}

#[test]
fn parameters_are_strict() {
    let read = |text: &str| serde_json::from_str::<Params>(text).map_err(|e| e.to_string());
    assert_eq!(read("{}"), Ok(Params::default()));
    assert!(read(r#"{"max_series": 5}"#).expect_err("too few").contains("max_series"));
    assert!(read(r#"{"series": 5}"#).expect_err("unknown").contains("unknown field"));
}

/// Needs `promtool` (Debian package `prometheus`); says so where it is absent.
#[test]
fn promtool_has_no_complaint() {
    let metrics = Metrics::default();
    one_of_each(&metrics, "vllm-a");
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: promtool is not installed");
        return;
    };
    child.stdin.take().expect("piped").write_all(metrics.render().as_bytes()).expect("writes");
    let output = child.wait_with_output().expect("ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

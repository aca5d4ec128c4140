use super::*;
use crate::sample::{Timing, Usage};
use crate::verdict::{FlagSet, Source};

fn outcome(i: u64, flags: &[Flag]) -> Outcome {
    let flags: FlagSet = flags.iter().copied().collect();
    Outcome {
        at: Timestamp::from_millis(1_000_000_000 + i * 1_000),
        route: Arc::from("r"),
        target: Arc::from("t"),
        generation: 0,
        source: Source::Live,
        class: flags.first_of(FaultClass::QualityHard).map(|_| FaultClass::QualityHard),
        flags,
        request_hash: i,
        status: Some(200),
        timing: Timing::default(),
        streaming: false,
        light: false,
        retry_after_ms: None,
        usage: Usage::default(),
        cost_usd: None,
        keyed: false,
    }
}

const BAD: &[Flag] = &[Flag::Repetition];

/// An arm that has seen `healthy` good answers, and the next index.
fn seasoned(healthy: u64) -> (HardFaults, u64) {
    let mut arm = HardFaults::new();
    for i in 0..healthy {
        assert_eq!(arm.on_outcome(&outcome(i, &[]), true), None);
    }
    (arm, healthy)
}

/// Answers until a finding when each is bad with probability `rate`.
fn delay(arm: &HardFaults, from: u64, rate: f64, seed: u64) -> u64 {
    let (mut arm, mut rng) = (arm.clone(), fastrand::Rng::with_seed(seed));
    (1..1_000)
        .find(|i| {
            let flags = if rng.f64() < rate { BAD } else { &[] };
            arm.on_outcome(&outcome(from + i, flags), true).is_some()
        })
        .expect("fires")
}

#[test]
fn three_bad_answers_in_a_row_suffice_however_long_health_lasted() {
    for healthy in [0, 1, 50, 2_000, 20_000] {
        let (arm, n) = seasoned(healthy);
        assert_eq!(delay(&arm, n, 1.0, 0), 3, "after {healthy}");
    }
}

#[test]
fn half_of_the_answers_bad_is_found_within_about_six() {
    for healthy in [0, 5_000] {
        let (arm, n) = seasoned(healthy);
        let delays: Vec<u64> = (0..400).map(|seed| delay(&arm, n, 0.5, seed)).collect();
        #[allow(clippy::cast_precision_loss)]
        let mean = delays.iter().sum::<u64>() as f64 / 400.0;
        let limit = if healthy == 0 { 11.0 } else { 6.5 }; // nothing known yet, or a season of health
        assert!((5.5..limit).contains(&mean), "after {healthy}: {mean}");
    }
}

#[test]
fn the_finding_speaks_in_words_and_numbers() {
    let (mut arm, n) = seasoned(5_000);
    let mut last = None;
    for i in 0..3 {
        last = arm.on_outcome(&outcome(n + i, &[Flag::Gibberish, Flag::Repetition]), true);
    }
    let finding = last.expect("fires");
    assert_eq!((finding.arm, finding.level, finding.n), (Arm::C2, Level::Degraded, 3));
    assert_eq!(finding.onset, Some(outcome(n, &[]).at));
    assert!(finding.statistic >= finding.limit);
    assert!(
        finding.message.starts_with(
            "3 of the last 3 answers on route r were unusable (repetition 3, gibberish 3); statistic"
        ),
        "{}",
        finding.message
    );
}

#[test]
fn one_caller_retrying_one_prompt_trips_nobody() {
    let (mut arm, n) = seasoned(2_000);
    for i in 0..200 {
        let mut o = outcome(n + i, BAD);
        o.request_hash = 42;
        assert_eq!(arm.on_outcome(&o, true), None);
    }
    for i in 0..200 {
        let mut o = outcome(n + 200 + i * 700, BAD); // once in ten minutes and more
        o.request_hash = 42;
        assert_eq!(arm.on_outcome(&o, false), None, "still one prompt");
    }
}

#[test]
fn what_is_no_answer_is_not_judged() {
    let mut arm = HardFaults::new();
    for i in 0..100 {
        for class in [FaultClass::Client, FaultClass::Upstream, FaultClass::Slow, FaultClass::Backpressure] {
            let mut o = outcome(i, BAD);
            o.class = Some(class);
            assert_eq!(arm.on_outcome(&o, true), None);
        }
    }
    assert!(arm.status(Timestamp::ZERO).is_empty());
}

#[test]
fn a_hundred_thousand_healthy_answers_never_open() {
    for (rate, seed) in [(0.0, 1), (2e-4, 2), (5e-4, 3), (1e-3, 4)] {
        let (mut arm, mut rng) = (HardFaults::new(), fastrand::Rng::with_seed(seed));
        for i in 0..100_000 {
            let flags = if rng.f64() < rate { BAD } else { &[] };
            assert_eq!(arm.on_outcome(&outcome(i, flags), true), None, "rate {rate}, answer {i}");
        }
    }
}

#[test]
fn a_route_whose_callers_ask_for_the_impossible_is_learned() {
    for rate in [0.01, 0.05] {
        let mut opened = 0;
        for seed in 0..50 {
            let (mut arm, mut rng) = (HardFaults::new(), fastrand::Rng::with_seed(seed));
            for i in 0..5_000 {
                let flags = if rng.f64() < rate { &[Flag::SchemaInvalid][..] } else { &[] };
                opened += u32::from(arm.on_outcome(&outcome(i, flags), true).is_some());
            }
            // and still sees the whole route fail
            assert!(delay(&arm, 5_000, 1.0, seed) <= 6);
        }
        assert!(opened <= 4, "{opened} openings in 50 routes of 5,000 answers at {rate}");
    }
}

#[test]
fn routes_are_judged_apart_and_bounded() {
    let mut arm = HardFaults::new();
    for i in 0..1_000 {
        let mut o = outcome(i, &[]);
        o.route = Arc::from(format!("r{i}"));
        assert_eq!(arm.on_outcome(&o, true), None);
    }
    assert!(arm.status(Timestamp::ZERO).len() <= MAX_ROUTES + 1);
}

#[test]
fn the_limit_follows_the_answers_of_thirty_days() {
    let (arm, n) = seasoned(50_000);
    let now = outcome(n, &[]).at;
    assert!((arm.limit(now) - 50_000.0).abs() < 1e-9);
    assert!((arm.limit(now.plus_ms(31 * DAY_MS)) - MIN_LIMIT).abs() < 1e-9);
    assert!((HardFaults::new().limit(Timestamp::ZERO) - MIN_LIMIT).abs() < 1e-9);
}

#[test]
fn healthy_rates_survive_a_restart() {
    let (arm, n) = seasoned(3_000);
    let text = serde_json::to_string(&arm.saved()).expect("writes");
    let twin = HardFaults::restore(&serde_json::from_str(&text).expect("reads"));
    assert_eq!(twin.saved(), arm.saved());
    assert_eq!(delay(&twin, n, 1.0, 0), 3);
}

#[test]
fn a_golden_rate_is_used_before_the_live_one_is_known() {
    let mut arm = HardFaults::new();
    arm.set_golden(Rate { faults: 0, answers: 460 });
    assert_eq!(delay(&arm, 0, 1.0, 0), 3);
    assert!(arm.on_outcome(&outcome(0, &[]), true).is_none());
    let status = &arm.status(outcome(0, &[]).at)[0];
    assert_eq!((status.arm, status.n, status.expected_delay), (Arm::C2, 1, Some(3.0)));
}

#[test]
fn a_clock_that_jumps_back_and_huge_runs_keep_numbers_finite() {
    let (mut arm, _) = seasoned(10);
    for i in 0..2_000_u64 {
        let mut o = outcome(5_000 - i, BAD);
        o.request_hash = 7; // one prompt: never fires, the statistic must stay finite
        o.at = Timestamp::from_millis(i % 7 * 1_000_000_000);
        assert_eq!(arm.on_outcome(&o, false), None);
    }
    assert!(arm.status(Timestamp::ZERO)[0].statistic.is_finite());
}

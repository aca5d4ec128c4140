use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::sample::{Timing, Usage};
use crate::verdict::{FaultClass, FlagSet};

const START: u64 = 1_000_000_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(START + ms)
}

fn outcome(ms: u64, generation: u64, class: Option<FaultClass>) -> Outcome {
    Outcome {
        at: at(ms),
        route: Arc::from("r"),
        target: Arc::from("t"),
        generation,
        source: Source::Live,
        class,
        flags: FlagSet::EMPTY,
        request_hash: ms,
        status: Some(200),
        timing: Timing { total_ms: 100, ..Timing::default() },
        streaming: false,
        light: false,
        retry_after_ms: None,
        usage: Usage::default(),
        cost_usd: None,
        keyed: false,
    }
}

fn breaker() -> Breaker {
    let mut b = Breaker::new(Params::default(), 7);
    b.set_golden(true, true);
    b
}

/// Sends one attempt of the present generation.
fn send(b: &mut Breaker, ms: u64, class: Option<FaultClass>) -> Option<Transition> {
    b.on_outcome(&outcome(ms, b.generation(), class))
}

const UPSTREAM: Option<FaultClass> = Some(FaultClass::Upstream);

/// Opens by five failures at `ms` and returns the due moment.
fn open(b: &mut Breaker, ms: u64) -> Timestamp {
    let last = (0..5).filter_map(|_| send(b, ms, UPSTREAM)).next_back().expect("opens");
    last.due.expect("an open breaker is due")
}

fn half_open(b: &mut Breaker, ms: u64) -> Timestamp {
    let due = open(b, ms);
    let transition = b.tick(due).expect("half-opens");
    assert_eq!((transition.to, transition.cause), (BreakerState::HalfOpen, Cause::Due));
    due
}

#[test]
fn an_empty_breaker_admits_everything_and_time_alone_changes_nothing() {
    let mut b = breaker();
    assert_eq!(b.tick(Timestamp::ZERO), None);
    assert_eq!(b.tick(at(0)), None);
    let a = b.admission(at(0));
    assert_eq!((a.state, a.live_probes, a.due, a.cause), (BreakerState::Closed, 0, None, "start"));
    assert!((a.share - 1.0).abs() < 1e-12);
    assert_eq!(b.partial_failure_ratio(at(0)), None);
    assert_eq!(b.take_probes(), 0);
}

#[test]
fn half_of_twenty_opens_and_says_so_in_numbers() {
    let mut b = breaker();
    for i in 0..19 {
        assert_eq!(send(&mut b, i * 10, if i % 2 == 0 { UPSTREAM } else { None }), None, "{i}");
    }
    let t = send(&mut b, 190, None).expect("20 attempts, 10 failed");
    assert_eq!((t.from, t.to, t.cause), (BreakerState::Closed, BreakerState::Open, Cause::FailureRatio));
    assert_eq!(t.message, "10 of 20 attempts failed in 60 s (50 %, limit 50 %)");
    assert_eq!(t.generation, 1);
    let wait = t.due.expect("due").ms_since(t.at);
    assert!((24_000..=36_000).contains(&wait));
}

#[test]
fn nine_of_twenty_do_not_open_and_are_a_partial_failure() {
    let mut b = breaker();
    for i in 0..20 {
        assert_eq!(send(&mut b, i, if i % 2 == 0 && i < 18 { UPSTREAM } else { None }), None);
    }
    assert!((b.partial_failure_ratio(at(20)).expect("enough") - 0.45).abs() < 1e-12);
    assert!(b.capacity_degraded(at(20)));
    assert_eq!(b.partial_failure_ratio(at(70_000)), None, "the window is empty again");
}

#[test]
fn five_in_a_row_open_and_a_success_between_starts_anew() {
    let mut b = breaker();
    for i in 0..4 {
        assert_eq!(send(&mut b, i, Some(FaultClass::Slow)), None);
    }
    assert_eq!(send(&mut b, 4, None), None);
    for i in 5..9 {
        assert_eq!(send(&mut b, i, UPSTREAM), None);
    }
    assert_eq!(send(&mut b, 9, UPSTREAM).map(|t| t.cause), Some(Cause::ConsecutiveFailures));
}

#[test]
fn callers_faults_and_quality_never_count() {
    let mut b = breaker();
    for i in 0..200 {
        for class in [FaultClass::Client, FaultClass::QualityHard, FaultClass::QualitySoft, FaultClass::Info]
        {
            assert_eq!(send(&mut b, i, Some(class)), None);
        }
    }
    assert_eq!(b.state(), BreakerState::Closed);
}

#[test]
fn a_callers_fault_between_failures_does_not_break_the_row() {
    let mut b = breaker();
    for i in 0..4 {
        assert_eq!(send(&mut b, i, UPSTREAM), None);
        assert_eq!(send(&mut b, i, Some(FaultClass::Client)), None);
    }
    assert!(send(&mut b, 9, UPSTREAM).is_some());
}

#[test]
fn slow_calls_must_last_to_open_and_shrink_admission_until_then() {
    let slow = |ms: u64, b: &mut Breaker| {
        let mut o = outcome(ms, b.generation(), None);
        o.timing.total_ms = 61_000;
        b.on_outcome(&o)
    };
    let mut b = breaker();
    for i in 0..20 {
        assert_eq!(slow(i * 1_000, &mut b), None);
    }
    assert!(b.slow_spike(at(19_000)));
    assert!((b.admission(at(19_000)).share - 0.5).abs() < 1e-12);
    let opened = (20..120).find_map(|i| slow(i * 1_000, &mut b)).expect("opens");
    assert_eq!(opened.cause, Cause::SlowCalls);
    assert_eq!(opened.at, at(64_000), "45 s after the twentieth call");
}

#[test]
fn a_flushed_prompt_cache_opens_nothing() {
    let params: Params = toml::from_str("slow = { limit = '2s' }").expect("reads");
    let mut b = Breaker::new(params, 1);
    for i in 0..1_200 {
        let mut o = outcome(i * 100, 0, None);
        o.timing.total_ms = if i < 300 { 3_000 } else { 200 };
        assert_eq!(b.on_outcome(&o), None, "at {} ms", i * 100);
    }
    assert!(!b.slow_spike(at(120_000)));
}

#[test]
fn the_gateway_preset_needs_more_than_twelve_percent_and_judges_the_tail() {
    let mut b = Breaker::new(Params::preset(Preset::Gateway), 1);
    for i in 0..100 {
        assert_eq!(
            send(&mut b, i, if (i + 1) * 12 / 100 > i * 12 / 100 { UPSTREAM } else { None }),
            None,
            "12 of 100"
        );
    }
    assert_eq!(send(&mut b, 101, UPSTREAM).map(|t| t.cause), Some(Cause::FailureRatio));
    let mut b = Breaker::new(Params::preset(Preset::Gateway), 1);
    let opened = (0..1_000).find_map(|i| {
        let mut o = outcome(i * 100, 0, None);
        o.timing.total_ms = if i % 20 == 0 { 5_000 } else { 100 };
        b.on_outcome(&o)
    });
    assert_eq!(opened.map(|t| t.cause), Some(Cause::SlowCalls));
}

#[test]
fn the_classic_preset_counts_to_five() {
    let mut b = Breaker::new(Params::preset(Preset::Classic), 1);
    let opened = (0..100).find_map(|i| send(&mut b, i, if i % 4 == 0 { UPSTREAM } else { None }));
    let opened = opened.expect("opens");
    assert_eq!((opened.cause, opened.at), (Cause::FailureCount, at(16)));
}

#[test]
fn ten_percent_refused_for_minutes_opens_nothing() {
    let mut b = breaker();
    for i in 0..3_000_u64 {
        let class = (i % 10 == 0).then_some(FaultClass::Backpressure);
        assert_eq!(send(&mut b, i * 100, class), None);
    }
}

#[test]
fn sixty_percent_refused_opens_once_it_persists() {
    let mut b = breaker();
    let opened = (0..3_000_u64).find_map(|i| {
        let class = (i % 5 < 3).then_some(FaultClass::Backpressure);
        send(&mut b, i * 100, class)
    });
    let opened = opened.expect("opens");
    assert_eq!(opened.cause, Cause::FailureRatio);
    assert!((30_000..31_000).contains(&opened.at.ms_since(at(0))), "{opened:?}");
}

#[test]
fn a_refusal_cools_the_target_down() {
    let mut b = breaker();
    let mut o = outcome(0, 0, Some(FaultClass::Backpressure));
    o.retry_after_ms = Some(3_000);
    assert_eq!(b.on_outcome(&o), None);
    assert_eq!(b.admission(at(0)).cooling_until, Some(at(3_000)));
    assert_eq!(b.admission(at(3_000)).cooling_until, None);
}

#[test]
fn three_sound_probes_close_and_the_ramp_climbs_on_clean_results() {
    let mut b = breaker();
    let due = half_open(&mut b, 0);
    let generation = b.generation();
    assert_eq!(b.trial(), Some(TrialKind::Probes));
    assert_eq!((b.take_probes(), b.take_probes()), (3, 0));
    assert_eq!(b.admission(due).live_probes, 0, "golden probes decide");
    assert_eq!(b.on_probe(due, generation, ProbeVerdict::Sound), None);
    assert_eq!(b.on_probe(due, generation, ProbeVerdict::Void("slow".into())), None);
    assert_eq!(b.take_probes(), 1, "a probe that shows nothing is replaced");
    assert_eq!(b.on_probe(due, generation, ProbeVerdict::Sound), None);
    let closed = b.on_probe(due, generation, ProbeVerdict::Sound).expect("closes");
    assert_eq!((closed.to, closed.cause), (BreakerState::Closed, Cause::ProbesPassed));
    let base = due.ms_since(at(0));
    let mut shares = vec![b.admission(due).share];
    for step in 1..=8_u64 {
        assert_eq!(send(&mut b, base + step * 5_000, None), None);
        shares.push(b.admission(at(base + step * 5_000)).share);
    }
    let want = [0.1, 0.1, 0.25, 0.25, 0.5, 0.5, 1.0, 1.0, 1.0];
    assert!(shares.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12), "{shares:?}");
}

#[test]
fn a_failure_holds_the_ramp_and_silence_does_not_climb_it() {
    let mut b = breaker();
    let due = half_open(&mut b, 0);
    let generation = b.generation();
    for _ in 0..3 {
        let _ = b.on_probe(due, generation, ProbeVerdict::Sound);
    }
    let base = due.ms_since(at(0));
    assert_eq!(b.tick(at(base + 60_000)), None);
    assert!((b.admission(at(base + 60_000)).share - 0.1).abs() < 1e-12, "no results, no step");
    assert_eq!(send(&mut b, base + 61_000, UPSTREAM), None);
    assert_eq!(send(&mut b, base + 65_000, None), None);
    assert!((b.admission(at(base + 65_000)).share - 0.1).abs() < 1e-12);
    assert_eq!(send(&mut b, base + 71_000, None), None);
    assert!((b.admission(at(base + 71_000)).share - 0.25).abs() < 1e-12);
}

#[test]
fn one_failed_probe_reopens_for_twice_as_long() {
    let mut b = breaker();
    let due = half_open(&mut b, 0);
    let generation = b.generation();
    let t = b.on_probe(due, generation, ProbeVerdict::Failed("connection refused".into())).expect("reopens");
    assert_eq!((t.to, t.cause), (BreakerState::Open, Cause::ProbeFailed));
    assert!((48_000..=72_000).contains(&t.due.expect("due").ms_since(due)));
}

#[test]
fn the_count_of_reopenings_is_forgotten_after_five_clean_minutes() {
    for (wait, low, high) in [(299_000, 48_000, 72_000), (300_000, 24_000, 36_000)] {
        let mut b = breaker();
        let due = half_open(&mut b, 0);
        let generation = b.generation();
        for _ in 0..3 {
            let _ = b.on_probe(due, generation, ProbeVerdict::Sound);
        }
        let later = due.plus_ms(wait);
        assert_eq!(b.tick(later), None);
        let reopened = open(&mut b, later.ms_since(at(0)));
        assert!((low..=high).contains(&reopened.ms_since(later)), "{wait}");
    }
}

#[test]
fn half_open_has_a_time_limit_once_a_probe_showed_life() {
    let mut b = breaker();
    let due = half_open(&mut b, 0);
    let _ = b.on_probe(due, b.generation(), ProbeVerdict::Sound);
    assert_eq!(b.tick(due.plus_ms(59_999)), None);
    let t = b.tick(due.plus_ms(60_000)).expect("time is up");
    assert_eq!((t.to, t.cause), (BreakerState::Open, Cause::TrialTimeout));
    assert_eq!(t.message, "1 of 3 sound probes within 60 s");
}

#[test]
fn golden_probes_that_never_come_give_way_to_live_ones() {
    let mut b = breaker();
    let due = half_open(&mut b, 0);
    assert_eq!(b.take_probes(), 3);
    assert_eq!(b.tick(due.plus_ms(30_000)), None);
    assert_eq!(b.trial(), Some(TrialKind::Live));
    assert_eq!(b.admission(due).live_probes, 3);
}

#[test]
fn live_probes_decide_without_a_golden_set() {
    let mut b = Breaker::new(Params::default(), 7);
    let due = half_open(&mut b, 0).ms_since(at(0));
    assert_eq!(b.admission(at(due)).live_probes, 3);
    assert_eq!(b.tick(at(due + 10_000_000)), None, "no callers, no verdict");
    let now = due + 10_000_000;
    assert_eq!(send(&mut b, now, None), None);
    assert_eq!(send(&mut b, now, Some(FaultClass::Client)), None);
    let mut slow = outcome(now, b.generation(), None);
    slow.timing.total_ms = 36_001;
    assert_eq!(b.on_outcome(&slow), None, "over 60 % of the slow limit shows nothing");
    assert_eq!(send(&mut b, now, None), None);
    assert_eq!(send(&mut b, now, None).map(|t| t.to), Some(BreakerState::Closed));
    let mut b = Breaker::new(Params::default(), 7);
    let due = half_open(&mut b, 0).ms_since(at(0));
    assert_eq!(send(&mut b, due, Some(FaultClass::QualityHard)).map(|t| t.cause), Some(Cause::ProbeFailed));
}

#[test]
fn after_a_quality_trip_only_a_burst_closes() {
    let mut b = breaker();
    let t = b.trip(at(0), Cause::HardFaults, "4 of 4 answers empty", false).expect("opens");
    assert_eq!(b.message(), "4 of 4 answers empty");
    let due = t.due.expect("due");
    assert!(b.tick(due).is_some());
    assert_eq!(b.trial(), Some(TrialKind::Burst));
    assert_eq!(b.take_probes(), 0);
    let generation = b.generation();
    assert_eq!(b.on_probe(due, generation, ProbeVerdict::Sound), None);
    b.on_burst_progress(due, generation);
    let t = b.on_burst(due, generation, false, "2 of 9 pass").expect("reopens");
    assert_eq!((t.to, t.cause), (BreakerState::Open, Cause::BurstFailed));
    let due = t.due.expect("due");
    assert!(b.tick(due).is_some());
    assert_eq!(b.trial(), Some(TrialKind::Burst), "still to be proven");
    let t = b.on_burst(due, b.generation(), true, "30 of 30 pass").expect("closes");
    assert_eq!((t.to, t.cause), (BreakerState::Closed, Cause::BurstPassed));
}

#[test]
fn a_burst_without_any_item_times_out_and_stays_a_quality_matter() {
    let mut b = breaker();
    let due = b.trip(at(0), Cause::GoldenBurst, "", false).and_then(|t| t.due).expect("due");
    assert!(b.tick(due).is_some());
    let t = b.tick(due.plus_ms(60_000)).expect("time is up");
    assert_eq!(t.cause, Cause::TrialTimeout);
    assert!(b.tick(t.due.expect("due")).is_some());
    assert_eq!(b.trial(), Some(TrialKind::Burst));
}

#[test]
fn the_last_target_stays_admitted_in_part() {
    let mut b = breaker();
    assert_eq!(b.trip(at(0), Cause::GoldenBurst, "worse", true), None);
    let a = b.admission(at(0));
    assert_eq!((a.state, a.cause), (BreakerState::Closed, "last_target"));
    assert!((a.share - 0.2).abs() < 1e-12);
    let mut cleared = b.clone();
    cleared.absolve(at(1));
    assert!((cleared.admission(at(1)).share - 1.0).abs() < 1e-12);
    assert!(b.trip(at(2), Cause::GoldenBurst, "worse", false).is_some(), "no longer alone");
    let params: Params = toml::from_str("allow_last = true").expect("reads");
    let mut b = Breaker::new(params, 1);
    assert!(b.trip(at(0), Cause::GoldenBurst, "worse", true).is_some());
    let mut b = breaker();
    assert_eq!(b.trip(at(0), Cause::GoldenBurst, "worse", true), None);
    open(&mut b, 1); // availability always opens
}

#[test]
fn an_operator_overrides_and_gives_back() {
    let mut b = breaker();
    let t = b.operator(at(0), Action::Open, "maintenance").expect("forces");
    assert_eq!((t.to, t.cause), (BreakerState::ForcedOpen, Cause::Operator));
    assert!(t.message.contains("maintenance"));
    assert_eq!(b.operator(at(1), Action::Open, ""), None);
    assert_eq!(b.tick(at(10_000_000)), None);
    assert!(b.admission(at(2)).share.abs() < 1e-12);
    assert_eq!(b.operator(at(3), Action::Auto, "").map(|t| t.to), Some(BreakerState::HalfOpen));
    assert_eq!(b.operator(at(4), Action::Close, "").map(|t| t.to), Some(BreakerState::ForcedClosed));
    for i in 0..100 {
        assert_eq!(send(&mut b, 5 + i, UPSTREAM), None, "a forced breaker does not open");
    }
    assert_eq!(b.trip(at(200), Cause::HardFaults, "", false), None);
    assert_eq!(b.operator(at(300), Action::Auto, "").map(|t| t.to), Some(BreakerState::Closed));
    assert!((b.admission(at(300)).share - 1.0).abs() < 1e-12);
    assert_eq!(b.operator(at(301), Action::Auto, ""), None);
}

#[test]
fn due_survives_a_restart_and_is_never_later_than_the_longest_open_time() {
    let mut b = breaker();
    let due = open(&mut b, 0);
    let text = serde_json::to_string(&b.saved()).expect("writes");
    let saved: Saved = serde_json::from_str(&text).expect("reads");
    let mut twin = Breaker::restore(Params::default(), 99, saved.clone(), at(5_000));
    assert_eq!((twin.state(), twin.due()), (BreakerState::Open, Some(due)));
    assert!(twin.generation() > b.generation());
    assert_eq!(twin.tick(due.minus_ms(1)), None);
    assert_eq!(twin.tick(due).map(|t| t.cause), Some(Cause::Due));
    let far = Saved { due: Some(Timestamp::from_millis(u64::MAX)), ..saved.clone() };
    let mut twin = Breaker::restore(Params::default(), 99, far, at(0));
    assert!(twin.tick(at(120_000)).is_some());
    let trial = Saved { state: BreakerState::HalfOpen, due: None, ..saved };
    let mut twin = Breaker::restore(Params::default(), 99, trial, at(0));
    assert_eq!(twin.tick(at(0)).map(|t| t.to), Some(BreakerState::HalfOpen));
}

#[test]
fn a_forced_state_survives_a_restart() {
    let mut b = breaker();
    let _ = b.operator(at(0), Action::Open, "x");
    let twin = Breaker::restore(Params::default(), 1, b.saved(), at(9));
    assert_eq!(twin.state(), BreakerState::ForcedOpen);
}

#[test]
fn open_past_due_wakes_the_watchdog() {
    let mut b = breaker();
    let due = open(&mut b, 0);
    let t = b.tick(due.plus_ms(10_001)).expect("forced");
    assert_eq!((t.to, t.cause), (BreakerState::HalfOpen, Cause::Watchdog));
}

#[test]
fn a_clock_that_jumps_back_a_little_stands_and_far_is_corrected() {
    let mut b = breaker();
    let due = open(&mut b, 100_000_000);
    assert_eq!(b.tick(at(99_990_000)), None);
    assert_eq!(b.due(), Some(due), "disorder changes nothing");
    assert_eq!(b.tick(at(1_000)), None);
    assert!(b.due().expect("due") <= at(121_000), "nobody waits for a moment of the old clock");
    assert!(b.tick(at(121_000)).is_some());
}

#[test]
fn another_instances_trip_is_taken_over_with_its_due_moment_and_an_operators_word_stands_above_it() {
    let mut b = breaker();
    let t = b.adopt(at(0), true, Some(at(20_000)), Cause::HardFaults, "elsewhere").expect("opens");
    assert_eq!((t.to, t.due, t.generation), (BreakerState::Open, Some(at(20_000)), 1));
    assert_eq!(
        b.adopt(at(1), true, Some(at(90_000)), Cause::HardFaults, "again"),
        None,
        "it is open already"
    );
    assert_eq!(b.tick(at(19_999)), None);
    assert_eq!(b.tick(at(20_000)).map(|t| t.to), Some(BreakerState::HalfOpen));
    assert_eq!(b.trial(), Some(TrialKind::Burst), "a quality matter stays one");
    let closed = b.adopt(at(21_000), false, None, Cause::BurstPassed, "elsewhere").expect("closes");
    assert_eq!(closed.to, BreakerState::Closed);
    assert!((b.admission(at(21_000)).share - 0.1).abs() < 1e-12, "the ramp begins here too");
    let _ = b.operator(at(22_000), Action::Close, "");
    assert_eq!(b.adopt(at(23_000), true, None, Cause::HardFaults, "elsewhere"), None);
    let mut far = breaker();
    let t = far.adopt(at(0), true, Some(at(u64::MAX - START)), Cause::FailureRatio, "x").expect("opens");
    assert_eq!(t.due, Some(at(120_000)), "never longer than the longest open time");
}

#[test]
fn a_late_failure_of_the_former_life_does_not_reopen() {
    let mut b = breaker();
    let due = half_open(&mut b, 0);
    let generation = b.generation();
    for _ in 0..3 {
        let _ = b.on_probe(due, generation, ProbeVerdict::Sound);
    }
    for i in 0..50 {
        assert_eq!(b.on_outcome(&outcome(due.ms_since(at(0)) + i, 0, UPSTREAM)), None);
    }
    assert_eq!(b.on_probe(due, generation, ProbeVerdict::Failed("late".into())), None);
    assert_eq!(b.state(), BreakerState::Closed);
}

#[derive(Clone, Debug)]
enum Step {
    Attempt { class: u8, late: bool },
    Probe { sound: u8, late: bool },
    Burst { accepted: bool },
    Trip { alone: bool },
    Operator(u8),
    Tick,
}

/// How the clock goes on: as time does, back by ten times that, a day forward, a day back.
const DAY_MS: i64 = 86_400_000;

fn steps() -> impl Strategy<Value = Vec<(u64, i64, Step)>> {
    let step = prop_oneof![
        6 => (0_u8..7, any::<bool>()).prop_map(|(class, late)| Step::Attempt { class, late }),
        3 => (0_u8..3, any::<bool>()).prop_map(|(sound, late)| Step::Probe { sound, late }),
        1 => any::<bool>().prop_map(|accepted| Step::Burst { accepted }),
        1 => any::<bool>().prop_map(|alone| Step::Trip { alone }),
        1 => (0_u8..3).prop_map(Step::Operator),
        4 => Just(Step::Tick),
    ];
    let jump = prop_oneof![90 => Just(0), 5 => Just(-1), 3 => Just(DAY_MS), 3 => Just(-DAY_MS)];
    prop::collection::vec((0_u64..40_000, jump, step), 1..200)
}

proptest! {
    #[test]
    fn the_laws_hold_whatever_happens(steps in steps(), golden in any::<bool>(), seed in any::<u64>()) {
        let mut b = Breaker::new(Params::default(), seed);
        b.set_golden(golden, golden);
        let (mut now, mut outstanding) = (1_000_000_000_u64, 0_u32);
        for (wait, jump, step) in steps {
            now = match jump {
                -1 => now.saturating_sub(wait * 10),
                jump => now.saturating_add(wait).saturating_add_signed(jump),
            };
            let before = (b.state(), b.generation());
            let probing = b.trial();
            let transition = match &step {
                Step::Attempt { class, late } => {
                    let class = FaultClass::ALL.get(usize::from(*class)).copied();
                    let mut o = outcome(0, b.generation().wrapping_sub(u64::from(*late)), class);
                    o.at = at(now);
                    b.on_outcome(&o)
                }
                Step::Probe { sound, late } => {
                    let verdict = match sound {
                        0 => ProbeVerdict::Sound,
                        1 => ProbeVerdict::Void(String::new()),
                        _ => ProbeVerdict::Failed(String::new()),
                    };
                    if !late && probing == Some(TrialKind::Probes) { outstanding = outstanding.saturating_sub(1); }
                    b.on_probe(at(now), b.generation().wrapping_sub(u64::from(*late)), verdict)
                }
                Step::Burst { accepted } => b.on_burst(at(now), b.generation(), *accepted, ""),
                Step::Trip { alone } => b.trip(at(now), Cause::GoldenBurst, "", *alone),
                Step::Operator(a) => b.operator(at(now), [Action::Open, Action::Close, Action::Auto][usize::from(*a)], ""),
                Step::Tick => b.tick(at(now)),
            };
            if matches!(step, Step::Attempt { late: true, .. } | Step::Probe { late: true, .. }) {
                prop_assert!(transition.is_none(), "a late result changes nothing");
            }
            match &transition {
                Some(t) => {
                    prop_assert_eq!((t.from, t.generation), (before.0, before.1 + 1));
                    prop_assert!(t.to != t.from || t.to == BreakerState::Open);
                    prop_assert_eq!(t.due.is_some(), t.to == BreakerState::Open);
                    outstanding = 0;
                }
                None => prop_assert_eq!((b.state(), b.generation()), before),
            }
            if b.trial() != Some(TrialKind::Probes) { outstanding = 0; }
            outstanding += b.take_probes();
            prop_assert!(outstanding <= 3, "never more probes than allowed");
            let a = b.admission(at(now));
            prop_assert!(a.live_probes <= 3 && (a.live_probes == 0 || a.state == BreakerState::HalfOpen));
            prop_assert!((0.0..=1.0).contains(&a.share));
            if matches!(a.state, BreakerState::Open | BreakerState::ForcedOpen | BreakerState::HalfOpen) {
                prop_assert!(a.share.abs() < 1e-12, "never admits while open");
            }
            if let Some(due) = a.due {
                prop_assert!(due.ms_since(b.since()) <= 120_000, "never longer open than promised");
            }
        }
    }
}

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn at(s: u64) -> Timestamp {
    Timestamp::from_millis(DAY_MS * 20_000 + s * 1_000)
}

fn busy_at(s: u64) -> Context {
    Context { breaker: BreakerState::Closed, generation: 1, last_seen: Some(at(s)) }
}

fn canary(text: &str) -> CanaryParams {
    toml::from_str(text).expect("reads")
}

fn burst(text: &str) -> BurstParams {
    toml::from_str(text).expect("reads")
}

fn schedule() -> Schedule {
    Schedule::new(CanaryParams::default(), BurstParams::default(), (12, 60), 3, at(0))
}

/// Runs second by second with traffic; every job ends at once.
fn run(s: &mut Schedule, from: u64, to: u64) -> Vec<(u64, Job)> {
    let mut jobs = Vec::new();
    for t in from..to {
        while let Some(job) = s.next_job(at(t), &busy_at(t)) {
            s.finished();
            jobs.push((t, job));
        }
    }
    jobs
}

#[test]
fn canaries_come_once_a_minute_in_random_rounds() {
    let mut s = schedule();
    let jobs = run(&mut s, 0, 7_200);
    let prompts: Vec<usize> = jobs
        .iter()
        .filter_map(|(_, j)| if let Job::Canary { prompt } = j { Some(*prompt) } else { None })
        .collect();
    assert!((110..=132).contains(&prompts.len()), "{}", prompts.len());
    for round in prompts.chunks_exact(12) {
        let mut sorted = round.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..12).collect::<Vec<_>>(), "each once a round");
    }
    assert_ne!(prompts[..12], prompts[12..24], "not the same order twice");
    let gaps: Vec<u64> = jobs.windows(2).map(|w| w[1].0 - w[0].0).collect();
    assert!(gaps.iter().any(|g| *g != gaps[0]), "jittered");
    let mut twin = schedule();
    assert_eq!(run(&mut twin, 0, 7_200), jobs, "the same seed gives the same schedule");
}

#[test]
fn a_target_without_callers_is_left_alone() {
    let mut s = schedule();
    for t in 0..100_000 {
        let nobody = Context { last_seen: None, ..busy_at(t) };
        assert_eq!(s.next_job(at(t), &nobody), None);
        let quiet = Context { last_seen: Some(at(t).minus_ms(600_000)), ..busy_at(t) };
        assert_eq!(s.next_job(at(t), &quiet), None);
        assert_eq!(s.paused(at(t), &quiet), Some("no traffic lately"));
        assert_eq!(s.next_at(at(t), &quiet), None);
    }
    assert!(s.next_job(at(100_000), &busy_at(100_000)).is_some(), "and is looked at when they return");
    let mut s = Schedule::new(canary("idle_pause = '0s'"), BurstParams::default(), (3, 0), 1, at(0));
    let nobody = Context { last_seen: None, ..busy_at(0) };
    assert!(s.next_job(at(120), &nobody).is_some(), "0 never pauses");
}

#[test]
fn an_open_target_gets_probes_only() {
    let mut s = schedule();
    s.ask_probes(7, 3);
    let open = Context { breaker: BreakerState::Open, generation: 6, ..busy_at(500) };
    assert_eq!(s.next_job(at(500), &open), None);
    let half = Context { breaker: BreakerState::HalfOpen, generation: 7, ..busy_at(500) };
    for _ in 0..3 {
        assert!(matches!(s.next_job(at(500), &half), Some(Job::Probe { generation: 7, .. })));
    }
    assert_eq!(s.next_job(at(500), &half), None);
    s.ask_probes(7, 2);
    s.ask_probes(8, 1);
    assert_eq!(s.next_job(at(500), &half), None, "those of an earlier generation are dropped");
}

#[test]
fn nothing_runs_beside_a_burst_but_probes() {
    let mut s = schedule();
    assert_eq!(s.ask_burst(at(0), BurstReason::Demand, 1), Ok(()));
    let job = s.next_job(at(0), &busy_at(0)).expect("begins");
    let Job::Burst { reason, prompts, .. } = job else { panic!("a burst: {job:?}") };
    assert_eq!((reason, prompts.len()), (BurstReason::Demand, 50));
    let distinct: std::collections::BTreeSet<_> = prompts.iter().collect();
    assert_eq!(distinct.len(), 50);
    assert_eq!(s.next_job(at(3_000), &busy_at(3_000)), None);
    assert_eq!(s.ask_burst(at(3_000), BurstReason::Demand, 1), Err(Refusal::Busy));
    s.ask_probes(2, 1);
    let half = Context { breaker: BreakerState::HalfOpen, generation: 2, ..busy_at(3_000) };
    assert!(matches!(s.next_job(at(3_000), &half), Some(Job::Probe { .. })));
    s.finished();
    assert!(s.next_job(at(3_001), &busy_at(3_001)).is_some());
}

#[test]
fn suspicion_asks_at_most_four_times_an_hour_and_recovery_always() {
    let mut s = schedule();
    for i in 0..4 {
        assert_eq!(s.ask_burst(at(i * 300), BurstReason::Suspicion, 1), Ok(()));
        let jobs = run(&mut s, i * 300, i * 300 + 1);
        assert!(matches!(jobs[0].1, Job::Burst { reason: BurstReason::Suspicion, .. }));
    }
    assert_eq!(s.ask_burst(at(1_200), BurstReason::Suspicion, 1), Err(Refusal::Hour));
    assert_eq!(s.ask_burst(at(1_200), BurstReason::HalfOpen, 1), Ok(()));
    assert_eq!(s.ask_burst(at(3_601), BurstReason::Demand, 2), Ok(()), "another generation replaces");
    let mut s = schedule();
    assert_eq!(s.ask_burst(at(0), BurstReason::Schedule, 1), Ok(()));
    assert_eq!(s.ask_burst(at(0), BurstReason::Suspicion, 1), Ok(()), "weightier replaces");
    assert_eq!(s.ask_burst(at(0), BurstReason::Changed, 1), Err(Refusal::Busy));
}

#[test]
fn bursts_come_every_six_hours_or_never() {
    let mut s = schedule();
    let bursts: Vec<u64> = run(&mut s, 0, 48 * 3_600)
        .iter()
        .filter(|(_, j)| matches!(j, Job::Burst { .. }))
        .map(|(t, _)| *t)
        .collect();
    assert!((6..=10).contains(&bursts.len()), "{bursts:?}");
    let off = burst("every = 'off'\non_suspicion = false");
    let mut s = Schedule::new(canary("every = 'off'"), off, (12, 60), 3, at(0));
    assert!(run(&mut s, 0, 48 * 3_600).is_empty());
    assert_eq!(s.ask_burst(at(0), BurstReason::Suspicion, 1), Err(Refusal::SwitchedOff));
    assert_eq!(s.ask_burst(at(0), BurstReason::HalfOpen, 1), Ok(()), "recovery is not suspicion");
}

#[test]
fn the_days_budget_bounds_calls_and_money() {
    let mut s = Schedule::new(canary("max_usd_per_day = 0.01"), BurstParams::default(), (12, 0), 3, at(0));
    let mut calls = BTreeMap::<u64, u32>::new();
    for t in 0..2 * 86_400 {
        while let Some(_job) = s.next_job(at(t), &busy_at(t)) {
            s.charge(at(t), false, 0.001);
            s.finished();
            *calls.entry(t / 86_400).or_default() += 1;
        }
    }
    assert_eq!(calls, BTreeMap::from([(0, 10), (1, 10)]));
    assert_eq!(
        s.paused(at(2 * 86_400 - 1), &busy_at(2 * 86_400 - 1)),
        Some("the budget of the day is spent")
    );
    let mut s = Schedule::new(canary("max_calls_per_day = 5"), BurstParams::default(), (12, 0), 3, at(0));
    for _ in 0..5 {
        s.charge(at(1), false, f64::NAN);
    }
    assert!(run(&mut s, 1, 3_600).is_empty());
    assert!((s.spent().canary_usd).abs() < 1e-12, "a price that is no number costs nothing");
    let text = serde_json::to_string(&s.spent()).expect("writes");
    let mut twin = Schedule::new(canary("max_calls_per_day = 5"), BurstParams::default(), (12, 0), 3, at(0));
    twin.restore(serde_json::from_str(&text).expect("reads"));
    assert!(run(&mut twin, 1, 3_600).is_empty(), "a restart does not refill the budget");
}

#[test]
fn an_empty_golden_set_asks_nothing() {
    let mut s = Schedule::new(CanaryParams::default(), BurstParams::default(), (0, 0), 3, at(0));
    s.ask_probes(1, 3);
    assert!(run(&mut s, 0, 100_000).is_empty());
    assert_eq!(s.ask_burst(at(0), BurstReason::Demand, 1), Err(Refusal::NoPrompts));
    assert_eq!(calls_a_day(&CanaryParams::default(), &BurstParams::default(), (0, 0)), (0, 0));
    assert_eq!(calls_a_day(&CanaryParams::default(), &BurstParams::default(), (12, 60)), (1_440, 200));
}

#[test]
fn nonsense_is_refused_by_name_and_the_rest_reads_back() {
    for (text, key) in [
        ("max_usd_per_day = -1.0", "max_usd_per_day"),
        ("max_usd_per_day = nan", "max_usd_per_day"),
        ("every = '1ms'", "every"),
        ("often = true", "often"),
    ] {
        assert!(toml::from_str::<CanaryParams>(text).expect_err(text).to_string().contains(key));
    }
    for (text, key) in [("items = 0", "items"), ("items = 51", "items"), ("max_per_hour = 0", "max_per_hour")]
    {
        assert!(toml::from_str::<BurstParams>(text).expect_err(text).to_string().contains(key));
    }
    let text = toml::to_string(&CanaryParams::default()).expect("writes");
    assert_eq!(canary(&text), CanaryParams::default());
    let text = toml::to_string(&BurstParams::default()).expect("writes");
    assert_eq!(burst(&text), BurstParams::default());
}

proptest! {
    #[test]
    fn never_in_parallel_and_never_while_open(steps in prop::collection::vec((0_u64..600, 0_u8..4, any::<bool>()), 1..200), seed in any::<u64>()) {
        let mut s = Schedule::new(CanaryParams::default(), BurstParams::default(), (5, 9), seed, at(0));
        let (mut t, mut running) = (0, false);
        for (wait, state, ends) in steps {
            t += wait;
            let breaker = [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen, BreakerState::ForcedOpen][usize::from(state)];
            let _ = s.ask_burst(at(t), BurstReason::Suspicion, 1);
            s.ask_probes(1, 1);
            match s.next_job(at(t), &Context { breaker, ..busy_at(t) }) {
                Some(Job::Probe { .. }) => prop_assert_eq!(breaker, BreakerState::HalfOpen),
                Some(_) => {
                    prop_assert!(!running && breaker == BreakerState::Closed);
                    running = true;
                }
                None => {}
            }
            if ends && running {
                s.finished();
                running = false;
            }
        }
    }
}

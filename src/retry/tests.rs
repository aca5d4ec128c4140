use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::clock::Timestamp;

const fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// Where no retries were stopped, whatever generation the breaker has.
const CLOSED: Option<u64> = Some(0);

fn budget() -> (Params, TargetBudget) {
    let params = Params::default();
    (params, TargetBudget::new(&params))
}

fn drain(budget: &mut TargetBudget, params: &Params, ms: u64) -> usize {
    (0..10_000).take_while(|_| budget.take(params, at(ms), CLOSED).is_ok()).count()
}

#[test]
fn a_burst_of_thirty_then_ten_a_second() {
    let mut bucket = Params::default().bucket(at(0));
    assert_eq!((0..50).filter(|_| bucket.take(at(0))).count(), 30);
    assert!(!bucket.take(at(50)));
    assert_eq!((0..50).filter(|_| bucket.take(at(1_000))).count(), 10);
    let back = (0..50).filter(|_| bucket.take(at(500))).count();
    assert_eq!(back, 0, "a clock that jumps back refills nothing");
    assert_eq!((0..99).filter(|_| bucket.take(at(1 << 40))).count(), 30, "never more than the burst");
}

#[test]
fn waits_grow_to_their_cap_and_never_exceed_it() {
    let params = Params::default();
    assert_eq!(params.backoff_ms(0, 1.0), 200);
    assert_eq!(params.backoff_ms(3, 1.0), 1_600);
    assert_eq!(params.backoff_ms(60, 1.0), 10_000);
    assert_eq!(params.backoff_ms(60, 0.0), 0);
    assert!(params.backoff_ms(u32::MAX, f64::NAN) <= 10_000);
}

#[test]
fn shrinking_waits_and_odd_rates_are_refused() {
    for (text, key) in [
        ("backoff_max = \"1ms\"", "backoff_max"),
        ("burst = -1.0", "burst"),
        ("burst = nan", "burst"),
        ("target_ratio = -0.1", "target_ratio"),
        ("waste_below = 1.1", "waste_below"),
        ("target_window = \"0s\"", "target_window"),
        ("waste_min = 0", "waste_min"),
        ("colour = 1", "colour"),
    ] {
        let fault = toml::from_str::<Params>(text).expect_err(text).to_string();
        assert!(fault.contains(key), "{text}: {fault}");
    }
}

#[test]
fn a_fifth_of_the_first_tries_and_ten_a_second_may_be_repeated() {
    let (params, mut quiet) = budget();
    assert_eq!(drain(&mut quiet, &params, 0), 100, "ten a second over ten seconds");
    assert_eq!(quiet.take(&params, at(0), CLOSED), Err(Refused::Ratio));
    let (params, mut busy) = budget();
    (0..1_000).for_each(|i| busy.on_first(&params, at(i * 9), true, 50));
    assert_eq!(drain(&mut busy, &params, 9_000), 300, "a fifth of a thousand and the floor");
    assert_eq!(drain(&mut busy, &params, 12_000), 0, "the retries leave the window last");
    assert_eq!(drain(&mut busy, &params, 30_000), 100);
}

#[test]
fn a_slow_retry_halves_the_refill_for_a_minute_and_never_below_an_eighth() {
    let (params, mut b) = budget();
    (0..20).for_each(|_| b.on_first(&params, at(0), true, 300));
    let share = |b: &TargetBudget, ms| b.refill_at(&params, at(ms));
    b.on_retry(&params, at(0), true, 2_299, 0);
    assert!((share(&b, 0) - 1.0).abs() < 1e-12, "within two seconds of the usual");
    b.on_retry(&params, at(0), true, 2_301, 0);
    assert!((share(&b, 0) - 0.5).abs() < 1e-12);
    (0..9).for_each(|_| b.on_retry(&params, at(1_000), true, 9_000, 0));
    assert!((share(&b, 1_000) - 0.125).abs() < 1e-12);
    assert!((share(&b, 61_000) - 1.0).abs() < 1e-12, "a minute later it is forgotten");
    assert_eq!(drain(&mut b, &params, 1_000), 13, "an eighth of 104");
}

#[test]
fn retries_that_hardly_ever_succeed_are_stopped_until_first_tries_succeed() {
    let (params, mut b) = budget();
    for i in 0..19 {
        b.on_retry(&params, at(i), i < 5, 100, 0);
    }
    assert_eq!(b.check(&params, at(20), CLOSED), Ok(()), "nineteen say nothing");
    b.on_retry(&params, at(20), false, 100, 0);
    assert_eq!(b.check(&params, at(20), CLOSED), Err(Refused::Waste));
    assert!(b.waste_at(at(20)).is_some_and(|waste| waste > 0.7));
    for i in 0..19 {
        b.on_first(&params, at(100 + i), i >= 4, 100);
    }
    assert_eq!(b.check(&params, at(200), CLOSED), Err(Refused::Waste));
    b.on_first(&params, at(200), true, 100);
    assert_eq!(b.check(&params, at(200), CLOSED), Ok(()), "16 of 20");
}

#[test]
fn a_breaker_that_closed_again_allows_retries_again() {
    let (params, mut b) = budget();
    (0..20).for_each(|i| b.on_retry(&params, at(i), false, 100, 4));
    assert_eq!(b.check(&params, at(20), Some(4)), Err(Refused::Waste), "it has not opened yet");
    assert_eq!(b.check(&params, at(20), None), Err(Refused::Waste), "it is open");
    assert_eq!(b.take(&params, at(20), Some(7)), Ok(()), "it has closed");
    assert!(!b.is_wasted());
}

#[test]
fn a_workflow_has_three_tokens_over_all_of_its_requests() {
    let mut workflows = Workflows::default();
    let id: Arc<str> = "run".into();
    assert_eq!((0..9).filter(|_| workflows.take(&id, 3, at(0))).count(), 3);
    assert_eq!((workflows.left("run", 3, at(1)), workflows.left("other", 3, at(1))), (0, 3));
    assert_eq!(workflows.left("run", 3, at(3_600_001)), 3, "a run that was silent for an hour has ended");
}

proptest! {
    /// Whenever an extra call is made, the window that ends there holds no more of them than the ratio of the first
    /// tries that had ended in it, plus the floor.
    #[test]
    fn no_window_holds_more_extra_calls_than_the_budget_allows(
        steps in proptest::collection::vec((0u64..1_500, 0u32..40, 0u32..40), 1..80),
        (ratio, floor) in (0.0..1.0f64, 0.0..3.0f64),
    ) {
        let text = format!("target_ratio = {ratio:?}\ntarget_floor_per_second = {floor:?}\nburst = 1000.0");
        let params: Params = toml::from_str(&text).expect("reads");
        let mut b = TargetBudget::new(&params);
        let (mut now, mut firsts, mut retries) = (5_000_000u64, Vec::new(), Vec::new());
        for (wait, tries, wanted) in steps {
            now += wait;
            for _ in 0..tries {
                b.on_first(&params, at(now), true, 10);
                firsts.push(now);
            }
            for _ in 0..wanted {
                if b.take(&params, at(now), CLOSED).is_err() {
                    break;
                }
                retries.push(now);
                let in_window = |all: &[u64]| all.iter().filter(|t| **t + 10_000 > now).count() as f64;
                let allowed = ratio * in_window(&firsts) + floor * 10.0;
                prop_assert!(in_window(&retries) <= allowed + 1e-6, "{} of {allowed}", in_window(&retries));
            }
        }
    }

    #[test]
    fn a_clock_that_jumps_a_day_neither_stops_retries_nor_lets_more_through(
        jumps in proptest::collection::vec(prop_oneof![Just(-86_400_000i64), Just(86_400_000), 0i64..30_000], 1..12),
    ) {
        let (params, mut b) = budget();
        let mut now = 1_000_000_000i64;
        for jump in jumps {
            now = (now + jump).max(0);
            let got = drain(&mut b, &params, now as u64);
            prop_assert!(got <= 100);
            let later = drain(&mut b, &params, now as u64 + 20_000);
            prop_assert!(later == 100, "20 s later all is as ever, whatever the clock said before: {later}");
            now += 20_000;
        }
    }
}

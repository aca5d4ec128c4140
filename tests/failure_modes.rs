//! The known ways in which breakers, retries and limits themselves fail, each with its cure, in invented time.

use std::sync::Arc;

use touchstone::breaker::{Breaker, Cause, Params, ProbeVerdict, Transition};
use touchstone::clock::Timestamp;
use touchstone::permits::{self, Answer, Ask, Member, Pool};
use touchstone::plan::{
    Asked, Board, Cost, Course, Fault, FaultKind, Known, Moment, Purse, Route, RouteParams, Step,
};
use touchstone::retry::{self, TargetBudget};
use touchstone::sample::{Admission, Outcome, Timing, Usage};
use touchstone::verdict::{BreakerState, FaultClass, FlagSet, Mode, Source};

const START: u64 = 1_700_000_000_000;

const fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(START + ms)
}

fn outcome(now: Timestamp, generation: u64, class: Option<FaultClass>) -> Outcome {
    Outcome {
        at: now,
        route: "r".into(),
        target: "t".into(),
        generation,
        source: Source::Live,
        class,
        flags: FlagSet::EMPTY,
        light: false,
        request_hash: now.as_millis(),
        status: Some(200),
        timing: Timing { total_ms: 100, ..Timing::default() },
        streaming: false,
        retry_after_ms: None,
        usage: Usage::default(),
        cost_usd: None,
        keyed: false,
    }
}

fn breaker(seed: u64) -> Breaker {
    let mut breaker = Breaker::new(Params::default(), seed);
    breaker.set_golden(true, false);
    breaker
}

fn fail(breaker: &mut Breaker, ms: u64) -> Option<Transition> {
    breaker.on_outcome(&outcome(at(ms), breaker.generation(), Some(FaultClass::Upstream)))
}

fn open(breaker: &mut Breaker, ms: u64) -> Transition {
    (0..5).find_map(|_| fail(breaker, ms)).expect("five failures open it")
}

/// Published states and budgets, as a request finds them.
struct World<'w> {
    breakers: &'w [Breaker],
    budgets: &'w [TargetBudget],
    retry: retry::Params,
    now: Timestamp,
}

impl Board for World<'_> {
    fn admission(&self, target: usize) -> Admission {
        self.breakers[target].admission(self.now)
    }

    fn take_probe(&mut self, _: usize) -> bool {
        false
    }

    fn may_retry(&self, target: usize) -> bool {
        let closed = self.admission(target);
        let closed = (closed.state == BreakerState::Closed).then_some(closed.generation);
        self.budgets[target].check(&self.retry, self.now, closed).is_ok()
    }
}

fn route(tiers: &str) -> Route {
    let params: RouteParams = toml::from_str(&format!("name = \"r\"\ntiers = {tiers}")).expect("a route");
    let known =
        |name: &str| Some(Known { index: usize::from(name.as_bytes()[0] - b'a'), max_context_tokens: None });
    Route::resolve(&params, known).expect("resolves")
}

#[test]
fn a_target_that_refuses_for_a_minute_sees_five_attempts_of_callers_and_three_probes() {
    let route = route("[[\"a\"], [\"b\"]]");
    let retry = retry::Params::default();
    let mut breakers = [breaker(1), breaker(2)];
    let mut budgets = [TargetBudget::new(&retry), TargetBudget::new(&retry)];
    let mut bucket = retry.bucket(at(0));
    let (mut attempts, mut probes, mut answered) = (0, 0, 0);
    for ms in (0..60_000u64).step_by(200) {
        let now = at(ms);
        for breaker in &mut breakers {
            let _ = breaker.tick(now);
        }
        for _ in 0..breakers[0].take_probes() {
            probes += 1;
            let generation = breakers[0].generation();
            let _ = breakers[0].on_probe(now, generation, ProbeVerdict::Failed("refused".into()));
        }
        if !ms.is_multiple_of(4_000) {
            continue; // fifteen requests in the minute
        }
        let mut course = Course::new(&route, Mode::Enforce, Asked::default());
        let mut tokens = retry.tokens_per_request();
        let moment = Moment { now, roll: 0.0, turn: 0, stale: false };
        let purse = |tokens, shared| Purse { tokens, shared, patience_ms: 5_000, quality_retries: 1 };
        let mut board = World { breakers: &breakers, budgets: &budgets, retry, now };
        let mut step = course.first(&moment, &mut board, &purse(tokens, bucket.has_at(now)));
        while let Step::Send { target, cost, .. } = step {
            if cost != Cost::Nothing {
                tokens -= 1;
            }
            let further = cost == Cost::RequestAndShared;
            if further {
                assert!(bucket.take(now) && budgets[target].take(&retry, now, Some(0)).is_ok());
            }
            let sound = target == 1;
            let class = (!sound).then_some(FaultClass::Upstream);
            let generation = breakers[target].generation();
            let _ = breakers[target].on_outcome(&outcome(now, generation, class));
            if further {
                budgets[target].on_retry(&retry, now, sound, 100, generation);
            } else {
                budgets[target].on_first(&retry, now, sound, 100);
            }
            if sound {
                answered += 1;
                break;
            }
            attempts += 1;
            let mut board = World { breakers: &breakers, budgets: &budgets, retry, now };
            let fault = Fault { kind: FaultKind::Broken, retry_after_ms: None };
            step = course.after(fault, &moment, &mut board, &purse(tokens, bucket.has_at(now)));
        }
    }
    println!(
        "60 s refused under 15 requests: {attempts} attempts of callers, {probes} probes, {answered} answered"
    );
    assert_eq!(answered, 15);
    assert!(attempts <= 5, "{attempts}");
    assert!((1..=3).contains(&probes), "{probes}");
}

#[test]
fn stuck_open_nobody_probes_and_the_watchdog_ends_it() {
    let mut breaker = breaker(1);
    let due = open(&mut breaker, 0).due.expect("due");
    let late = due.plus_ms(3_600_000); // nobody looked for an hour
    let woken = breaker.tick(late).expect("it is woken");
    assert_eq!((woken.to, woken.cause), (BreakerState::HalfOpen, Cause::Watchdog));
    // and without any golden probe it is callers' requests that decide, so that it cannot stay out
    breaker.tick(late.plus_ms(31_000));
    assert!(breaker.admission(late.plus_ms(31_000)).live_probes > 0);
}

#[test]
fn phantom_success_a_probe_answered_from_a_cache_or_too_slowly_closes_nothing() {
    let mut breaker = breaker(1);
    let due = open(&mut breaker, 0).due.expect("due");
    breaker.tick(due);
    let generation = breaker.generation();
    for _ in 0..20 {
        assert_eq!(breaker.take_probes().min(3), breaker.params().probe_limit_ms().min(3) as u32);
        for _ in 0..3 {
            assert_eq!(breaker.on_probe(due, generation, ProbeVerdict::Void("cached".into())), None);
        }
    }
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
}

#[test]
fn flapping_a_target_that_fails_whenever_it_is_back_is_out_most_of_the_hour() {
    let mut breaker = breaker(3);
    let (mut openings, mut open_ms) = (0, 0u64);
    let mut now = 0;
    while now < 3_600_000 {
        now += 200;
        let _ = breaker.tick(at(now));
        match breaker.state() {
            BreakerState::Open => open_ms += 200,
            BreakerState::HalfOpen => {
                for _ in 0..breaker.take_probes() {
                    let generation = breaker.generation();
                    let _ = breaker.on_probe(at(now), generation, ProbeVerdict::Sound);
                }
            }
            _ => openings += u32::from(fail(&mut breaker, now).is_some()),
        }
    }
    println!("flapping for an hour: {openings} openings, open {} % of the time", open_ms * 100 / 3_600_000);
    assert!(openings <= 40, "{openings}: at most one in a minute and a half");
    assert!(open_ms > 3_600_000 * 9 / 10);
}

#[test]
fn two_hundred_instances_that_opened_together_do_not_probe_together() {
    let mut dues: Vec<u64> = Vec::new();
    for instance in 0..200u64 {
        let mut breaker = breaker(instance.wrapping_mul(0x9E37_79B9));
        dues.push(open(&mut breaker, 0).due.expect("due").ms_since(at(0)));
    }
    dues.sort_unstable();
    let busiest =
        dues.iter().map(|from| dues.iter().filter(|d| (*from..from + 1_000).contains(d)).count()).max();
    println!(
        "200 instances: probes spread over {} ms, at most {busiest:?} in any second",
        dues[199] - dues[0]
    );
    assert!(dues[199] - dues[0] > 9_000);
    assert!(busiest.is_some_and(|n| n < 45), "a twelfth of them would be 17 a second: {busiest:?}");
}

#[test]
fn failover_ping_pong_one_request_never_visits_a_tier_twice() {
    let route = route("[[\"a\"], [\"b\"]]");
    let retry = retry::Params::default();
    let breakers = [breaker(1), breaker(2)];
    let budgets = [TargetBudget::new(&retry), TargetBudget::new(&retry)];
    let now = at(0);
    let mut board = World { breakers: &breakers, budgets: &budgets, retry, now };
    let moment = Moment { now, roll: 0.0, turn: 0, stale: false };
    for kind in [FaultKind::Broken, FaultKind::Backpressure, FaultKind::Silent, FaultKind::Cut] {
        let mut course = Course::new(&route, Mode::Enforce, Asked::default());
        let mut visited = Vec::new();
        let mut purse = Purse { tokens: 3, shared: true, patience_ms: 5_000, quality_retries: 1 };
        let mut step = course.first(&moment, &mut board, &purse);
        while let Step::Send { tier, cost, .. } = step {
            visited.push(tier);
            purse.tokens -= u32::from(cost != Cost::Nothing);
            step = course.after(Fault { kind, retry_after_ms: None }, &moment, &mut board, &purse);
        }
        assert!(visited.is_sorted() && visited.len() <= 5, "{kind:?}: {visited:?}");
    }
}

#[test]
fn retry_storm_an_outage_under_a_thousand_requests_a_second_adds_little_load() {
    let retry = retry::Params::default();
    let mut budget = TargetBudget::new(&retry);
    let mut bucket = retry.bucket(at(0));
    let (mut firsts, mut extra) = (0u32, 0u32);
    for ms in 0..10_000u64 {
        firsts += 1;
        budget.on_first(&retry, at(ms), false, 50);
        for _ in 0..retry.tokens_per_request() {
            let may = budget.check(&retry, at(ms), Some(0)).is_ok() && bucket.has_at(at(ms));
            if may && bucket.take(at(ms)) && budget.take(&retry, at(ms), Some(0)).is_ok() {
                extra += 1;
                budget.on_retry(&retry, at(ms), false, 50, 0);
            }
        }
    }
    println!(
        "{firsts} failing requests in 10 s: {extra} extra calls ({:.2} %)",
        f64::from(extra) * 100.0 / f64::from(firsts)
    );
    assert!(extra <= 130, "the bucket gives 30 and ten a second");
    assert!(budget.is_wasted(), "and soon the breaker decides alone");
    assert_eq!(extra, 20, "none once twenty retries have shown that they only add load");
}

#[test]
fn semaphore_deadlock_holders_that_vanish_in_every_way_leave_no_permit_behind() {
    let member = Member { cap: 4, tokens_per_permit: Some(1_000), rate: None };
    let mut pool = Pool::new(4, &permits::Params::default(), &[member], at(0));
    let mut rng = fastrand::Rng::with_seed(11);
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for step in 0..20_000u64 {
        let ask = Ask {
            member: 0,
            tokens: rng.u64(0..9_000),
            patience_ms: rng.u64(0..60_000),
            share: rng.f64(),
            degraded: rng.bool(),
        };
        match rng.u8(0..4) {
            0 | 1 => match pool.acquire(&ask, at(step)) {
                Answer::Granted { weight } => held.push(weight),
                Answer::Queued { ticket, .. } => waiting.push(ticket),
                Answer::Refused { .. } => {}
            },
            2 if !held.is_empty() => {
                let weight = held.swap_remove(rng.usize(0..held.len()));
                // sound, failed, or gone without a word: a panic, a cancelled task, a caller that left
                pool.release(0, weight, rng.u64(0..900), [Some(true), Some(false), None][rng.usize(0..3)]);
            }
            _ if !waiting.is_empty() => {
                let ticket = waiting.swap_remove(rng.usize(0..waiting.len()));
                assert!(pool.cancel(ticket));
            }
            _ => {}
        }
        while let Some((ticket, _, weight)) = pool.admit_next() {
            waiting.retain(|t| *t != ticket);
            held.push(weight);
        }
        assert!(pool.total_in_use() <= 4);
        assert!(!held.is_empty() || waiting.is_empty(), "nobody waits for nobody");
    }
    for weight in held {
        pool.release(0, weight, 1, None);
    }
    while let Some((_, _, weight)) = pool.admit_next() {
        pool.give_back(0, weight);
    }
    assert_eq!(pool.total_in_use(), 0);
}

#[test]
fn a_clock_that_jumps_a_day_either_way_leaves_every_part_working() {
    let day = 86_400_000u64;
    for jump in [at(0).plus_ms(day), at(0).minus_ms(day)] {
        let mut breaker = breaker(5);
        let due = open(&mut breaker, 0).due.expect("due");
        let _ = breaker.tick(jump);
        assert!(
            breaker.due().is_none_or(|d| d.ms_since(jump) <= 120_000),
            "never longer open than due from here"
        );
        let later = jump.max(due).plus_ms(130_000);
        let _ = breaker.tick(later);
        assert_ne!(breaker.state(), BreakerState::Open);
        let retry = retry::Params::default();
        let mut bucket = retry.bucket(at(0));
        while bucket.take(at(0)) {}
        let _ = bucket.take(jump);
        assert!(bucket.has_at(jump.plus_ms(1_000)));
        let mut budget = TargetBudget::new(&retry);
        budget.on_first(&retry, at(0), true, 10);
        while budget.take(&retry, at(0), Some(0)).is_ok() {}
        budget.on_first(&retry, jump, true, 10);
        assert!(budget.take(&retry, jump.plus_ms(12_000), Some(0)).is_ok());
    }
    let _: Arc<str> = "done".into();
}

/// What five minutes of fifty requests a second at a target that refuses a share of its calls come to.
#[derive(Debug, Default)]
struct Storm {
    served_by_first: u32,
    served_below: u32,
    unserved: u32,
    refused_calls: u32,
    most_calls: u32,
    opened_ms: Vec<u64>,
    half_open_ms: Vec<u64>,
    due_ms: Vec<u64>,
}

fn storm(share: f64, minutes: u64) -> Storm {
    let route = route("[[\"a\"], [\"b\"]]");
    let retry = retry::Params::default();
    let mut breakers = [breaker(1), breaker(2)];
    let mut budgets = [TargetBudget::new(&retry), TargetBudget::new(&retry)];
    let mut bucket = retry.bucket(at(0));
    let mut rng = fastrand::Rng::with_seed(529);
    let mut told = Storm::default();
    for ms in (0..minutes * 60_000).step_by(20) {
        let now = at(ms);
        if ms.is_multiple_of(200) {
            for breaker in &mut breakers {
                if breaker.tick(now).is_some_and(|t| t.to == BreakerState::HalfOpen) {
                    told.half_open_ms.push(ms);
                }
            }
            for _ in 0..breakers[0].take_probes() {
                let generation = breakers[0].generation();
                let verdict =
                    if rng.f64() < share { ProbeVerdict::Void("529".into()) } else { ProbeVerdict::Sound };
                let _ = breakers[0].on_probe(now, generation, verdict);
            }
        }
        let mut course = Course::new(&route, Mode::Enforce, Asked::default());
        let mut tokens = retry.tokens_per_request();
        let moment = Moment { now, roll: rng.f64(), turn: 0, stale: false };
        let purse = |tokens, shared| Purse { tokens, shared, patience_ms: 5_000, quality_retries: 1 };
        let mut board = World { breakers: &breakers, budgets: &budgets, retry, now };
        let mut step = course.first(&moment, &mut board, &purse(tokens, bucket.has_at(now)));
        let mut calls = 0;
        loop {
            let Step::Send { target, cost, generation, .. } = step else {
                told.unserved += 1;
                break;
            };
            calls += 1;
            tokens -= u32::from(cost != Cost::Nothing);
            if cost == Cost::RequestAndShared {
                assert!(bucket.take(now) && budgets[target].take(&retry, now, Some(generation)).is_ok());
            }
            let refused = target == 0 && rng.f64() < share;
            let class = refused.then_some(FaultClass::Backpressure);
            let transition = breakers[target].on_outcome(&outcome(now, generation, class));
            if let Some(t) = transition.filter(|t| t.to == BreakerState::Open) {
                told.opened_ms.push(ms);
                told.due_ms.push(t.due.expect("due").ms_since(at(0)));
            }
            budgets[target].on_first(&retry, now, !refused, 100);
            if !refused {
                if target == 0 {
                    told.served_by_first += 1
                } else {
                    told.served_below += 1
                }
                break;
            }
            told.refused_calls += 1;
            let mut board = World { breakers: &breakers, budgets: &budgets, retry, now };
            let fault = Fault { kind: FaultKind::Backpressure, retry_after_ms: None };
            step = course.after(fault, &moment, &mut board, &purse(tokens, bucket.has_at(now)));
        }
        told.most_calls = told.most_calls.max(calls);
    }
    told
}

#[test]
fn ten_percent_of_529s_for_five_minutes_open_nothing_and_sixty_open_once_they_persist() {
    let mild = storm(0.10, 5);
    println!("10 % of 529s, 50 requests a second, 5 min: {mild:?}");
    assert_eq!((mild.unserved, mild.opened_ms.len()), (0, 0));
    assert_eq!(mild.served_by_first + mild.served_below, 15_000);
    assert!(mild.most_calls <= 2, "a refusal costs one call more, not one a retry");
    let hard = storm(0.60, 5);
    println!("60 % of 529s, 50 requests a second, 5 min: {hard:?}");
    assert_eq!(hard.unserved, 0);
    assert_eq!(hard.served_by_first + hard.served_below, 15_000);
    let opened = hard.opened_ms.first().copied().expect("it opens");
    assert!((30_000..120_000).contains(&opened), "not before the persistence: {opened}");
    let half_open = hard.half_open_ms.iter().zip(&hard.due_ms);
    assert!(half_open.clone().count() > 0, "it is tried again");
    for (at, due) in half_open {
        assert!((*due..*due + 200).contains(at), "half-open on time: due {due}, tried {at}");
    }
}

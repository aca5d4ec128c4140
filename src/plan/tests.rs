use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::clock::Timestamp;
use crate::sample::Admission;
use crate::verdict::{BreakerState, Flag, Mode, Reason};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn admission(state: BreakerState) -> Admission {
    Admission {
        state,
        share: 1.0,
        live_probes: 0,
        due: Some(NOW.plus_ms(7_000)),
        cooling_until: None,
        small_only: None,
        generation: 3,
        cause: "test",
    }
}

#[derive(Clone, Debug)]
struct States {
    all: Vec<Admission>,
    probes: u32,
}

impl States {
    fn closed(n: usize) -> Self {
        Self { all: vec![admission(BreakerState::Closed); n], probes: 0 }
    }

    fn with(mut self, target: usize, state: BreakerState) -> Self {
        self.all[target].state = state;
        self
    }
}

impl Board for States {
    fn admission(&self, target: usize) -> Admission {
        self.all[target].clone()
    }

    fn take_probe(&mut self, _: usize) -> bool {
        self.probes = self.probes.saturating_sub(1);
        self.probes > 0
    }
}

fn route(tiers: &[&[&str]]) -> Route {
    let quoted = |names: &&[&str]| {
        format!("[{}]", names.iter().map(|n| format!("{n:?}")).collect::<Vec<_>>().join(","))
    };
    let text = format!("name = \"r\"\ntiers = [{}]", tiers.iter().map(quoted).collect::<Vec<_>>().join(","));
    let params: RouteParams = toml::from_str(&text).expect("a route");
    let known = |name: &str| {
        let index = usize::from(name.as_bytes()[0] - b'a');
        Some(Known {
            index,
            max_context_tokens: name.split_once('-').map(|(_, n)| n.parse().expect("tokens")),
        })
    };
    Route::resolve(&params, known).expect("resolves")
}

const fn moment() -> Moment {
    Moment { now: NOW, roll: 0.5, turn: 0, stale: false }
}

const fn purse() -> Purse {
    Purse { tokens: 3, shared: true, patience_ms: 5_000, quality_retries: 1 }
}

const fn fault(kind: FaultKind) -> Fault {
    Fault { kind, retry_after_ms: None }
}

fn target(step: Step) -> (usize, usize) {
    match step {
        Step::Send { tier, target, .. } => (tier, target),
        other => panic!("expected a call, got {other:?}"),
    }
}

fn course(route: &Route) -> Course<'_> {
    Course::new(route, Mode::Enforce, Asked::default())
}

#[test]
fn a_tier_is_shared_out_in_turn() {
    let route = route(&[&["a", "b"], &["c"]]);
    let mut states = States::closed(3);
    let starts: Vec<_> = (0..4)
        .map(|turn| target(course(&route).first(&Moment { turn, ..moment() }, &mut states, &purse())).1)
        .collect();
    assert_eq!(starts, [0, 1, 0, 1]);
}

#[test]
fn an_open_target_is_passed_over_and_the_reason_kept() {
    let route = route(&[&["a"], &["b"]]);
    let mut states = States::closed(2).with(0, BreakerState::Open);
    let mut course = course(&route);
    let step = course.first(&moment(), &mut states, &purse());
    assert!(matches!(step, Step::Send { tier: 1, target: 1, cost: Cost::Nothing, .. }));
    assert_eq!(course.degraded(), Some((Reason::BreakerOpen, None)));
}

#[test]
fn all_open_refuses_with_the_earliest_due_time_and_a_stale_gate_admits_all() {
    let route = route(&[&["a"], &["b"]]);
    let mut states = States::closed(2).with(0, BreakerState::Open).with(1, BreakerState::Open);
    states.all[1].due = Some(NOW.plus_ms(4_000));
    let step = course(&route).first(&moment(), &mut states, &purse());
    assert_eq!(step, Step::GiveUp(GiveUp::Open { retry_after_ms: 4_000 }));
    let step = course(&route).first(&Moment { stale: true, ..moment() }, &mut states, &purse());
    assert_eq!(target(step), (0, 0));
}

#[test]
fn the_cache_comes_before_a_target_that_cools_down_and_that_before_an_error() {
    let route = route(&[&["a"], &["cache"]]);
    let mut states = States::closed(1);
    states.all[0].cooling_until = Some(NOW.plus_ms(2_000));
    let mut course = course(&route);
    assert_eq!(course.first(&moment(), &mut states, &purse()), Step::Cache { tier: 1 });
    assert_eq!(course.left_because(), Some((Reason::CoolingDown, None)));
    assert_eq!(target(course.missed(1, &moment(), &mut states, &purse())), (0, 0));
    assert_eq!(course.degraded(), None, "tier 0 answered after all");
}

#[test]
fn a_ramp_gives_a_target_its_share_only() {
    let route = route(&[&["a"], &["b"]]);
    let mut states = States::closed(2);
    states.all[0].share = 0.25;
    let start = |roll, states: &mut States| {
        target(course(&route).first(&Moment { roll, ..moment() }, states, &purse()))
    };
    assert_eq!(start(0.2, &mut states), (0, 0));
    assert_eq!(start(0.3, &mut states), (1, 1));
}

#[test]
fn half_open_admits_live_probes_while_slots_are_free() {
    let route = route(&[&["a"], &["b"]]);
    let mut states = States::closed(2).with(0, BreakerState::HalfOpen);
    assert_eq!(
        target(course(&route).first(&moment(), &mut states, &purse())),
        (1, 1),
        "golden probes decide alone"
    );
    states.all[0].live_probes = 2;
    states.probes = 2;
    let step = course(&route).first(&moment(), &mut states, &purse());
    assert!(matches!(step, Step::Send { target: 0, probe: true, generation: 3, .. }));
    let mut late = course(&route);
    assert_eq!(target(late.first(&moment(), &mut states, &purse())), (1, 1));
    assert_eq!(late.degraded(), Some((Reason::HalfOpenBusy, None)));
}

#[test]
fn a_broken_target_gives_way_to_its_neighbour_then_to_the_next_tier() {
    let route = route(&[&["a", "b"], &["c"]]);
    let mut states = States::closed(3);
    let mut course = course(&route);
    let _ = course.first(&moment(), &mut states, &purse());
    let step = course.after(fault(FaultKind::Broken), &moment(), &mut states, &purse());
    assert!(matches!(step, Step::Send { tier: 0, target: 1, cost: Cost::RequestAndShared, .. }));
    let step = course.after(fault(FaultKind::Broken), &moment(), &mut states, &purse());
    assert!(matches!(step, Step::Send { tier: 1, target: 2, cost: Cost::Request, .. }));
    assert_eq!(course.degraded(), Some((Reason::UpstreamError, None)));
}

#[test]
fn a_lonely_target_is_asked_once_more_with_back_off() {
    let route = route(&[&["a"], &["b"]]);
    let mut states = States::closed(2);
    let mut course = course(&route);
    let _ = course.first(&moment(), &mut states, &purse());
    let step = course.after(fault(FaultKind::Cut), &moment(), &mut states, &purse());
    assert!(matches!(step, Step::Send { target: 0, wait: Wait::BackOff(0), .. }));
    assert_eq!(target(course.after(fault(FaultKind::Cut), &moment(), &mut states, &purse())), (1, 1));
}

#[test]
fn silence_costs_one_limit_only() {
    let route = route(&[&["a"], &["b"]]);
    let mut states = States::closed(2);
    let mut course = course(&route);
    let _ = course.first(&moment(), &mut states, &purse());
    assert_eq!(target(course.after(fault(FaultKind::Silent), &moment(), &mut states, &purse())), (1, 1));
    assert_eq!(course.degraded(), Some((Reason::Slow, None)));
    let step = course.after(fault(FaultKind::Silent), &moment(), &mut states, &purse());
    assert_eq!(step, Step::GiveUp(GiveUp::Nothing));
}

#[test]
fn a_short_retry_after_is_waited_for_exactly_and_a_long_one_is_not() {
    let route = route(&[&["a"], &["b"]]);
    let asked = |ms| Fault { kind: FaultKind::Backpressure, retry_after_ms: Some(ms) };
    let mut states = States::closed(2);
    let mut polite = course(&route);
    let _ = polite.first(&moment(), &mut states, &purse());
    let step = polite.after(asked(1_200), &moment(), &mut states, &purse());
    assert!(matches!(step, Step::Send { target: 0, wait: Wait::Exactly(1_200), .. }));
    let mut hurried = course(&route);
    let _ = hurried.first(&moment(), &mut states, &purse());
    assert_eq!(target(hurried.after(asked(60_000), &moment(), &mut states, &purse())), (1, 1));
}

#[test]
fn bad_answers_are_repeated_once_then_left_and_the_flag_is_named() {
    let route = route(&[&["a"], &["b"]]);
    let bad = fault(FaultKind::Quality(Flag::EmptyOutput));
    let mut states = States::closed(2);
    let mut course = course(&route);
    let _ = course.first(&moment(), &mut states, &purse());
    assert_eq!(target(course.after(bad, &moment(), &mut states, &purse())), (0, 0));
    assert_eq!(target(course.after(bad, &moment(), &mut states, &purse())), (1, 1));
    assert_eq!(course.degraded(), Some((Reason::Quality, Some(Flag::EmptyOutput))));
    let step = course.after(bad, &moment(), &mut states, &purse());
    assert_eq!(step, Step::GiveUp(GiveUp::Nothing), "the last answer is delivered");
}

#[test]
fn a_long_prompt_goes_only_where_the_context_is_known_to_be_larger() {
    let route = route(&[&["a-4000"], &["b-2000"], &["c-32000"]]);
    let mut states = States::closed(3);
    let mut course = course(&route);
    let _ = course.first(&moment(), &mut states, &purse());
    let step = course.after(fault(FaultKind::ContextLength), &moment(), &mut states, &purse());
    assert_eq!(target(step), (2, 2));
}

#[test]
fn a_fallback_too_small_for_the_prompt_is_skipped_and_the_first_choice_never() {
    let route = route(&[&["a-1000"], &["b-1000"], &["c"]]);
    let mut states = States::closed(3);
    let mut course = Course::new(&route, Mode::Enforce, Asked { input_tokens: 5_000, ..Asked::default() });
    assert_eq!(target(course.first(&moment(), &mut states, &purse())), (0, 0));
    assert_eq!(target(course.after(fault(FaultKind::Silent), &moment(), &mut states, &purse())), (2, 2));
}

#[test]
fn the_callers_own_faults_and_filters_are_never_repeated() {
    let route = route(&[&["a", "b"], &["c"], &["cache"]]);
    for kind in [FaultKind::Caller, FaultKind::ContentFilter] {
        let mut states = States::closed(3);
        let mut course = course(&route);
        let _ = course.first(&moment(), &mut states, &purse());
        assert_eq!(
            course.after(fault(kind), &moment(), &mut states, &purse()),
            Step::GiveUp(GiveUp::Nothing)
        );
    }
}

#[test]
fn without_tokens_only_the_cache_is_left() {
    let poor = Purse { tokens: 0, ..purse() };
    let mut states = States::closed(2);
    let cached = route(&[&["a"], &["b"], &["cache"]]);
    let mut with_cache = course(&cached);
    let _ = with_cache.first(&moment(), &mut states, &purse());
    let step = with_cache.after(fault(FaultKind::Broken), &moment(), &mut states, &poor);
    assert_eq!(step, Step::Cache { tier: 2 });
    let bare = route(&[&["a"], &["b"]]);
    let mut without = course(&bare);
    let _ = without.first(&moment(), &mut states, &purse());
    let step = without.after(fault(FaultKind::Broken), &moment(), &mut states, &poor);
    assert_eq!(step, Step::GiveUp(GiveUp::NoTokens));
}

#[test]
fn routes_are_found_by_path_and_model() {
    let read = |text: &str| -> Route {
        let params: RouteParams = toml::from_str(text).expect("a route");
        Route::resolve(&params, |_| Some(Known { index: 0, max_context_tokens: None })).expect("resolves")
    };
    let routes = [
        read(
            "name=\"chat\"\npaths=[\"/v1/chat/completions\"]\nmodels=[\"gpt-4*\",\"assistant\"]\ntiers=[[\"a\"]]",
        ),
        read("name=\"infer\"\npaths=[\"/v2/models/*/infer\"]\ntiers=[[\"a\"]]"),
        read("name=\"rest\"\nmodels=[\"small\"]\ntiers=[[\"a\"]]"),
    ];
    assert_eq!(route_for(&routes, "/v1/chat/completions", Some("gpt-4o")), Some(0));
    assert_eq!(route_for(&routes, "/v1/chat/completions", Some("small")), Some(2));
    assert_eq!(route_for(&routes, "/v1/chat/completions", Some("other")), None);
    assert_eq!(route_for(&routes, "/v1/chat/completions", None), None, "two could be meant");
    assert_eq!(route_for(&routes, "/v1/embeddings", None), Some(2), "only one can be meant");
    assert_eq!(route_for(&routes, "/v2/models/x/infer", None), Some(1));
}

#[test]
fn faults_of_a_route_name_their_key() {
    let fault = |tiers: &str| {
        let text = format!("name = \"r\"\ntiers = {tiers}");
        toml::from_str::<RouteParams>(&text).expect_err(tiers).message().to_owned()
    };
    assert!(fault("[]").starts_with("tiers:"));
    assert!(fault("[[\"a\"],[]]").starts_with("tiers[1]:"));
    assert!(fault("[[\"cache\"]]").starts_with("tiers[0]:"));
    assert!(fault("[[\"a\"],[\"a\"]]").starts_with("tiers[1]:"));
    assert!(fault("[[\"http://x\"]]").starts_with("tiers[0]:"));
    assert!(fault("[[\"a\"],[\"passthrough\",\"b\"]]").starts_with("tiers[1]:"));
    let params: RouteParams = toml::from_str("name = \"r\"\ntiers = [[\"a\"]]").expect("a route");
    let unknown = Route::resolve(&params, |_| None).expect_err("no such target");
    assert_eq!(unknown, RouteError::UnknownTarget(0, "a".into()));
}

fn any_kind() -> impl Strategy<Value = FaultKind> {
    prop_oneof![
        Just(FaultKind::Backpressure),
        Just(FaultKind::Broken),
        Just(FaultKind::Silent),
        Just(FaultKind::Cut),
        Just(FaultKind::Quality(Flag::Repetition)),
        Just(FaultKind::ContextLength),
        Just(FaultKind::ContentFilter),
        Just(FaultKind::Misconfigured),
        Just(FaultKind::Spent),
        Just(FaultKind::Caller),
    ]
}

fn any_state() -> impl Strategy<Value = Admission> {
    let states = proptest::sample::select(BreakerState::ALL);
    (states, 0.0..=1.0f64, 0u32..3, proptest::option::of(0u64..9_000)).prop_map(
        |(state, share, live_probes, cooling)| Admission {
            share,
            live_probes,
            cooling_until: cooling.map(|ms| NOW.plus_ms(ms)),
            ..admission(state)
        },
    )
}

proptest! {
    #[test]
    fn every_course_ends_within_its_tokens_and_never_calls_an_open_target(
        shape in proptest::collection::vec(1usize..3, 1..4),
        cache in any::<bool>(),
        states in proptest::collection::vec(any_state(), 9),
        faults in proptest::collection::vec((any_kind(), proptest::option::of(0u64..9_000)), 20),
        (roll, turn, probes) in (0.0..1.0f64, 0usize..7, 0u32..3),
        (no_retry, no_fallback, shared) in any::<(bool, bool, bool)>(),
    ) {
        let mut names = (b'a'..).map(|b| char::from(b).to_string());
        let mut tiers: Vec<Vec<String>> = shape.iter().map(|n| names.by_ref().take(*n).collect()).collect();
        if cache { tiers.push(vec!["cache".into()]); }
        let borrowed: Vec<Vec<&str>> = tiers.iter().map(|t| t.iter().map(String::as_str).collect()).collect();
        let slices: Vec<&[&str]> = borrowed.iter().map(Vec::as_slice).collect();
        let route = route(&slices);
        let mut board = States { all: states.clone(), probes };
        let asked = Asked { no_retry, no_fallback, ..Asked::default() };
        let mut course = Course::new(&route, Mode::Enforce, asked);
        let moment = Moment { now: NOW, roll, turn, stale: false };
        let mut purse = Purse { shared, ..purse() };
        let mut step = course.first(&moment, &mut board, &purse);
        let (mut at_tier, mut calls, mut previous) = (0, 0u32, None);
        for (kind, retry_after_ms) in faults {
            while let Step::Cache { tier } = step {
                prop_assert!(!no_fallback);
                step = course.missed(tier, &moment, &mut board, &purse);
            }
            let Step::Send { tier, target, cost, .. } = step else { break };
            let state = states[target].state;
            let refused = matches!(state, BreakerState::Open | BreakerState::ForcedOpen);
            prop_assert!(!refused || previous == Some(target));
            let passed_over = roll >= states[target].share || states[target].cooling_until.is_some();
            prop_assert!(tier >= at_tier || passed_over, "tiers are left downwards, but for a soft refusal");
            prop_assert!(!no_fallback || tier == 0);
            prop_assert!(!no_retry || calls == 0);
            match cost {
                Cost::Nothing => prop_assert_eq!(calls, 0),
                Cost::Request => { prop_assert!(purse.tokens > 0); purse.tokens -= 1; }
                Cost::RequestAndShared => { prop_assert!(purse.tokens > 0 && shared); purse.tokens -= 1; }
            }
            calls += 1;
            at_tier = tier;
            let repeats = matches!(kind, FaultKind::Silent | FaultKind::Caller | FaultKind::ContentFilter);
            step = course.after(Fault { kind, retry_after_ms }, &moment, &mut board, &purse);
            if let (true, Step::Send { target: next, .. }) = (repeats, step) {
                prop_assert_ne!(next, target, "a silent target is never asked twice");
            }
            previous = Some(target);
        }
        prop_assert!(calls <= 4);
        prop_assert!(matches!(step, Step::GiveUp(_)), "ends: {:?}", step);
    }

    #[test]
    fn shadow_mode_calls_the_first_tier_once_whatever_is_published(
        states in proptest::collection::vec(any_state(), 3),
        kind in any_kind(),
        turn in 0usize..9,
    ) {
        let route = route(&[&["a", "b"], &["c"]]);
        let mut board = States { all: states, probes: 0 };
        let mut course = Course::new(&route, Mode::Shadow, Asked::default());
        let step = course.first(&Moment { turn, ..moment() }, &mut board, &purse());
        prop_assert_eq!(target(step), (0, turn % 2));
        prop_assert_eq!(course.after(fault(kind), &moment(), &mut board, &purse()), Step::GiveUp(GiveUp::Nothing));
        prop_assert_eq!(course.degraded(), None);
    }
}

#[test]
fn the_first_target_is_the_one_callers_hear_of() {
    let route = route(&[&["b", "a"], &["c"]]);
    assert_eq!(route.first_target().map(|m| Arc::clone(&m.name)), Some("b".into()));
}

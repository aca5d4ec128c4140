use proptest::prelude::*;

use super::*;
use crate::baseline::{Fingerprint, PromptBaseline};
use crate::breaker::{Action, TrialKind};
use crate::detect::burst::Verdict;
use crate::sample::{CheckResult, Signals as Measured, Timing, Usage};
use crate::verdict::{ClassOutput, FaultClass, Flag, FlagSet, Wire};

pub(in crate::monitor) fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000_000 + ms)
}

pub(in crate::monitor) fn setup() -> Setup {
    Setup {
        name: Arc::from("a"),
        mode: Mode::Enforce,
        breaker: breaker::Params::default(),
        detect: detect::Params::default(),
        rules: Vec::new(),
        own_key: true,
        own_model: true,
    }
}

pub(in crate::monitor) fn baseline() -> Arc<Baseline> {
    let prompt = PromptBaseline { runs: 3, passes: 3, ..PromptBaseline::default() };
    Arc::new(Baseline {
        prompts: (0..30).map(|i| (Arc::from(format!("p{i}")), prompt.clone())).collect(),
        fingerprint: Fingerprint { top_k: 5, ..Fingerprint::default() },
        hard_faults: (0, 400),
        ..Baseline::default()
    })
}

fn calibrated() -> TargetCore {
    let mut core = TargetCore::new(setup(), 5);
    let effects = core.set_golden(at(0), true, true, Some(baseline()));
    assert_eq!(kinds(&effects), [EventKind::HealthChange]);
    assert_eq!(core.health().state(), HealthState::Healthy);
    core
}

fn outcome(core: &TargetCore, ms: u64, class: Option<FaultClass>, flags: &[Flag]) -> Outcome {
    Outcome {
        at: at(ms),
        route: Arc::from("r"),
        target: Arc::from("a"),
        generation: core.breaker().generation(),
        source: Source::Live,
        class,
        flags: flags.iter().copied().collect(),
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

pub(in crate::monitor) fn sample(
    core: &TargetCore,
    ms: u64,
    source: Source,
    prompt: u32,
    pass: bool,
) -> Sample {
    Sample {
        at: at(ms),
        request_id: Arc::from("x"),
        route: Arc::from(""),
        target: Arc::from("a"),
        source,
        wire: Wire::Chat,
        status: Some(200),
        class: None,
        flags: FlagSet::EMPTY,
        signals: Measured { coverage: Some(1.0), entropy_mean: Some(0.5), ..Measured::default() },
        usage: Usage::default(),
        timing: Timing { total_ms: 100, ..Timing::default() },
        request_hash: ms,
        prompt_id: Some(Arc::from(format!("p{prompt}"))),
        check: Some(if pass { CheckResult::Pass } else { CheckResult::Fail }),
        first_position: None,
        prompt_text: None,
        answer_text: None,
        partial: false,
        light: false,
        generation: core.breaker().generation(),
    }
}

pub(super) fn kinds(effects: &[Effect]) -> Vec<EventKind> {
    let kind = |e: &Effect| match e {
        Effect::Event(e) => Some(e.0.kind),
        _ => None,
    };
    effects.iter().filter_map(kind).collect()
}

pub(super) fn transition(effects: &[Effect]) -> Option<&Transition> {
    effects.iter().find_map(|e| if let Effect::Transition(t) = e { Some(t) } else { None })
}

/// Three unusable answers; the effects of the last.
fn break_it(core: &mut TargetCore, ms: u64) -> Vec<Effect> {
    let mut effects = Vec::new();
    for i in 0..3 {
        let bad = outcome(core, ms + i, Some(FaultClass::QualityHard), &[Flag::Repetition]);
        effects = core.on_outcome(&bad);
    }
    effects
}

/// Runs a burst whose items pass or fail alike; the effects of the last item.
pub(super) fn burst(core: &mut TargetCore, ms: u64, reason: BurstReason, pass: bool) -> Vec<Effect> {
    core.on_burst_started(at(ms), reason, 30, core.breaker().generation());
    for i in 0..30 {
        let item = sample(core, ms + u64::from(i), Source::Burst, i, pass);
        let effects = core.on_burst_item(&item, None);
        if effects.contains(&Effect::StopBurst) {
            return effects;
        }
    }
    panic!("a burst ends");
}

#[test]
fn hard_faults_open_and_only_a_sound_burst_closes() {
    let mut core = calibrated();
    let effects = break_it(&mut core, 10);
    let t = transition(&effects).expect("opens");
    assert_eq!((t.to, t.cause), (BreakerState::Open, Cause::HardFaults));
    assert!(t.message.starts_with("3 of the last 3 answers on route r were unusable (repetition 3)"));
    assert_eq!(kinds(&effects), [EventKind::Finding, EventKind::HealthChange, EventKind::BreakerTransition]);
    assert_eq!(core.health().state(), HealthState::Degraded, "degraded, not unavailable");
    let due = t.due.expect("due");
    assert!(core.tick(due.minus_ms(1), false).is_empty());
    let effects = core.tick(due, false);
    let generation = core.breaker().generation();
    assert!(effects.contains(&Effect::StartBurst { reason: BurstReason::HalfOpen, generation }));
    assert!(!effects.iter().any(|e| matches!(e, Effect::StartProbe { .. })));
    let ms = due.ms_since(at(0));
    let effects = burst(&mut core, ms, BurstReason::HalfOpen, false);
    assert_eq!(transition(&effects).map(|t| t.cause), Some(Cause::BurstFailed));
    let due = core.breaker().due().expect("due");
    let _ = core.tick(due, false);
    let effects = burst(&mut core, due.ms_since(at(0)), BurstReason::HalfOpen, true);
    let t = transition(&effects).expect("closes");
    assert_eq!((t.to, t.cause), (BreakerState::Closed, Cause::BurstPassed));
    assert_eq!(core.health().state(), HealthState::Healthy);
    let view = core.view(due.plus_ms(30));
    assert!((view.share - 0.1).abs() < 1e-12, "the ramp begins");
    assert!(view.reasons.is_empty());
}

#[test]
fn a_first_text_is_worth_three_times_what_health_took() {
    let mut core = calibrated();
    assert_eq!(core.first_text_ms(), None, "a baseline that does not tell");
    let told = Baseline { first_text_p99_ms: Some(9_000), ..Baseline::clone(&baseline()) };
    let _ = core.set_golden(at(1), true, true, Some(Arc::new(told)));
    assert_eq!(core.first_text_ms(), Some(27_000));
}

#[test]
fn an_outage_is_unavailable_and_probes_close_it() {
    let mut core = calibrated();
    let mut effects = Vec::new();
    for i in 0..5 {
        let failed = outcome(&core, i, Some(FaultClass::Upstream), &[]);
        effects = core.on_outcome(&failed);
    }
    assert_eq!(transition(&effects).map(|t| t.cause), Some(Cause::ConsecutiveFailures));
    assert_eq!(core.health().state(), HealthState::Unavailable);
    let due = core.breaker().due().expect("due");
    let effects = core.tick(due, false);
    let generation = core.breaker().generation();
    assert!(effects.contains(&Effect::StartProbe { generation, count: 3 }));
    let ms = due.ms_since(at(0));
    let mut slow = sample(&core, ms, Source::Probe, 0, true);
    slow.timing.total_ms = 36_000;
    let effects = core.on_probe(&slow, false);
    assert!(effects.contains(&Effect::StartProbe { generation, count: 1 }), "replaced: {effects:?}");
    let wrong = sample(&core, ms, Source::Probe, 0, false);
    assert!(transition(&core.on_probe(&wrong, false)).is_none(), "a sure check failed");
    let cached = sample(&core, ms, Source::Probe, 0, true);
    assert!(transition(&core.on_probe(&cached, true)).is_none());
    let mut effects = Vec::new();
    for i in 0..3 {
        let sound = sample(&core, ms + i, Source::Probe, 1, true);
        effects = core.on_probe(&sound, false);
    }
    assert_eq!(transition(&effects).map(|t| t.cause), Some(Cause::ProbesPassed));
    assert_eq!(core.health().state(), HealthState::Healthy);
}

#[test]
fn a_hard_failure_of_a_probe_or_a_burst_item_reopens() {
    let mut core = calibrated();
    for i in 0..5 {
        let failed = outcome(&core, i, Some(FaultClass::Upstream), &[]);
        let _ = core.on_outcome(&failed);
    }
    let due = core.breaker().due().expect("due");
    let _ = core.tick(due, false);
    let mut bad = sample(&core, due.ms_since(at(0)), Source::Probe, 0, true);
    bad.class = Some(FaultClass::QualityHard);
    assert_eq!(transition(&core.on_probe(&bad, false)).map(|t| t.cause), Some(Cause::ProbeFailed));

    let mut core = calibrated();
    let due = transition(&break_it(&mut core, 0)).and_then(|t| t.due).expect("due");
    let _ = core.tick(due, false);
    core.on_burst_started(due, BurstReason::HalfOpen, 30, core.breaker().generation());
    let mut cut = sample(&core, due.ms_since(at(0)), Source::Burst, 0, true);
    cut.class = Some(FaultClass::Upstream);
    assert_eq!(transition(&core.on_burst_item(&cut, None)).map(|t| t.cause), Some(Cause::BurstFailed));
}

#[test]
fn a_degraded_burst_opens_and_an_undecided_one_comes_again() {
    let mut core = calibrated();
    let effects = burst(&mut core, 10, BurstReason::Schedule, false);
    assert_eq!(transition(&effects).map(|t| t.cause), Some(Cause::GoldenBurst));
    assert_eq!(core.health().state(), HealthState::Degraded);
    let view = core.view(at(20));
    assert_eq!(view.last_burst.map(|r| r.verdict), Some(Verdict::Degraded));

    let mut core = calibrated();
    core.on_burst_started(at(10), BurstReason::Schedule, 30, core.breaker().generation());
    let effects = core.on_burst_ended(at(11));
    assert_eq!(kinds(&effects), [EventKind::Burst]);
    let generation = core.breaker().generation();
    let again = Effect::StartBurst { reason: BurstReason::Suspicion, generation };
    assert!(!core.tick(at(12), false).contains(&again));
    assert!(core.tick(at(11 + 300_000), false).contains(&again));
}

#[test]
fn a_rule_raises_suspicion_and_a_sound_burst_clears_it() {
    let rule = "signal = 'entropy_mean'\nabove = 3.0\nwindow = '60s'\nfor = '5s'\nmin_samples = 5\naction = 'suspect'";
    let rules = vec![toml::from_str(rule).expect("reads")];
    let mut core = TargetCore::new(Setup { rules, ..setup() }, 1);
    let _ = core.set_golden(at(0), true, true, Some(baseline()));
    let mut asked = Vec::new();
    for i in 0..20_u64 {
        let mut s = sample(&core, i * 1_000, Source::Live, 0, true);
        s.signals.entropy_mean = Some(4.0);
        let _ = core.on_sample(&s, None);
        asked.extend(core.tick(at(i * 1_000), false));
    }
    assert_eq!(kinds(&asked), [EventKind::Rule, EventKind::HealthChange]);
    assert_eq!(asked.iter().filter(|e| matches!(e, Effect::StartBurst { .. })).count(), 1);
    assert_eq!(core.health().state(), HealthState::Suspect);
    let effects = burst(&mut core, 30_000, BurstReason::Suspicion, true);
    assert!(transition(&effects).is_none());
    assert_eq!(core.health().state(), HealthState::Healthy);
    let ceased = core.tick(at(200_000), false);
    assert_eq!(kinds(&ceased), [EventKind::Rule], "the rule ceased: {ceased:?}");
}

#[test]
fn a_rule_that_opens_begins_anew_after_recovery() {
    let rule = "signal = 'entropy_mean'\nabove = 3.0\nfor = '0s'\nmin_samples = 5\naction = 'open'";
    let rules = vec![toml::from_str(rule).expect("reads")];
    let mut core = TargetCore::new(Setup { rules, ..setup() }, 1);
    let _ = core.set_golden(at(0), true, true, Some(baseline()));
    for i in 0..5 {
        let mut s = sample(&core, i, Source::Live, 0, true);
        s.signals.entropy_mean = Some(4.0);
        let _ = core.on_sample(&s, None);
    }
    let effects = core.tick(at(10), false);
    assert_eq!(transition(&effects).map(|t| t.cause), Some(Cause::Rule));
    let due = core.breaker().due().expect("due");
    let _ = core.tick(due, false);
    let effects = burst(&mut core, due.ms_since(at(0)), BurstReason::HalfOpen, true);
    assert_eq!(transition(&effects).map(|t| t.to), Some(BreakerState::Closed));
    assert!(transition(&core.tick(due.plus_ms(1_000), false)).is_none(), "old entropy opens nothing");
}

#[test]
fn the_last_target_stays_in_part_until_another_tier_can_answer() {
    let mut core = calibrated();
    let _ = core.tick(at(0), true);
    let effects = break_it(&mut core, 10);
    assert!(transition(&effects).is_none());
    assert_eq!(core.health().state(), HealthState::Degraded);
    let a = core.admission(at(20));
    assert_eq!((a.state, a.cause), (BreakerState::Closed, "last_target"));
    assert!((a.share - 0.2).abs() < 1e-12);
    let mut other = core.clone();
    let effects = other.tick(at(30), false);
    assert_eq!(transition(&effects).map(|t| (t.to, t.cause)), Some((BreakerState::Open, Cause::HardFaults)));
    let effects = core.tick(at(20 + 300_000), true);
    let generation = core.breaker().generation();
    assert!(effects.contains(&Effect::StartBurst { reason: BurstReason::Recheck, generation }));
    let _ = burst(&mut core, 400_000, BurstReason::Recheck, true);
    let _ = core.tick(at(500_000), true);
    assert!((core.admission(at(500_000)).share - 1.0).abs() < 1e-12);
}

#[test]
fn shadow_computes_the_same_and_says_would_open() {
    let mut core = TargetCore::new(Setup { mode: Mode::Shadow, ..setup() }, 5);
    let _ = core.set_golden(at(0), true, true, Some(baseline()));
    let effects = break_it(&mut core, 10);
    assert!(kinds(&effects).contains(&EventKind::WouldOpen));
    assert!(core.view(at(20)).would_open);
    for i in 0..50 {
        let failed = outcome(&core, 20 + i, Some(FaultClass::Upstream), &[]);
        assert!(core.on_outcome(&failed).is_empty(), "traffic that still flows changes nothing");
    }
}

#[test]
fn refused_keys_and_unknown_models_are_a_wrong_configuration() {
    let mut core = calibrated();
    let mut effects = Vec::new();
    for i in 0..3 {
        let mut o = outcome(&core, i, Some(FaultClass::Client), &[]);
        o.status = Some(401);
        effects.extend(core.on_outcome(&o));
    }
    assert_eq!(kinds(&effects), [EventKind::Misconfigured, EventKind::HealthChange]);
    assert_eq!(core.health().state(), HealthState::Unavailable);
    assert_eq!(core.breaker().state(), BreakerState::Closed, "not the model's failure");
    let served = outcome(&core, 9, None, &[]);
    assert_eq!(kinds(&core.on_outcome(&served)), [EventKind::HealthChange]);
    assert_eq!(core.health().state(), HealthState::Healthy);
    let mut core = TargetCore::new(setup(), 5);
    let _ = core.on_outcome(&outcome(&core, 0, None, &[]));
    for i in 1..9 {
        let mut o = outcome(&core, i, Some(FaultClass::Client), &[]);
        (o.status, o.source) = (Some(404), Source::Canary);
        assert!(core.on_outcome(&o).is_empty(), "golden prompts of a protocol that it does not speak");
    }
    let mut core = TargetCore::new(Setup { own_key: false, ..setup() }, 5);
    for i in 0..9 {
        let mut o = outcome(&core, i, Some(FaultClass::Client), &[]);
        o.status = Some(401);
        assert!(core.on_outcome(&o).is_empty(), "the caller's own key");
    }
}

#[test]
fn lost_logprobs_are_an_incident() {
    let mut core = calibrated();
    let mut effects = Vec::new();
    for i in 0..20 {
        let mut s = sample(&core, i * 1_000, Source::Canary, 0, true);
        s.signals.coverage = if i < 10 { Some(1.0) } else { None };
        effects.extend(core.on_sample(&s, None));
    }
    assert_eq!(kinds(&effects), [EventKind::SignalLost, EventKind::Finding, EventKind::HealthChange]);
    assert_eq!(core.health().state(), HealthState::Suspect);
    let _ = burst(&mut core, 30_000, BurstReason::Suspicion, true);
    assert_eq!(core.health().state(), HealthState::Changed, "different, not worse");
}

#[test]
fn raw_scores_in_place_of_probabilities_are_a_change_and_no_loss() {
    let mut core = calibrated();
    let mut effects = Vec::new();
    for i in 0..60 {
        let mut s = sample(&core, i * 1_000, Source::Live, 0, true);
        let output = if i < 30 { ClassOutput::Probabilities } else { ClassOutput::Logits };
        (s.signals.class_output, s.signals.dim) = (Some(output), Some(3));
        effects.extend(core.on_sample(&s, None));
    }
    assert_eq!(kinds(&effects), [EventKind::Finding, EventKind::HealthChange]);
    assert_eq!(core.health().state(), HealthState::Suspect);
    let _ = burst(&mut core, 70_000, BurstReason::Suspicion, true);
    assert_eq!(core.health().state(), HealthState::Changed);
    assert!(core.view(at(70_000)).arms.iter().any(|a| a.arm == Arm::Output && a.n == 60));
}

#[test]
fn an_operator_acts_and_it_is_told() {
    let mut core = calibrated();
    let effects = core.operator(at(1), Action::Open, "maintenance");
    assert_eq!(kinds(&effects), [EventKind::Operator, EventKind::BreakerTransition]);
    assert!(break_it(&mut core, 10).is_empty(), "nothing is judged while forced open");
    let effects = core.operator(at(20), Action::Auto, "");
    assert_eq!(transition(&effects).map(|t| t.to), Some(BreakerState::HalfOpen));
    assert!(effects.iter().any(|e| matches!(e, Effect::StartProbe { count: 3, .. })));
}

#[test]
fn a_restart_in_the_open_keeps_due_reasons_and_rates() {
    let mut core = calibrated();
    for i in 0..500 {
        let good = outcome(&core, i, None, &[]);
        assert!(core.on_outcome(&good).is_empty());
    }
    let due = transition(&break_it(&mut core, 600)).and_then(|t| t.due).expect("due");
    let text = serde_json::to_string(&core.saved()).expect("writes");
    let mut twin = TargetCore::new(setup(), 5);
    twin.restore(serde_json::from_str(&text).expect("reads"), 6, at(1_000));
    let _ = twin.set_golden(at(1_000), true, true, Some(baseline()));
    let view = twin.view(at(1_000));
    assert_eq!((view.breaker, view.next_probe_at), (BreakerState::Open, Some(due)));
    assert_eq!(view.health, HealthState::Degraded);
    assert!(view.reasons.iter().any(|r| r.message.contains("unusable")));
    let effects = twin.tick(due, false);
    assert!(effects.iter().any(|e| matches!(e, Effect::StartBurst { reason: BurstReason::HalfOpen, .. })));
    assert_eq!(twin.saved().hard_faults, core.saved().hard_faults);
}

#[test]
fn without_golden_prompts_callers_prove_recovery() {
    let mut core = TargetCore::new(setup(), 5);
    let due = transition(&break_it(&mut core, 0)).and_then(|t| t.due).expect("due");
    let effects = core.tick(due, false);
    assert!(!effects.iter().any(|e| matches!(e, Effect::StartBurst { .. } | Effect::StartProbe { .. })));
    assert_eq!(core.admission(due).live_probes, 3);
    let ms = due.ms_since(at(0));
    let mut effects = Vec::new();
    for i in 0..3 {
        let good = outcome(&core, ms + i, None, &[]);
        effects = core.on_outcome(&good);
    }
    assert_eq!(transition(&effects).map(|t| t.to), Some(BreakerState::Closed));
    assert_eq!(core.health().state(), HealthState::Unknown);
}

#[test]
fn the_view_serialises_without_nan_and_names_its_arms() {
    let mut core = calibrated();
    let view = core.view(at(0));
    assert_eq!(serde_json::to_value(&view).expect("writes")["signals"], serde_json::json!({}));
    for i in 0..10 {
        let mut s = sample(&core, i, Source::Live, 0, true);
        s.signals.entropy_mean = Some(if i == 3 { f64::NAN } else { 1.0 });
        let _ = core.on_sample(&s, Some(0.1));
        let good = outcome(&core, i, None, &[]);
        let _ = core.on_outcome(&good);
    }
    let view = serde_json::to_value(core.view(at(10))).expect("writes");
    assert_eq!(view["signals"]["entropy_mean"], serde_json::json!({ "value": 1.0, "n": 9 }));
    assert_eq!(view["signals"]["drift_cosine"]["n"], 10);
    let arms: Vec<&str> =
        view["arms"].as_array().expect("list").iter().filter_map(|a| a["arm"].as_str()).collect();
    assert_eq!(arms, ["c2", "a1", "a3", "c1", "b1"]);
    assert_eq!(view["health"], "healthy");
}

#[test]
fn a_hundred_thousand_healthy_answers_never_open() {
    let mut core = calibrated();
    let mut rng = fastrand::Rng::with_seed(11);
    for i in 0..100_000_u64 {
        let ms = i * 250;
        let o = match rng.u32(0..10_000) {
            0..=4 => outcome(&core, ms, Some(FaultClass::QualityHard), &[Flag::SchemaInvalid]),
            5..=60 => outcome(&core, ms, Some(FaultClass::Upstream), &[]),
            61..=500 => outcome(&core, ms, Some(FaultClass::Client), &[]),
            _ => outcome(&core, ms, None, &[]),
        };
        let effects = core.on_outcome(&o);
        assert!(transition(&effects).is_none(), "{effects:?}");
        if i % 4 == 0 {
            assert!(transition(&core.tick(at(ms), false)).is_none());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn late_results_change_nothing(steps in prop::collection::vec((0_u8..6, 1_u64..30_000), 1..120)) {
        let mut core = calibrated();
        let mut ms = 0;
        for (step, wait) in steps {
            ms += wait;
            let before = core.saved().breaker;
            let mut late = outcome(&core, ms, Some(FaultClass::Upstream), &[Flag::Repetition]);
            late.generation = late.generation.wrapping_sub(1);
            let mut item = sample(&core, ms, Source::Probe, 0, false);
            item.generation = item.generation.wrapping_sub(1);
            prop_assert!(transition(&core.on_outcome(&late)).is_none());
            prop_assert!(transition(&core.on_probe(&item, false)).is_none());
            prop_assert!(transition(&core.on_burst_item(&item, None)).is_none());
            prop_assert_eq!(before, core.saved().breaker);
            let current = outcome(&core, ms, [None, Some(FaultClass::Upstream), Some(FaultClass::QualityHard)][usize::from(step % 3)], if step % 3 == 2 { &[Flag::Gibberish] } else { &[] });
            let _ = core.on_outcome(&current);
            let _ = core.tick(at(ms), step == 5);
            if core.breaker().trial() == Some(TrialKind::Burst) && step > 2 {
                let _ = burst(&mut core, ms, BurstReason::HalfOpen, step == 3);
            }
            let a = core.admission(at(ms));
            if !matches!(a.state, BreakerState::Closed | BreakerState::ForcedClosed) {
                prop_assert!(a.share.abs() < 1e-12);
            }
        }
    }
}

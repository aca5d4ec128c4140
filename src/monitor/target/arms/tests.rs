use std::collections::BTreeMap;

use super::super::tests::{at, baseline, burst, kinds, sample, setup, transition};
use super::*;
use crate::baseline::{BorderBaseline, BorderInput, CanaryBaseline};
use crate::breaker::Cause;
use crate::detect::canary::{DISTANCE, ENTROPY};
use crate::event::EventKind;
use crate::prompt::BurstReason;
use crate::sample::TopK;
use crate::verdict::{HealthState, Wire};

fn first(shift: f64) -> TopK {
    let alternatives =
        vec![(b"yes".to_vec(), -0.5 - shift), (b"no".to_vec(), -1.5), (b"maybe".to_vec(), -3.0)];
    TopK { sampled: b"yes".to_vec(), alternatives }
}

/// A baseline of exact canaries on all thirty prompts, limit 10⁴.
fn exact() -> Arc<Baseline> {
    let mut baseline = Baseline::clone(&baseline());
    let mut learner = Learner::new(Plan::CALIBRATION);
    let ids: Vec<Arc<str>> = baseline.prompts.keys().cloned().collect();
    for id in ids.iter().cycle().take(460) {
        learner.record(id, &first(0.0));
    }
    let reference = learner.finish();
    for (id, p) in &reference.prompts {
        let prompt = baseline.prompts.get_mut(id).expect("a prompt");
        (prompt.first_logprobs, prompt.first_bare, prompt.first_entropy) =
            (p.logprobs.clone(), p.bare.clone(), p.entropy);
        prompt.first_tokens = reference.counts[id].clone();
    }
    baseline.scores = reference.healthy.to_columns();
    assert_eq!(baseline.scores.keys().collect::<Vec<_>>(), [DISTANCE, ENTROPY]);
    let tested = Tested {
        limit: 1e4,
        promise: 1e4,
        kept: true,
        delays: BTreeMap::from([(ANOTHER_MODEL.to_owned(), 3.0)]),
        ..Tested::default()
    };
    baseline.canary = Some(CanaryBaseline { k: 3, tokens: (20.0, 1.0), coverage: 1.0, tested });
    Arc::new(baseline)
}

fn core() -> TargetCore {
    let mut core = TargetCore::new(setup(), 5);
    let _ = core.set_golden(at(0), true, true, Some(exact()));
    assert_eq!(core.health().state(), HealthState::Healthy);
    core
}

fn canary(core: &mut TargetCore, ms: u64, prompt: u32, shift: f64) -> Vec<Effect> {
    let mut sample = sample(core, ms, Source::Canary, prompt, true);
    sample.first_position = Some(first(shift));
    core.on_sample(&sample, None)
}

/// Canaries moved by `shift` until one raises suspicion; how many it took.
fn suspect(core: &mut TargetCore, ms: u64, shift: f64) -> u32 {
    for i in 0..10 {
        let effects = canary(core, ms + u64::from(i), i, shift);
        if kinds(&effects).contains(&EventKind::Finding) {
            assert!(transition(&effects).is_none(), "suspicion opens nothing");
            assert_eq!(core.health().state(), HealthState::Suspect);
            return i + 1;
        }
    }
    panic!("no suspicion");
}

#[test]
fn moved_canaries_raise_suspicion_and_a_burst_that_fails_opens() {
    let mut core = core();
    for i in 0..1_000 {
        assert_eq!(canary(&mut core, i, i as u32 % 30, 0.0), [], "{i}");
    }
    assert!(suspect(&mut core, 2_000, 1.0) <= 3);
    let generation = core.breaker().generation();
    let effects = core.tick(at(2_100), false);
    assert!(effects.contains(&Effect::StartBurst { reason: BurstReason::Suspicion, generation }));
    let effects = burst(&mut core, 2_200, BurstReason::Suspicion, false);
    assert_eq!(transition(&effects).map(|t| t.cause), Some(Cause::GoldenBurst));
    assert_eq!(core.health().state(), HealthState::Degraded);
    // Open: canaries that still come say nothing.
    assert_eq!(canary(&mut core, 9_000, 1, 1.0), []);
}

#[test]
fn a_target_that_changed_and_is_not_worse_is_watched_against_what_it_became() {
    let mut core = core();
    suspect(&mut core, 10, 1.0);
    let _ = burst(&mut core, 100, BurstReason::Suspicion, true);
    assert_eq!(core.health().state(), HealthState::Healthy, "once is chance");
    suspect(&mut core, 200, 1.0);
    let _ = burst(&mut core, 300, BurstReason::Suspicion, true);
    assert_eq!(core.health().state(), HealthState::Changed);
    let learned = (0..400).find_map(|i| {
        canary(&mut core, 1_000 + u64::from(i), i % 30, 1.0).into_iter().find_map(|e| match e {
            Effect::SelfTest { what: Learned::Canaries, healthy } => Some((i, healthy.len())),
            _ => None,
        })
    });
    assert_eq!(learned, Some((159, 70)), "three references a prompt and 70 scores");
    let tested = Tested { limit: 1e4, promise: 1e4, kept: true, ..Tested::default() };
    core.on_tested(&Learned::Canaries, &tested);
    for i in 0..500 {
        assert_eq!(canary(&mut core, 5_000 + i, i as u32 % 30, 1.0), [], "as it became");
    }
    suspect(&mut core, 9_000, 0.0);
    let _ = burst(&mut core, 9_100, BurstReason::Suspicion, true);
    assert_eq!(core.health().state(), HealthState::Changed, "still not what was calibrated");
    let _ = core.set_golden(at(9_999), true, true, Some(exact()));
    assert_eq!(core.health().state(), HealthState::Healthy);
    assert_eq!(canary(&mut core, 10_000, 1, 0.0), []);
}

#[test]
fn the_expected_delay_is_told_anew_when_a_signal_is_lost() {
    let mut core = core();
    assert_eq!(core.view(at(0)).expected_delay_canaries, Some(3.0));
    let mut bare = sample(&core, 1, Source::Canary, 1, true);
    bare.first_position = Some(TopK { sampled: b"yes".to_vec(), alternatives: Vec::new() });
    let _ = core.on_sample(&bare, None);
    let view = core.view(at(2));
    assert!(view.expected_delay_canaries.is_some_and(|d| d <= 4.0), "arm a3 remains");
    let a1 = view.arms.iter().find(|a| a.arm == Arm::A1).expect("listed");
    assert_eq!((a1.unavailable.as_deref(), a1.expected_delay), (Some("no_logprobs"), None));
}

#[test]
fn live_blocks_suspect_and_are_learned_anew_after_a_sound_burst() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut core = core();
    let mut answer = |core: &mut TargetCore, ms: u64, more: u64| {
        let mut live = sample(core, ms, Source::Live, 0, true);
        live.route = Arc::from("chat");
        live.signals.tokens = Some(20 + more + rng.u64(..80));
        core.on_sample(&live, None)
    };
    let test = (0..4_000).find_map(|i| {
        answer(&mut core, i, 0).into_iter().find_map(|e| match e {
            Effect::SelfTest { what, healthy } => Some((what, healthy.len())),
            _ => None,
        })
    });
    let what = Learned::Blocks(Arc::from("chat"));
    assert_eq!(test, Some((what.clone(), blocks::REFERENCE)));
    core.on_tested(&what, &Tested { limit: 3e4, promise: 1e4, kept: true, ..Tested::default() });
    assert!(core.live_blocks("chat").is_some_and(|(_, alarm)| alarm.is_none()), "armed");
    let found =
        (0..500).find(|i| !answer(&mut core, 10_000 + i, 200).is_empty()).expect("four times as long");
    assert!(found < 100, "{found}");
    assert_eq!(core.health().state(), HealthState::Suspect);
    assert!(core.live_blocks("chat").is_some_and(|(_, alarm)| alarm.is_some()));
    let told = (500..5_000).filter(|i| !answer(&mut core, 10_000 + i, 200).is_empty()).count();
    assert_eq!(told, 0, "they go on as they are; it was said");
    let saved = core.saved();
    assert_eq!(saved.blocks.len(), 1);
    let _ = burst(&mut core, 20_000, BurstReason::Suspicion, true);
    assert_eq!(core.health().state(), HealthState::Healthy, "golden answers are as ever");
    assert!(core.saved().blocks.is_empty(), "what is healthy is learned anew");
    let mut again = TargetCore::new(setup(), 6);
    again.restore(saved, 6, at(30_000));
    assert!(again.view(at(30_000)).arms.iter().any(|a| a.arm == Arm::C1 && a.unavailable.is_none()));
}

#[test]
fn a_workload_that_changed_clears_what_only_live_answers_suspect() {
    let mut core = core();
    let finding = crate::detect::Finding {
        at: at(1),
        route: Some(Arc::from("chat")),
        arm: Arm::C1,
        level: crate::detect::Level::Suspect,
        reason: "block_length".to_owned(),
        statistic: 4e4,
        n: 20,
        limit: 3e4,
        arl0: Some(1e4),
        onset: None,
        message: "longer".to_owned(),
    };
    core.act_on(&finding, &mut Vec::new());
    assert_eq!(core.health().state(), HealthState::Suspect);
    let effects = core.on_workload_changed(at(2), &Arc::from("chat"), "all moved");
    assert_eq!(kinds(&effects), [EventKind::HealthChange]);
    assert_eq!(core.health().state(), HealthState::Healthy);
}

#[test]
fn switched_off_arms_say_so_and_see_nothing() {
    let mut setup = setup();
    setup.detect = toml::from_str("canaries = false\nblocks = false").expect("reads");
    let mut core = TargetCore::new(setup, 5);
    let _ = core.set_golden(at(0), true, true, Some(exact()));
    for i in 0..20 {
        assert_eq!(canary(&mut core, i, i as u32 % 30, 2.0), []);
    }
    let view = core.view(at(100));
    assert_eq!(view.expected_delay_canaries, None);
    let a1 = view.arms.iter().find(|a| a.arm == Arm::A1).expect("listed");
    assert_eq!(a1.unavailable.as_deref(), Some("switched off"));
}

/// The exact baseline with sixteen border inputs.
fn bordered() -> Arc<Baseline> {
    let first_tokens = BTreeMap::from([("yes".to_owned(), 8)]);
    let input = BorderInput { text: "ba".to_owned(), margin: 0.2, first_tokens };
    let border = BorderBaseline {
        wire: Wire::Chat,
        candidates: 100,
        flips: 0.05,
        promise: 1e4,
        delays: BTreeMap::new(),
        inputs: (0..16).map(|i| (Arc::from(format!("border:{i}")), input.clone())).collect(),
    };
    Arc::new(Baseline { border: Some(border), ..Baseline::clone(&exact()) })
}

#[test]
fn border_inputs_stand_in_once_logprobs_are_gone_and_are_learned_anew_after_a_change() {
    let mut core = TargetCore::new(setup(), 5);
    let _ = core.set_golden(at(0), true, true, Some(bordered()));
    let a2 =
        |core: &TargetCore| core.view(at(0)).arms.into_iter().find(|a| a.arm == Arm::A2).expect("listed");
    let _ = canary(&mut core, 1, 1, 0.0);
    assert_eq!(a2(&core).unavailable.as_deref(), Some("logprobs_say_more"));
    let mut bare = sample(&core, 2, Source::Canary, 1, true);
    bare.first_position = Some(TopK { sampled: b"yes".to_vec(), alternatives: Vec::new() });
    let _ = core.on_sample(&bare, None);
    assert_eq!(a2(&core).unavailable, None);
    let ask = |core: &mut TargetCore, ms: u64, token: &str| {
        let mut sample = sample(core, ms, Source::Canary, 1, true);
        sample.prompt_id = Some(Arc::from(format!("border:{}", ms % 16)));
        sample.first_position = Some(TopK { sampled: token.into(), alternatives: Vec::new() });
        core.on_sample(&sample, None)
    };
    for ms in 0..200 {
        assert_eq!(ask(&mut core, 100 + ms, " yes"), [], "as in health, white space aside");
    }
    let found = (0..16).find_map(|i| {
        let effects = ask(&mut core, 1_000 + i, "no");
        kinds(&effects).contains(&EventKind::Finding).then_some(i + 1)
    });
    assert!(found.is_some_and(|n| n <= 6), "{found:?}");
    assert_eq!(core.health().state(), HealthState::Suspect);
    assert_eq!(core.health().reasons().next().and_then(|r| r.arm), Some(Arm::A2));
    let _ = burst(&mut core, 2_000, BurstReason::Suspicion, true);
    (0..16).for_each(|i| drop(ask(&mut core, 3_000 + i, "no")));
    let _ = burst(&mut core, 4_000, BurstReason::Suspicion, true);
    assert_eq!(core.health().state(), HealthState::Changed);
    for ms in 0..400 {
        assert_eq!(ask(&mut core, 5_000 + ms, "no"), [], "as it became");
    }
    assert_eq!(a2(&core).unavailable, None);
}

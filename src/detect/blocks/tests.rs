use super::*;
use crate::sample::{Signals, Timing, Usage};
use crate::verdict::{FlagSet, Wire};

fn answer(at: u64, entropy: Option<f64>, tokens: u64, flags: FlagSet) -> Sample {
    Sample {
        at: Timestamp::from_millis(at),
        request_id: "r".into(),
        route: "chat".into(),
        target: "t".into(),
        source: Source::Live,
        wire: Wire::Chat,
        status: Some(200),
        class: None,
        flags,
        signals: Signals { entropy_mean: entropy, tokens: Some(tokens), ..Signals::default() },
        usage: Usage::default(),
        timing: Timing::default(),
        request_hash: at,
        prompt_id: None,
        check: None,
        first_position: None,
        prompt_text: None,
        answer_text: None,
        partial: false,
        light: false,
        generation: 0,
    }
}

fn healthy(rng: &mut fastrand::Rng, at: u64) -> Sample {
    answer(at, Some(1.0 + rng.f64()), 20 + rng.u64(..80), FlagSet::EMPTY)
}

fn armed(rng: &mut fastrand::Rng) -> Blocks {
    let mut blocks = Blocks::default();
    let learned = (0..5_000).find_map(|t| blocks.record(&healthy(rng, t), true));
    let Some(Step::Learned(learned)) = learned else { panic!("{learned:?}") };
    assert_eq!(learned.len(), REFERENCE);
    assert!(blocks.saved().is_none() && blocks.status(&"chat".into()).unavailable.is_some());
    blocks.on_tested(Tested { limit: 3e4, promise: 1e4, kept: true, ..Tested::default() });
    blocks
}

#[test]
fn a_moved_statistic_is_named_and_a_healthy_stream_is_quiet() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut blocks = armed(&mut rng);
    for t in 0..20_000 {
        assert_eq!(blocks.record(&healthy(&mut rng, 10_000 + t), true), None);
    }
    let refusal: FlagSet = [Flag::Refusal].into_iter().collect();
    let found = (0..200).find_map(|t| {
        let flags = if t % 2 == 0 { refusal } else { FlagSet::EMPTY };
        blocks.record(&answer(40_000 + t, Some(1.0 + rng.f64()), 50, flags), true)
    });
    let Some(Step::Found(finding)) = found else { panic!("{found:?}") };
    assert_eq!((finding.arm, finding.reason.as_str()), (Arm::C1, "block_refusal_ratio"));
    assert!(finding.n > 2_000 && finding.onset >= Some(Timestamp::from_millis(40_000)), "{finding:?}");
    assert_eq!(blocks.last_alarm(), Some(finding.at));
}

#[test]
fn an_answer_under_suspicion_teaches_nothing() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut blocks = Blocks::default();
    for t in 0..9_000 {
        assert_eq!(blocks.record(&healthy(&mut rng, t), t % 9 != 0), None, "no block of ten is whole");
    }
}

#[test]
fn a_reference_survives_a_restart_and_small_it_is() {
    let mut rng = fastrand::Rng::with_seed(3);
    let blocks = armed(&mut rng);
    let saved = blocks.saved().expect("armed");
    let json = serde_json::to_string(&saved).expect("json");
    let back: Saved = serde_json::from_str(&json).expect("json");
    let restored = Blocks::restore(&back);
    assert_eq!(restored.saved(), Some(saved));
    assert!(restored.status(&"chat".into()).unavailable.is_none());
    assert!(restored.bytes() < 64 << 10, "{} bytes", restored.bytes());
}

#[test]
fn statistics_that_health_lacked_take_no_part() {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut blocks = Blocks::default();
    for t in 0..5_000 {
        let mut plain = healthy(&mut rng, t);
        plain.signals.entropy_mean = None;
        if blocks.record(&plain, true).is_some() {
            break;
        }
    }
    blocks.on_tested(Tested { limit: 3e4, promise: 1e4, kept: true, ..Tested::default() });
    for t in 0..2_000 {
        assert_eq!(
            blocks.record(&answer(9_000 + t, Some(9.0), 20 + rng.u64(..80), FlagSet::EMPTY), true),
            None
        );
    }
    blocks.learn_anew();
    assert!(blocks.status(&"chat".into()).unavailable.is_some_and(|why| why.contains("0 of 300")));
}

#[test]
fn probes_and_failures_are_no_live_answers() {
    let live = answer(1, None, 1, FlagSet::EMPTY);
    assert!(counts(&live));
    assert!(!counts(&Sample { source: Source::Canary, ..live.clone() }));
    assert!(!counts(&Sample { class: Some(FaultClass::Upstream), ..live.clone() }));
    assert!(!counts(&Sample { partial: true, ..live }));
}

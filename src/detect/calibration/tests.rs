use super::*;
use crate::detect::canary::{DISTANCE, ENTROPY};
use crate::sample::{Signals, Timing, TopK, Usage};
use crate::verdict::{FlagSet, Source, Wire};

fn prompt(i: usize, kind: PromptKind, check: Option<Check>) -> Prompt {
    Prompt {
        id: format!("p{i}").into(),
        kind,
        wire: Wire::Chat,
        messages: None,
        prompt: None,
        input: None,
        tools: None,
        response_format: None,
        max_tokens: 24,
        check,
        references: Vec::new(),
        tags: Vec::new(),
    }
}

fn set(bursts: usize, canaries: usize) -> Arc<[Arc<Prompt>]> {
    let check = Check::Exact(crate::prompt::OneOrMany::One("x".into()));
    (0..bursts)
        .map(|i| prompt(i, PromptKind::Burst, Some(check.clone())))
        .chain((0..canaries).map(|i| prompt(bursts + i, PromptKind::Canary, None)))
        .map(Arc::new)
        .collect()
}

fn sample(flags: FlagSet, check: Option<CheckResult>, first: Option<TopK>) -> Sample {
    Sample {
        at: Timestamp::ZERO,
        request_id: "r".into(),
        route: "".into(),
        target: "t".into(),
        source: Source::Burst,
        wire: Wire::Chat,
        status: Some(200),
        class: None,
        flags,
        signals: Signals { entropy_first: first.as_ref().map(|_| 0.5), ..Signals::default() },
        usage: Usage::default(),
        timing: Timing::default(),
        request_hash: 1,
        prompt_id: None,
        check,
        first_position: first,
        prompt_text: None,
        answer_text: None,
        partial: false,
        light: false,
        generation: 0,
    }
}

fn first(shift: f64) -> TopK {
    TopK { sampled: b"a".to_vec(), alternatives: vec![(b"a".to_vec(), -0.1 - shift), (b"b".to_vec(), -3.0)] }
}

fn run(
    prompts: &Arc<[Arc<Prompt>]>,
    answer: impl Fn(&Prompt, usize) -> (FlagSet, Option<CheckResult>),
) -> Result<Baseline, Refusal> {
    let effort = Effort { burst_runs: 2, burst_prompts: 50, canaries: 100, resamples: 20, border: 0 };
    let mut calibration = Calibration::new("t".into(), Arc::clone(prompts), effort, 7);
    let mut n = 0;
    while let Some(Trial { prompt, .. }) = calibration.next() {
        let (flags, check) = answer(&prompt, n);
        let first = (prompt.kind == PromptKind::Canary).then(|| first(0.0));
        let sample = sample(flags, check, first);
        calibration.record(Observation { sample: &sample, text: "x", embedding: Some(&[1.0, 0.0]) });
        n += 1;
    }
    assert_eq!(calibration.progress().0, calibration.progress().1);
    calibration.finish(Timestamp::from_millis(5), Fingerprint::default())
}

#[test]
fn a_healthy_target_is_frozen_with_split_references_and_scores() {
    let prompts = set(20, 10);
    let baseline = run(&prompts, |_, _| (FlagSet::EMPTY, Some(CheckResult::Pass))).expect("healthy");
    assert_eq!(baseline.usable().count(), 30);
    // 100 canary observations on 10 prompts: the first 5 of each are references, the other 50 scores.
    assert_eq!(baseline.scores[DISTANCE].len(), 50);
    assert_eq!(baseline.scores[ENTROPY].len(), 50);
    assert!(baseline.scores[DISTANCE].iter().all(|d| d.abs() < 1e-12));
    assert_eq!(baseline.prompts["p25"].first_tokens["a"], 10, "every run is a draw of the first token");
    let canary = baseline.canary.as_ref().expect("canaries were asked");
    assert!(canary.tested.kept && canary.k == 2, "{canary:?}");
    assert!(baseline.verdict.iter().any(|line| line.contains("expected delay")), "{:?}", baseline.verdict);
    assert_eq!(baseline.prompts["p3"].similarities, [1.0]);
}

fn slow_canaries(canaries: u32) -> Baseline {
    let effort = Effort { burst_runs: 2, burst_prompts: 50, canaries, resamples: 20, border: 0 };
    let mut calibration = Calibration::new("t".into(), set(20, 10), effort, 7);
    let mut ms = 0;
    while let Some(Trial { prompt, .. }) = calibration.next() {
        let canary = prompt.kind == PromptKind::Canary;
        let mut sample = sample(FlagSet::EMPTY, Some(CheckResult::Pass), canary.then(|| first(0.0)));
        ms += u64::from(canary) * 50;
        sample.timing.total_ms = if canary { ms } else { 1_000_000 }; // a long answer says nothing of its first text
        calibration.record(Observation { sample: &sample, text: "x", embedding: Some(&[1.0, 0.0]) });
    }
    calibration.finish(Timestamp::from_millis(5), Fingerprint::default()).expect("healthy")
}

#[test]
fn the_slowest_hundredth_of_first_texts_is_kept_and_three_times_that_is_given() {
    let baseline = slow_canaries(200);
    let p99 = baseline.first_text_p99_ms.expect("200 canaries tell it");
    assert!((9_800..=10_000).contains(&p99), "{p99}");
    assert_eq!(baseline.first_text_limit_ms(), Some(3 * p99));
    assert_eq!(slow_canaries(50).first_text_p99_ms, None, "fifty tell nothing of the slowest hundredth");
}

#[test]
fn a_check_that_the_healthy_target_fails_is_left_out_with_its_reason() {
    let prompts = set(20, 10);
    let baseline = run(&prompts, |p, _| {
        let fails = &*p.id == "p4";
        (FlagSet::EMPTY, Some(if fails { CheckResult::Fail } else { CheckResult::Pass }))
    })
    .expect("healthy");
    let why = baseline.prompts["p4"].left_out.as_deref().expect("left out");
    assert!(why.contains("passes 0 of 2"), "{why}");
    assert_eq!(baseline.usable().count(), 29);
}

#[test]
fn unusable_answers_refuse_the_target_by_name() {
    let loops: FlagSet = [Flag::Repetition].into_iter().collect();
    let refusal = run(&set(20, 10), |_, n| (if n % 5 == 0 { loops } else { FlagSet::EMPTY }, None))
        .expect_err("unhealthy");
    let words = refusal.to_string();
    assert!(words.contains("repetition") && words.contains("prompt `p"), "{words}");
}

#[test]
fn too_few_usable_prompts_refuse_the_target_with_each_reason() {
    let refusal = run(&set(20, 0), |_, _| (FlagSet::EMPTY, Some(CheckResult::Fail))).expect_err("unusable");
    let Refusal::TooFewPrompts { usable: 0, asked: 20, reasons } = &refusal else { panic!("{refusal}") };
    assert!(reasons.contains("p7 (its check passes 0 of 2"), "{reasons}");
}

#[test]
fn calls_without_an_answer_leave_their_prompt_out() {
    let prompts = set(14, 0);
    let mut calibration = Calibration::new(
        "t".into(),
        Arc::clone(&prompts),
        Effort { burst_runs: 2, burst_prompts: 50, canaries: 0, resamples: 20, border: 0 },
        1,
    );
    let mut first = true;
    while calibration.next().is_some() {
        if std::mem::take(&mut first) {
            calibration.skip();
            continue;
        }
        let s = sample(FlagSet::EMPTY, Some(CheckResult::Pass), None);
        calibration.record(Observation { sample: &s, text: "x", embedding: None });
    }
    let baseline = calibration.finish(Timestamp::ZERO, Fingerprint::default()).expect("13 are enough");
    assert_eq!(baseline.usable().count(), 13);
    assert!(
        baseline.verdict.iter().any(|line| line.contains("1 of 2 calls failed")),
        "{:?}",
        baseline.verdict
    );
}

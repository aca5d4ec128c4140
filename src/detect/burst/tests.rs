use super::*;
use crate::baseline::PromptBaseline;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn baseline(prompts: u32, runs: u32, passes: u32, similarities: &[f64]) -> Arc<Baseline> {
    let prompt =
        PromptBaseline { runs, passes, similarities: similarities.to_vec(), ..PromptBaseline::default() };
    Arc::new(Baseline {
        prompts: (0..prompts).map(|i| (id(i), prompt.clone())).collect(),
        hard_faults: (0, prompts * runs),
        ..Baseline::default()
    })
}

fn id(i: u32) -> Arc<str> {
    Arc::from(format!("p{i:02}"))
}

fn item(i: u32, pass: bool) -> Item {
    let check = Some(if pass { CheckResult::Pass } else { CheckResult::Fail });
    Item { prompt: id(i), check, ..Item::default() }
}

fn burst(baseline: &Arc<Baseline>, planned: u32) -> Burst {
    Burst::new(Params::default(), Arc::clone(baseline), BurstReason::Suspicion, planned, NOW)
}

/// Runs `planned` items of which each passes with its probability.
fn run(baseline: &Arc<Baseline>, planned: u32, seed: u64, mut rate: impl FnMut(u32) -> f64) -> Report {
    let (mut b, mut rng) = (burst(baseline, planned), fastrand::Rng::with_seed(seed));
    (0..planned).find_map(|i| b.push(NOW, &item(i, rng.f64() < rate(i)))).expect("ends")
}

#[test]
fn garbage_ends_a_burst_after_a_few_items() {
    let report = run(&baseline(30, 3, 3, &[]), 30, 0, |_| 0.0);
    assert_eq!(report.verdict, Verdict::Degraded);
    assert!(report.asked <= 5, "{}", report.message);
    assert!(
        report.message.starts_with("golden burst worse than in health: 0 of 4 checks passed"),
        "{}",
        report.message
    );
}

#[test]
fn a_healthy_target_is_rarely_called_worse_and_mostly_sound() {
    for (runs, passes, rate) in [(3, 3, 0.99), (20, 16, 0.8), (10, 9, 0.9), (3, 2, 0.66)] {
        let (mut worse, mut sound) = (0, 0);
        for seed in 0..1_000 {
            let report = run(&baseline(50, runs, passes, &[]), 50, seed, |_| rate);
            worse += u32::from(report.verdict == Verdict::Degraded);
            sound += u32::from(report.verdict == Verdict::Sound);
        }
        assert!(worse <= 30, "{worse} of 1,000 at {rate}");
        assert!(sound >= 850, "{sound} of 1,000 at {rate}");
    }
}

#[test]
fn a_classifier_falling_from_94_to_72_percent_is_found_within_fifty_items() {
    let found = (0..400)
        .filter(|seed| run(&baseline(50, 50, 47, &[]), 50, *seed, |_| 0.72).verdict == Verdict::Degraded)
        .count();
    assert!(found >= 380, "{found} of 400");
}

#[test]
fn a_prompt_that_fails_in_health_says_nothing_when_it_fails_again() {
    let mut b = (*baseline(24, 3, 3, &[])).clone();
    for i in 12..24 {
        let prompt = b.prompts.get_mut(&id(i)).expect("there");
        (prompt.passes, prompt.left_out) = (0, Some("check fails on the healthy target".to_owned()));
    }
    let report = run(&Arc::new(b), 24, 0, |i| if i < 12 { 1.0 } else { 0.0 });
    assert_eq!((report.verdict, report.judged), (Verdict::Sound, 12), "{}", report.message);
}

#[test]
fn hard_faults_lose_whatever_the_check_says() {
    let base = baseline(20, 3, 3, &[]);
    let mut b = burst(&base, 20);
    let report = (0..20).find_map(|i| {
        let flags = [Flag::Gibberish].into_iter().collect();
        b.push(NOW, &Item { flags, class: Some(FaultClass::QualityHard), ..item(i, true) })
    });
    assert_eq!(report.map(|r| r.verdict), Some(Verdict::Degraded));
}

#[test]
fn answers_far_from_their_references_are_a_loss_and_other_words_are_not() {
    let base = baseline(30, 3, 3, &[0.9, 0.95, 0.97]);
    for (similarity, verdict) in [(0.85, Verdict::Sound), (0.2, Verdict::Degraded)] {
        let mut b = burst(&base, 30);
        let report = (0..30)
            .find_map(|i| {
                b.push(NOW, &Item { prompt: id(i), similarity: Some(similarity), ..Item::default() })
            })
            .expect("ends");
        assert_eq!(report.verdict, verdict, "{}", report.message);
    }
}

#[test]
fn without_answers_nothing_is_decided() {
    let base = baseline(20, 3, 3, &[]);
    let mut b = burst(&base, 20);
    let report = (0..20)
        .find_map(|i| b.push(NOW, &Item { class: Some(FaultClass::Upstream), ..item(i, false) }))
        .expect("ends");
    assert_eq!((report.verdict, report.errors, report.judged), (Verdict::Undecided, 20, 0));
    assert_eq!(burst(&base, 20).finish(NOW).verdict, Verdict::Undecided, "nothing came");
    let empty = Arc::new(Baseline::default());
    let mut b = burst(&empty, 0);
    assert_eq!(b.push(NOW, &item(0, true)).map(|r| r.verdict), Some(Verdict::Undecided));
}

#[test]
fn an_unknown_prompt_a_missing_check_and_a_nan_are_passed_over() {
    let base = baseline(20, 3, 3, &[0.9]);
    let mut b = burst(&base, 20);
    let odd = Item { prompt: Arc::from("nobody"), ..item(0, false) };
    assert!(b.push(NOW, &odd).is_none());
    let nan = Item { prompt: id(1), similarity: Some(f64::NAN), ..Item::default() };
    assert!(b.push(NOW, &nan).is_none());
    assert_eq!(b.finish(NOW).judged, 0);
}

#[test]
fn the_tail_agrees_with_the_binomial() {
    let trials = |passes: usize| (0..10).map(|i| (0.5, i < passes)).collect::<Vec<_>>();
    let want = (1.0 + 10.0 + 45.0 / 2.0) / 1024.0;
    assert!((lower_tail(&trials(2)).expect("some") - want).abs() < 1e-12);
    assert_eq!(lower_tail(&[]), None);
}

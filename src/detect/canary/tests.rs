use super::*;

fn at(t: u64) -> Timestamp {
    Timestamp::from_millis(t)
}

/// A first position over five tokens, moved by `shift` nats on the second.
fn first(prompt: usize, shift: f64) -> TopK {
    let token = |i: usize| format!("w{prompt}-{i}").into_bytes();
    let logprobs = [-0.4, -1.6 + shift, -2.8, -4.0, -5.2];
    let alternatives = logprobs.iter().enumerate().map(|(i, l)| (token(i), *l)).collect();
    TopK { sampled: token(0), alternatives }
}

fn prompt(i: usize) -> Arc<str> {
    Arc::from(format!("p{i}"))
}

fn learned(noise: impl Fn(&mut fastrand::Rng) -> f64) -> Reference {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut learner = Learner::new(Plan::CALIBRATION);
    while !learner.is_done() {
        let p = rng.usize(..20);
        let shift = noise(&mut rng);
        learner.record(&prompt(p), &first(p, shift));
    }
    learner.finish()
}

fn arms(reference: Reference) -> Canaries {
    let tested = Tested { limit: 2e4, kept: true, ..Tested::default() };
    Canaries::new(reference, &tested, 1e4)
}

#[test]
fn references_and_scores_are_different_observations() {
    let reference = learned(|_| 0.0);
    assert_eq!((reference.healthy.len(), reference.k), (300, 5));
    let seen: u32 = reference.counts.values().flat_map(BTreeMap::values).sum();
    assert!(seen >= 400, "{seen}");
    assert!(reference.healthy.columns().iter().flatten().all(|v| v.abs() < 1e-12), "an atom");
    assert_eq!(reference.prompts.len(), 20);
}

#[test]
fn an_exact_target_is_quiet_for_ever_and_a_moved_one_is_found_within_four() {
    let mut arms = arms(learned(|_| 0.0));
    for t in 0..20_000 {
        let p = t as usize % 20;
        // below the tie grid: another batch size
        let findings = arms.record(at(t), &prompt(p), &first(p, 0.02 * f64::from(t as u32 % 3)));
        assert_eq!(findings, [], "{t}");
    }
    let found = (0..4).find_map(|i| {
        arms.record(at(20_000 + i), &prompt(i as usize), &first(i as usize, 1.5)).into_iter().next()
    });
    let found = found.expect("within four");
    assert_eq!((found.arm, found.level), (Arm::A1, Level::Suspect));
    assert_eq!(found.onset, Some(at(20_000)));
    assert!(found.message.contains("one false alarm in 10000 promised"), "{}", found.message);
}

#[test]
fn a_space_before_every_token_is_the_same_model() {
    let mut arms = arms(learned(|rng| rng.f64() * 0.1));
    for t in 0..1_000 {
        let p = t as usize % 20;
        let mut spaced = first(p, 0.05);
        for (token, _) in &mut spaced.alternatives {
            token.insert(0, b' ');
        }
        spaced.sampled.insert(0, b' ');
        assert_eq!(arms.record(at(t), &prompt(p), &spaced), [], "{t}");
    }
}

#[test]
fn without_logprobs_a1_stands_and_says_why_while_a3_runs() {
    let mut arms = arms(learned(|_| 0.0));
    let word = |text: &str| first_word(text).expect("a word");
    for t in 0..100 {
        let p = t as usize % 20;
        assert_eq!(arms.record(at(t), &prompt(p), &word(&format!("w{p}-0 and more"))), []);
    }
    let [a1, a3] = arms.status(Some(3.0));
    assert_eq!((a1.unavailable.as_deref(), a1.n, a1.expected_delay), (Some("no_logprobs"), 0, None));
    assert_eq!((a3.unavailable, a3.n), (None, 100));
    let found = (0..4).find_map(|i| arms.record(at(200 + i), &prompt(3), &word("qua")).into_iter().next());
    assert_eq!(found.expect("within four").arm, Arm::A3);
    let fewer = TopK { alternatives: first(1, 0.0).alternatives[..2].to_vec(), ..first(1, 0.0) };
    arms.record(at(300), &prompt(1), &fewer);
    assert_eq!(arms.status(None)[0].unavailable.as_deref(), Some("k_mismatch"));
    arms.record(at(301), &prompt(1), &first(1, 0.0));
    assert_eq!(arms.status(Some(3.0))[0].expected_delay, Some(3.0), "back again");
}

#[test]
fn more_alternatives_than_health_gave_are_cut_to_as_many() {
    let mut arms = arms(learned(|_| 0.0));
    for t in 0..50 {
        let p = t as usize % 20;
        let mut wider = first(p, 0.0);
        wider.alternatives.push((b"more".to_vec(), -6.0));
        assert_eq!(arms.record(at(t), &prompt(p), &wider), []);
    }
    assert!(arms.status(None)[0].statistic < 10.0);
}

#[test]
fn a_calibration_without_logprobs_learns_first_tokens_only() {
    let mut learner = Learner::new(Plan { scores: 60, ..Plan::CALIBRATION });
    let mut asked = 0;
    while !learner.is_done() {
        let p = asked % 20;
        learner.record(&prompt(p), &first_word(&format!("yes{p} indeed")).expect("a word"));
        asked += 1;
    }
    let mut arms = arms(learner.finish());
    let [a1, a3] = arms.status(None);
    assert_eq!(a1.unavailable.as_deref(), Some("no_logprobs_at_calibration"));
    assert!(a3.expected_delay.is_some_and(|d| (2.0..=4.0).contains(&d)), "{a3:?}");
    assert_eq!(arms.record(at(1), "unknown", &first(1, 0.0)), []);
}

#[test]
fn a_baseline_gives_back_what_was_learned() {
    let reference = learned(|rng| rng.f64());
    let mut baseline = Baseline { scores: reference.healthy.to_columns(), ..Baseline::default() };
    for (id, p) in &reference.prompts {
        let kept = crate::baseline::PromptBaseline {
            first_logprobs: p.logprobs.clone(),
            first_bare: p.bare.clone(),
            first_entropy: p.entropy,
            first_tokens: reference.counts[id].clone(),
            ..Default::default()
        };
        baseline.prompts.insert(Arc::clone(id), kept);
    }
    baseline.canary = Some(crate::baseline::CanaryBaseline { k: 5, ..Default::default() });
    assert_eq!(Reference::of_baseline(&baseline), reference);
}

#[test]
fn a_target_that_changed_while_it_was_learned_is_learned_from_the_change_on() {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut learner = Learner::new(Plan::PROVISIONAL);
    let mut asked = 0;
    while !learner.is_done() {
        let shift = if asked < 30 { 1.4 * rng.f64() } else { 0.1 * rng.f64() };
        learner.record(&prompt(1), &first(1, shift));
        asked += 1;
    }
    assert!((100..=106).contains(&asked), "{asked}");
    let reference = learner.finish();
    assert!(reference.healthy.len() >= MIN_SCORES);
    assert!(reference.healthy.columns()[0].iter().all(|d| *d < 0.1), "the beginning is left out");
}

use super::*;

const DIM: usize = 32;

/// A unit vector near `topic`'s direction.
fn vector(rng: &mut fastrand::Rng, topic: usize, spread: f32) -> Vec<f32> {
    let mut v: Vec<f32> =
        (0..DIM).map(|i| (rng.f32() - 0.5) * spread + if i == topic { 1.0 } else { 0.0 }).collect();
    let length = v.iter().map(|x| x * x).sum::<f32>().sqrt();
    v.iter_mut().for_each(|x| *x /= length);
    v
}

fn trained(rng: &mut fastrand::Rng) -> LiveReference {
    let mut reference = LiveReference::new(DIM, 200, 7);
    for _ in 0..200 {
        let topic = rng.usize(..4);
        let pair = (vector(rng, topic, 0.2), vector(rng, topic + 8, 0.2));
        assert_eq!(reference.record(Timestamp::ZERO, &pair.0, &pair.1, true), None);
    }
    assert!(reference.summary().frozen);
    reference.unmeasured().expect("frozen just now").measure();
    assert!(reference.unmeasured().is_none());
    reference
}

#[test]
fn a_changed_model_moves_response_drift_and_leaves_prompt_drift() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut reference = trained(&mut rng);
    for i in 0..100 {
        reference.record(Timestamp::ZERO, &vector(&mut rng, i % 4, 0.2), &vector(&mut rng, 20, 0.2), true);
    }
    let s = reference.summary();
    assert!(s.response.expect("known") > 0.5, "{s:?}");
    assert!(s.prompt.expect("known") < 0.05, "{s:?}");
}

#[test]
fn changed_traffic_moves_prompt_drift_and_counts_for_coverage_only() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut reference = trained(&mut rng);
    for _ in 0..100 {
        let drift =
            reference.record(Timestamp::ZERO, &vector(&mut rng, 25, 0.2), &vector(&mut rng, 30, 0.2), true);
        assert_eq!(drift.expect("frozen").response, None);
    }
    let s = reference.summary();
    assert_eq!((s.response, s.coverage), (None, Some(0.0)));
    assert!(s.prompt.expect("known") > 0.5, "{s:?}");
}

#[test]
fn healthy_traffic_stays_near_its_noise_floor() {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut reference = trained(&mut rng);
    for i in 0..100 {
        reference.record(
            Timestamp::ZERO,
            &vector(&mut rng, i % 4, 0.2),
            &vector(&mut rng, i % 4 + 8, 0.2),
            true,
        );
    }
    let s = reference.summary();
    assert!(s.response.expect("known") < s.response_floor.expect("known") + 0.02, "{s:?}");
    assert!(s.prompt.expect("known") < s.prompt_floor.expect("known") + 0.02, "{s:?}");
}

#[test]
fn degenerate_vectors_teach_nothing() {
    let mut reference = LiveReference::new(2, 20, 1);
    assert_eq!(reference.record(Timestamp::ZERO, &[f32::NAN, 1.0], &[1.0, 0.0], true), None);
    assert_eq!(reference.record(Timestamp::ZERO, &[1.0], &[1.0, 0.0], true), None);
    assert_eq!(reference.record(Timestamp::ZERO, &[1.0, 0.0], &[1.0, 0.0], false), None);
    reference.freeze();
    assert_eq!(reference.summary(), DriftSummary::default());
    for _ in 0..20 {
        reference.record(Timestamp::ZERO, &[0.0, 0.0], &[0.0, 0.0], true);
    }
    let drift = reference.record(Timestamp::ZERO, &[0.0, 0.0], &[0.0, 0.0], true).expect("frozen");
    assert!(drift.prompt.is_finite() && drift.response.is_none());
}

/// Answers a hundred times; what each window test found.
fn windows(
    reference: &mut LiveReference,
    n: u64,
    mut pair: impl FnMut(usize) -> (Vec<f32>, Vec<f32>),
) -> Vec<Windows> {
    let one = |i: u64| {
        let (prompt, answer) = pair(i as usize);
        reference.record(Timestamp::from_millis(i), &prompt, &answer, true).expect("frozen").windows
    };
    (0..n).filter_map(one).collect()
}

#[test]
fn a_window_says_whether_the_workload_or_the_model_moved() {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut reference = trained(&mut rng);
    let healthy =
        windows(&mut reference, 500, |i| (vector(&mut rng, i % 4, 0.2), vector(&mut rng, i % 4 + 8, 0.2)));
    assert_eq!(healthy.len(), 10);
    assert!(healthy.iter().all(|w| w.moved().is_none()), "{healthy:?}");
    // half of the answers from another model, at the same prompts
    let model = windows(&mut reference, 100, |i| {
        let topic = if i % 2 == 0 { 20 } else { i % 4 + 8 };
        (vector(&mut rng, i % 4, 0.2), vector(&mut rng, topic, 0.2))
    });
    assert!(model.iter().all(|w| w.moved() == Some(Moved::Answers)), "{model:?}");
    let finding = model[1].finding(Timestamp::from_millis(99), &"chat".into());
    assert_eq!((finding.arm, finding.level, finding.n), (Arm::C1, Level::Suspect, 50));
    assert!(finding.statistic > finding.limit && finding.onset == Some(Timestamp::from_millis(50)));
    let traffic = windows(&mut reference, 100, |_| (vector(&mut rng, 25, 0.2), vector(&mut rng, 26, 0.2)));
    assert!(traffic.iter().all(|w| w.moved() == Some(Moved::Workload)), "{traffic:?}");
    let summary = reference.summary();
    assert_eq!(summary.prompt_mmd, Some(traffic[1].prompt));
    assert_eq!(summary.response_mmd, Some(traffic[1].answer));
}

#[test]
fn healthy_windows_keep_the_promised_rate() {
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut moved, mut answers) = (0_usize, 0);
    for _ in 0..10 {
        let mut reference = trained(&mut rng);
        let pair = |rng: &mut fastrand::Rng| {
            let topic = rng.usize(..4);
            (vector(rng, topic, 0.2), vector(rng, topic + 8, 0.2))
        };
        let seen = windows(&mut reference, 1_000, |_| pair(&mut rng));
        moved += seen.iter().filter(|w| w.moved().is_some()).count();
        answers += 1_000;
    }
    // two tests of one answer in ten thousand each
    println!("{moved} of {} healthy windows moved", answers / TESTED);
    assert!(moved as f64 <= crate::stats::poisson::upper95(2.0 * answers as f64 / PROMISE) as f64, "{moved}");
}

#[test]
fn texts_that_are_all_equal_have_no_window_test() {
    let mut rng = fastrand::Rng::with_seed(6);
    let mut reference = LiveReference::new(DIM, 200, 7);
    let prompt = vector(&mut rng, 1, 0.0);
    for _ in 0..200 {
        reference.record(Timestamp::ZERO, &prompt, &vector(&mut rng, 2, 0.2), true);
    }
    reference.unmeasured().expect("frozen").measure();
    assert!(windows(&mut reference, 200, |_| (prompt.clone(), vector(&mut rng, 9, 0.2))).is_empty());
}

use super::*;

const TWO_TAILS: &[Score] = &[Score { name: "x", upper: true, lower: true }];

fn normal(rng: &mut fastrand::Rng) -> f64 {
    (-2.0 * rng.f64().max(1e-300).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

fn healthy(n: usize, mut draw: impl FnMut() -> f64) -> Healthy {
    let mut healthy = Healthy::new(TWO_TAILS);
    (0..n).for_each(|_| healthy.push([Some(draw())]));
    healthy
}

/// Few resamples, for an unoptimised build; the bench holds the whole promise against fresh streams.
#[test]
fn few_scores_need_a_higher_limit_than_many() {
    let mut rng = fastrand::Rng::with_seed(1);
    let few = test(&healthy(60, || normal(&mut rng)), 1_000.0, 150, 1);
    let many = test(&healthy(600, || normal(&mut rng)), 1_000.0, 150, 1);
    assert!(few.kept && many.kept, "{few:?} {many:?}");
    assert!(few.limit > 1.5 * many.limit, "{} {}", few.limit, many.limit);
    assert!(many.limit >= 1_000.0 && many.arl0_p10 >= 1_000.0 && many.arl0 >= many.arl0_p10);
    assert!(few.atoms.abs() < 1e-12);
}

#[test]
fn a_constant_calibration_is_believed_at_the_theorys_limit_and_alarms_never_on_itself() {
    let flat = healthy(100, || 0.25);
    let tested = test(&flat, 1e4, 1_000, 1);
    assert!(tested.kept && (tested.limit - 1e4).abs() < 1e-9 && (tested.atoms - 1.0).abs() < 1e-12);
    let mut detector = Conformal::new(&flat, tested.limit, 1).expect("a score");
    for t in 0..50_000 {
        assert_eq!(detector.record(Timestamp::from_millis(t), |_| Some(0.25)), None);
    }
    let alarms = (0..4).find_map(|_| detector.record(Timestamp::from_millis(60_000), |_| Some(0.9)));
    assert!(alarms.expect("four new values").larger);
}

#[test]
fn dependence_raises_the_limit() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut x = 0.0;
    let drifting = healthy(300, || {
        x = 0.6 * x + normal(&mut rng);
        x
    });
    let mut rng = fastrand::Rng::with_seed(2);
    let plain = healthy(300, || normal(&mut rng));
    let (drifting, plain) = (test(&drifting, 500.0, 100, 3), test(&plain, 500.0, 100, 3));
    assert!(drifting.lag1 > 0.4 && plain.lag1 < 0.15);
    assert!(drifting.limit > 3.0 * plain.limit, "{} {}", drifting.limit, plain.limit);
}

#[test]
fn a_larger_shift_is_seen_sooner_on_paper() {
    let mut rng = fastrand::Rng::with_seed(4);
    let healthy = healthy(200, || normal(&mut rng));
    let by = |shift: f64| {
        delay(&healthy, 2e4, &|row, _| row.iter_mut().for_each(|v| *v += shift), 40, 1_000, 1)
            .expect("scores")
    };
    let (one, three) = (by(1.0), by(3.0));
    assert!(three < 7.0 && one > 2.0 * three && one < 60.0, "{one} {three}");
}

#[test]
fn nothing_known_promises_nothing() {
    let none = Healthy::new(TWO_TAILS);
    assert!(!test(&none, 1e4, 10, 1).kept);
    assert_eq!(delay(&none, 1e4, &|_, _| {}, 1, 1, 1), None);
    let missing = healthy(10, || f64::NAN);
    assert!(!test(&missing, 1e4, 10, 1).kept);
}

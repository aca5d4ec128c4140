use super::*;

const SCORES: &[Score] =
    &[Score { name: "a", upper: true, lower: true }, Score { name: "b", upper: true, lower: false }];

fn at(t: u64) -> Timestamp {
    Timestamp::from_millis(t)
}

fn healthy() -> Healthy {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut healthy = Healthy::new(SCORES);
    (0..300).for_each(|_| healthy.push([Some(rng.f64()), Some(rng.f64())]));
    healthy
}

#[test]
fn an_alarm_names_the_score_its_side_and_the_onset_and_starts_anew() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut detector = Conformal::new(&healthy(), 2e4, 100).expect("scores");
    for t in 0..200 {
        let (a, b) = (rng.f64(), rng.f64());
        assert_eq!(detector.record(at(t), |s| Some(if s == "a" { a } else { b })), None);
    }
    let before = detector.tally().n;
    let mut bad = |t| detector.record(at(t), |s| Some(if s == "a" { -1.0 } else { 0.5 }));
    let alarm = (200..210).find_map(&mut bad).expect("far below all healthy values");
    assert_eq!((alarm.score, alarm.larger, alarm.onset), ("a", false, Some(at(200))));
    assert!(alarm.n > before && alarm.statistic >= 2e4);
    assert_eq!(detector.tally().alarms, 1);
    assert!(detector.statistic().abs() < 1e-12);
}

#[test]
fn a_missing_score_is_passed_over_and_one_never_calibrated_takes_no_part() {
    let mut detector = Conformal::new(&healthy(), 1e4, 100).expect("scores");
    assert_eq!(detector.record(at(0), |_| None), None);
    assert_eq!(detector.record(at(0), |_| Some(f64::NAN)), None);
    assert_eq!(detector.tally(), Tally::default());
    let mut partly = Healthy::new(SCORES);
    (0..50).for_each(|i| partly.push([Some(f64::from(i)), None]));
    let detector = Conformal::new(&partly, 1e4, 10).expect("one score");
    assert_eq!(detector.scores().collect::<Vec<_>>(), ["a"]);
    assert!(Conformal::new(&partly, 1e4, 51).is_none());
    assert!(Conformal::new(&Healthy::new(SCORES), 1e4, 0).is_none());
}

#[test]
fn columns_come_back_as_they_were_kept() {
    let all = healthy();
    assert_eq!(Healthy::from_columns(SCORES, &all.to_columns()), all);
    let mut one = all.to_columns();
    one.remove("b");
    let back = Healthy::from_columns(SCORES, &one);
    assert_eq!(back.len(), 300);
    assert_eq!(back.to_columns().keys().collect::<Vec<_>>(), ["a"]);
    assert!(Healthy::from_columns(SCORES, &BTreeMap::new()).is_empty());
}

#[test]
fn the_state_is_small() {
    let detector = Conformal::new(&healthy(), 1e4, 100).expect("scores");
    assert!(detector.bytes() < 16 << 10, "{} bytes", detector.bytes());
}

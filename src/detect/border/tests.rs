use super::super::calibration::ANOTHER_MODEL;
use super::*;
use crate::baseline::BorderInput;
use crate::verdict::Wire;

const INPUTS: usize = 32;

fn baseline(first_tokens: &[(&str, u32)], flips: f64, promise: f64) -> BorderBaseline {
    let counts: BTreeMap<String, u32> = first_tokens.iter().map(|(t, n)| ((*t).to_owned(), *n)).collect();
    let input = |i: usize| BorderInput { text: i.to_string(), margin: 0.1, first_tokens: counts.clone() };
    BorderBaseline {
        wire: Wire::Chat,
        candidates: 400,
        flips,
        promise,
        delays: BTreeMap::from([(ANOTHER_MODEL.to_owned(), 5.0)]),
        inputs: (0..INPUTS).map(|i| (id(i), input(i))).collect(),
    }
}

fn id(i: usize) -> Arc<str> {
    format!("border:{i}").into()
}

fn sound() -> Border {
    Border::new(&baseline(&[("I", 8)], 0.05, 1e4))
}

/// Asks random rounds until a finding; which answer it was.
fn found(
    arm: &mut Border,
    tipped: &[bool],
    rounds: usize,
    rng: &mut fastrand::Rng,
) -> Option<(usize, Finding)> {
    let mut order: Vec<usize> = (0..INPUTS).collect();
    let mut n = 0;
    for _ in 0..rounds {
        rng.shuffle(&mut order);
        for i in &order {
            n += 1;
            let token = if tipped[*i] { "You" } else { "I" };
            if let Some(finding) = arm.record(Timestamp::from_millis(n as u64), &id(*i), token) {
                return Some((n, finding));
            }
        }
    }
    None
}

#[test]
fn another_model_is_found_within_six_answers_and_a_small_change_within_a_round() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut delays = Vec::new();
    for share in [1.0, 0.4] {
        let mut all = Vec::new();
        for _ in 0..100 {
            let mut arm = sound();
            assert!(found(&mut arm, &[false; INPUTS], 3, &mut rng).is_none());
            let tipped: Vec<bool> = (0..INPUTS).map(|_| rng.f64() < share).collect();
            let (n, finding) =
                found(&mut arm, &tipped, 2, &mut rng).map_or((99, None), |(n, f)| (n, Some(f)));
            if let Some(finding) = finding {
                assert_eq!((finding.arm, finding.level), (Arm::A2, Level::Suspect));
                assert!(finding.statistic >= finding.limit && finding.n <= n as u64, "{finding:?}");
                assert!(finding.onset.is_some() && finding.arl0 == Some(1e4));
            }
            all.push(n as f64);
        }
        delays.push(crate::stats::quantile::median(&all).expect("a hundred"));
    }
    println!("median delays: all tipped {}, two of five tipped {}", delays[0], delays[1]);
    assert!(delays[0] <= 6.0 && delays[1] <= INPUTS as f64, "{delays:?}");
}

#[test]
fn some_inputs_that_have_tipped_for_good_are_no_change_however_often_they_are_asked() {
    let mut rng = fastrand::Rng::with_seed(2);
    for tipped in 0..=3 {
        let mut arm = sound();
        let pattern: Vec<bool> = (0..INPUTS).map(|i| i < tipped).collect();
        let alarm = found(&mut arm, &pattern, 1_000, &mut rng);
        assert!(alarm.is_none(), "{tipped} of {INPUTS}: {alarm:?}");
    }
}

/// How a healthy input answers: by a draw of its own each time, or one that holds for a long time.
#[derive(Clone, Copy, Debug)]
enum Health {
    Flips(f64),
    TipsForLong(f64),
    Shared(f64),
}

#[test]
fn healthy_targets_keep_the_promise_whether_they_repeat_themselves_or_not() {
    let mut rng = fastrand::Rng::with_seed(3);
    let (promise, length) = (1_000.0, 4_000);
    for law in [Health::Flips(0.05), Health::TipsForLong(0.05), Health::Shared(0.6), Health::Shared(0.9)] {
        let (mut alarms, mut seen) = (0.0, 0.0);
        for _ in 0..30 {
            let mut healthy = baseline(&[("I", 8)], 0.05, promise);
            if let Health::Shared(usual) = law {
                for input in healthy.inputs.values_mut() {
                    let yes = (0..8).filter(|_| rng.f64() < usual).count() as u32;
                    input.first_tokens = [("I", yes), ("You", 8 - yes)]
                        .into_iter()
                        .filter(|(_, n)| *n > 0)
                        .map(|(t, n)| (t.to_owned(), n))
                        .collect();
                }
            }
            let mut arm = Border::new(&healthy);
            let mut tipped = [false; INPUTS];
            for t in 0..length {
                let i = t % INPUTS;
                if let Health::TipsForLong(share) = law
                    && t % (100 * INPUTS) < INPUTS
                {
                    tipped[i] = rng.f64() < share;
                }
                let other = match law {
                    Health::Flips(share) => rng.f64() < share,
                    Health::TipsForLong(_) => tipped[i],
                    Health::Shared(usual) => rng.f64() >= usual,
                };
                let token = if other { "You" } else { "I" };
                alarms += f64::from(u8::from(arm.record(Timestamp::ZERO, &id(i), token).is_some()));
                seen += 1.0;
            }
        }
        println!("{law:?}: {alarms} alarms in {seen} answers, at most {:.0} promised", seen / promise);
        assert!(alarms <= seen / promise, "{law:?}: {alarms} in {seen}");
    }
}

#[test]
fn after_a_change_its_new_answers_are_learned_and_watched() {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut arm = sound();
    arm.learn_anew();
    assert!(found(&mut arm, &[true; INPUTS], 1, &mut rng).is_none());
    let why = arm.status().unavailable.expect("it learns");
    assert!(why.contains("learning: 32 of 96"), "{why}");
    assert!(found(&mut arm, &[true; INPUTS], 20, &mut rng).is_none());
    assert_eq!(arm.status().unavailable, None);
    let (n, _) = found(&mut arm, &[false; INPUTS], 1, &mut rng).expect("it has changed back");
    assert!(n <= 8, "{n}");
}

#[test]
fn a_target_that_is_always_new_or_brings_logprobs_has_no_such_arm() {
    let mut varied = Border::new(&baseline(&[("I", 8)], 0.3, 1e4));
    assert_eq!(varied.status().unavailable.as_deref(), Some("health_is_too_varied"));
    assert!(found(&mut varied, &[true; INPUTS], 3, &mut fastrand::Rng::with_seed(5)).is_none());
    let mut arm = sound();
    assert_eq!((arm.status().unavailable, arm.status().expected_delay), (None, Some(5.0)));
    arm.set_logprobs(true);
    assert_eq!(arm.status().unavailable.as_deref(), Some("logprobs_say_more"));
    assert_eq!(arm.status().expected_delay, None);
    let nothing = Border::new(&BorderBaseline { inputs: BTreeMap::new(), ..baseline(&[], 0.05, 1e4) });
    assert!(nothing.is_empty() && !nothing.knows("border:1"));
    assert!((nothing.status().statistic).abs() < 1e-12);
}

#[test]
fn a_word_stands_for_the_token_that_it_begins_with() {
    let mut arm = sound();
    let i: Arc<str> = id(0);
    let _ = arm.record(Timestamp::ZERO, &i, "It");
    assert!(arm.status().onset.is_none(), "`It` begins with the known `I`");
    let _ = arm.record(Timestamp::ZERO, &i, "You");
    assert!(arm.status().onset.is_some());
    assert!(arm.record(Timestamp::ZERO, &"canary-x".into(), "You").is_none());
}

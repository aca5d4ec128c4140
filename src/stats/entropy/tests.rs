use proptest::prelude::*;

use super::*;

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance
}

fn exact(p: &[f64]) -> f64 {
    p.iter().map(|p| plogp(*p)).sum()
}

/// The `k` largest logprobs of a distribution.
fn top(p: &[f64], k: usize) -> Vec<f64> {
    let mut l: Vec<f64> = p.iter().map(|p| p.ln()).collect();
    l.sort_by(|a, b| b.total_cmp(a));
    l.truncate(k);
    l
}

fn renormalised(l: &[f64]) -> f64 {
    let total: f64 = l.iter().map(|l| l.exp()).sum();
    l.iter().map(|l| plogp(l.exp() / total)).sum()
}

#[test]
fn a_certain_token_has_no_entropy() {
    let e = position(&[0.0], Some(32_000)).expect("known");
    assert!(close(e.lumped, 0.0, 1e-12) && close(e.tail_mass, 0.0, 1e-12));
    assert!(close(e.upper.expect("vocabulary known"), 0.0, 1e-12));
}

#[test]
fn a_uniform_vocabulary_lies_on_the_upper_bound() {
    let (v, k) = (1000_u32, 5);
    let l = vec![-f64::from(v).ln(); k];
    let e = position(&l, Some(v)).expect("known");
    assert!(close(e.upper.expect("vocabulary known"), f64::from(v).ln(), 1e-9));
    // All tail tokens at most as likely as the least shown one: the lower bound meets it too.
    assert!(close(e.lower, f64::from(v).ln(), 1e-9));
}

#[test]
fn two_halves_shown_of_one_are_lumped_to_one_bit() {
    let e = position(&[0.5_f64.ln()], None).expect("known");
    assert!(close(e.lumped, 2.0_f64.ln(), 1e-12));
    assert!(close(e.lower, 2.0_f64.ln(), 1e-12), "one tail token of one half");
    assert_eq!(e.upper, None);
}

#[test]
fn the_mass_never_turns_negative() {
    let e = position(&[-1e-9, -18.0, -18.5], Some(50_000)).expect("known");
    assert!(e.tail_mass >= 0.0 && e.lumped >= 0.0);
    assert!(e.lower <= e.upper.expect("vocabulary known"));
}

#[test]
fn what_is_no_logprob_is_not_known() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.5] {
        assert_eq!(position(&[-0.1, bad], None), None);
    }
    assert_eq!(position(&[], None), None);
    assert!(position(&[1e-7], None).is_some(), "a hair above zero is rounding");
    let e = position(&[-0.1, -700.0], None).expect("floored");
    assert!(close(e.top_mean_logprob, (-0.1 + FLOOR_LOGPROB) / 2.0, 1e-9));
}

#[test]
fn a_vocabulary_smaller_than_what_is_shown_is_unknown() {
    assert_eq!(position(&[-1.0, -2.0], Some(1)).expect("known").upper, None);
}

/// A distribution with H = 3.38 in a vocabulary of 128k: renormalising says 1.58 at k = 5 and 2.32 at
/// k = 20, the intervals are [2.23, 6.00] and [3.02, 4.56] (to the 0.03 of the rounded probabilities).
#[test]
fn the_interval_holds_where_renormalising_fails() {
    let mut p = vec![0.165, 0.155, 0.125, 0.1095, 0.0775];
    p.extend([0.03, 0.025, 0.021, 0.018, 0.015, 0.012, 0.01, 0.0085, 0.0075, 0.007]);
    p.extend([0.0065, 0.006, 0.0058, 0.0057, 0.0056]);
    let rest: f64 = 1.0 - p.iter().sum::<f64>();
    p.extend(std::iter::repeat_n(rest / 232.0, 232));
    let h = exact(&p);
    assert!(close(h, 3.38, 0.005), "{h}");
    for (k, naive, lower, upper) in [(5, 1.58, 2.23, 6.00), (20, 2.32, 3.02, 4.56)] {
        let l = top(&p, k);
        let e = position(&l, Some(128_000)).expect("known");
        assert!(close(renormalised(&l), naive, 0.03));
        assert!(close(e.lower, lower, 0.03), "k = {k}: {}", e.lower);
        let most = e.upper.expect("vocabulary known");
        assert!(close(most, upper, 0.03), "k = {k}: {most}");
        assert!(renormalised(&l) < e.lower && e.lower <= h && h <= most);
    }
}

#[test]
fn class_entropy_confidence_and_margin() {
    let e = categorical(&[0.7, 0.2, 0.1]).expect("known");
    assert!(close(e.entropy, 0.801_818_552_543_337, 1e-12));
    assert!(close(e.normalised, 0.801_818_552_543_337 / 3.0_f64.ln(), 1e-12));
    assert!(close(e.confidence, 0.7, 1e-12) && close(e.margin, 0.5, 1e-12));
    assert_eq!(e.top, 0);
    let flat = categorical(&[0.25; 4]).expect("known");
    assert!(close(flat.normalised, 1.0, 1e-12) && close(flat.margin, 0.0, 1e-12));
    let one = categorical(&[1.0]).expect("known");
    assert!(close(one.normalised, 0.0, 0.0) && close(one.margin, 1.0, 0.0));
    let late = categorical(&[0.1, 0.2, 0.7]).expect("known");
    assert!(late.top == 2 && close(late.margin, 0.5, 1e-12));
    for bad in [&[] as &[f64], &[0.0, 0.0], &[-0.1, 1.1], &[f64::NAN, 1.0]] {
        assert_eq!(categorical(bad), None);
    }
}

#[test]
fn softmax_survives_large_scores() {
    let p = softmax(&[1000.0, 1000.0]).expect("finite");
    assert!(close(p[0], 0.5, 1e-12));
    assert_eq!(softmax(&[]), None);
    assert_eq!(softmax(&[1.0, f64::NAN]), None);
}

#[test]
fn independent_labels_are_averaged() {
    assert!(close(binary_mean(&[0.5, 0.5]).expect("known"), 2.0_f64.ln(), 1e-12));
    assert!(close(binary_mean(&[0.0, 1.0]).expect("known"), 0.0, 1e-12));
    assert_eq!(binary_mean(&[]), None);
    assert_eq!(binary_mean(&[1.2]), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The exact entropy of any distribution lies in the interval of its top k.
    #[test]
    fn the_interval_contains_the_exact_entropy(
        logits in prop::collection::vec(-12.0_f64..12.0, 21..200),
        sharpness in 0.1_f64..3.0,
    ) {
        let scaled: Vec<f64> = logits.iter().map(|l| l * sharpness).collect();
        let p = softmax(&scaled).expect("finite");
        // The floor of the logprobs is part of what is measured.
        prop_assume!(p.iter().all(|p| p.ln() > FLOOR_LOGPROB));
        let h = exact(&p);
        let v = u32::try_from(p.len()).expect("small");
        for k in [1, 5, 10, 20] {
            let e = position(&top(&p, k), Some(v)).expect("known");
            let upper = e.upper.expect("vocabulary known");
            prop_assert!(e.lower <= h + 1e-9 && h <= upper + 1e-9, "k = {}: {} ≤ {} ≤ {}", k, e.lower, h, upper);
            prop_assert!(e.truncated <= e.lumped + 1e-12 && e.lumped <= upper + 1e-9);
            prop_assert!((0.0..=1.0).contains(&e.tail_mass));
        }
    }

    /// Whatever comes in, nothing but finite numbers comes out.
    #[test]
    fn nothing_but_finite_numbers_comes_out(logprobs in prop::collection::vec(prop::num::f64::ANY, 0..30), vocab in prop::option::of(any::<u32>())) {
        if let Some(e) = position(&logprobs, vocab) {
            for x in [e.truncated, e.lumped, e.tail_mass, e.lower, e.upper.unwrap_or(0.0), e.top_mean_logprob] {
                prop_assert!(x.is_finite() && (x >= -1e-9 || x.total_cmp(&e.top_mean_logprob).is_eq()));
            }
        }
    }
}

#[test]
fn the_exponential_is_right_within_two_units_of_the_last_place() {
    let mut worst = 0;
    for i in 0..=400_000 {
        let x = -f64::from(i) * 1e-4;
        let near = [x, x.next_down().max(FLOOR_LOGPROB), x.next_up().min(0.0), x / 40.0];
        for x in near {
            worst = worst.max(exp(x).to_bits().abs_diff(x.exp().to_bits()));
        }
    }
    assert!(worst <= 2, "{worst}");
    assert_eq!(exp(0.0).to_bits(), 1_f64.to_bits());
}

#[test]
fn a_certain_token_has_an_entropy_of_plain_zero() {
    let certain = position(&[0.0], Some(1)).expect("a logprob");
    for value in [certain.truncated, certain.lumped, certain.lower] {
        assert_eq!(value.to_bits(), 0.0_f64.to_bits());
    }
}

//! Published figures that our simulations must reproduce, each printed beside its reference:
//! `cargo test --test detect_reference -- --nocapture`. What simulates them also measures our own detectors
//! (`tests/benches/detect.rs`), so it had better be right.

#![allow(clippy::print_stdout)] // figures beside their references

#[path = "benches/detect/baselines.rs"]
mod baselines;
#[path = "benches/detect/laws.rs"]
mod laws;

use baselines::{Adwin, Cusum, Detector, Kswin, PageHinkley, siegmund};
use laws::{delay, normal};
use touchstone::stats::entropy;

/// Mean run length of a two-sided CUSUM with k = ½ on values moved by `shift`.
fn cusum_arl(h: f64, shift: f64, runs: u32) -> f64 {
    let mut rng = fastrand::Rng::with_seed((h * 100.0 + shift * 7.0) as u64);
    let mut total = 0_u64;
    for _ in 0..runs {
        let mut cusum = Cusum::new(0.5, h);
        loop {
            total += 1;
            if cusum.push(normal(&mut rng) + shift) {
                break;
            }
        }
    }
    total as f64 / f64::from(runs)
}

#[test]
fn the_two_sided_cusum_has_montgomerys_run_lengths() {
    let shifts = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0];
    let table = [
        (4.0, [168.0, 74.2, 26.6, 13.3, 8.38, 4.75, 3.34, 2.19]),
        (5.0, [465.0, 139.0, 38.0, 17.0, 10.4, 5.75, 4.01, 2.57]),
    ];
    for (h, published) in table {
        for (shift, published) in shifts.into_iter().zip(published) {
            // 2 % and what remains of simulation error: run lengths in health are nearly exponential
            let runs = if published > 50.0 { 12_000 } else { 8_000 };
            let ours = cusum_arl(h, shift, runs);
            println!("h = {h} shift {shift:4}: {ours:7.2}, published {published}");
            assert!(
                (ours / published - 1.0).abs() < 0.03,
                "h {h}, shift {shift}: {ours} against {published}"
            );
        }
    }
}

#[test]
fn siegmunds_formula_gives_the_run_length_in_health() {
    for (h, published) in [(4.0, 168.0), (5.0, 465.0)] {
        let formula = siegmund(0.5, h);
        println!("h = {h}: Siegmund {formula:.1}, table {published}");
        assert!((formula / published - 1.0).abs() < 0.02, "{formula} against {published}");
    }
}

fn both<D: Detector>(name: &str, fresh: impl Fn(u64) -> D + Copy, arl0: Option<f64>, delays: [f64; 3]) {
    let (seen, silent) = delay(fresh, 0.0, 0, 120, 12_000);
    let ours = [1.0, 2.0, 3.0].map(|shift| delay(fresh, shift, 300, 150, 2_000).0);
    println!(
        "{name}: ARL0 {seen:.0} ({:.0} % silent), published {arl0:?}; delays {ours:.1?}, published {delays:?}",
        silent * 100.0
    );
    match arl0 {
        None => assert!(silent > 0.9, "{name}: {silent}"),
        Some(arl0) => assert!((0.6..1.6).contains(&(seen / arl0)), "{name}: {seen} against {arl0}"),
    }
    // The second and third shift of published runs depend on the change's place in a detector's own clock.
    assert!((0.6..1.6).contains(&(ours[0] / delays[0])), "{name}: {ours:?} against {delays:?}");
}

#[test]
fn the_comparison_detectors_do_what_is_published_of_them() {
    both("ADWIN", |_| Adwin::new(), None, [57.0, 24.0, 24.0]);
    both("Page–Hinkley", |_| PageHinkley::default(), Some(1_474.0), [42.0, 22.0, 15.0]);
    both("KSWIN", Kswin::new, Some(554.0), [36.0, 19.0, 96.0]);
}

#[test]
fn the_entropy_interval_always_contains_the_exact_entropy() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut checked = 0;
    for round in 0..400 {
        let vocab = 50 + rng.u32(..3_000);
        let steep = 0.2 + 5.0 * rng.f64();
        let weights: Vec<f64> = (0..vocab).map(|_| (steep * normal(&mut rng)).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut p: Vec<f64> = weights.iter().map(|w| w / total).collect();
        p.sort_by(|a, b| b.total_cmp(a));
        let exact: f64 = p.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
        for k in [1, 5, 10, 20] {
            let top: Vec<f64> = p.iter().take(k).map(|p| p.ln()).collect();
            let h = entropy::position(&top, Some(vocab)).expect("logprobs");
            let upper = h.upper.expect("the vocabulary is known");
            assert!(
                h.lower <= exact + 1e-9 && exact <= upper + 1e-9,
                "round {round}, k {k}: {h:?}, exact {exact}"
            );
            checked += 1;
        }
    }
    println!("{checked} intervals, all contain the exact entropy");
}

//! Has a finished stretch of numbers changed somewhere inside?
//!
//! Pettitt's rank test ("A non-parametric approach to the change-point problem", 1979): U_t counts how far the
//! first t values stand above or below the rest; the largest |U_t| tells the place, and
//! p ≈ 2·exp(−6K² ÷ (n³ + n²)) how surprising it is. Ties make it cautious.

/// Where the values change level (the first index of the new one), if chance explains that with less than `p`.
#[must_use]
pub fn pettitt(values: &[f64], p: f64) -> Option<usize> {
    let n = values.len();
    let sign = |a: f64, b: f64| f64::from(i8::from(a > b) - i8::from(a < b));
    let (mut u, mut most, mut place) = (0.0, 0.0, 0);
    for t in 0..n {
        // Moving value t to the early side: it no longer stands against the early ones, but for them.
        u += values.iter().map(|other| sign(values[t], *other)).sum::<f64>();
        if f64::abs(u) > most {
            (most, place) = (f64::abs(u), t + 1);
        }
    }
    let n = n as f64;
    let chance = 2.0 * (-6.0 * most * most / (n * n * n + n * n)).exp();
    (chance < p).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_found_where_it_is_and_noise_has_none() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut found = 0;
        for _ in 0..500 {
            let noise: Vec<f64> = (0..60).map(|_| rng.f64()).collect();
            found += u32::from(pettitt(&noise, 0.01).is_some());
            let step: Vec<f64> =
                noise.iter().enumerate().map(|(i, x)| x + f64::from(u8::from(i >= 25))).collect();
            let place = pettitt(&step, 1e-4).expect("a step");
            // A value joins the early side while fewer early ones stand below it than late ones above:
            // of 35 late values the five lowest may, if they come first.
            assert!((25..=30).contains(&place), "{place}");
        }
        assert!(found <= 10, "{found} of 500 at 1 %");
        assert_eq!(pettitt(&[1.0; 50], 0.5), None);
        assert_eq!(pettitt(&[], 0.5), None);
    }
}

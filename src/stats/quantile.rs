//! Quantiles and moments of a slice.
//!
//! Quantiles interpolate linearly between order statistics (Hyndman and Fan 1996, type 7: the default
//! of R and NumPy). Values that are not finite are left out.

/// The `q`-quantile (0..=1, clamped) of the finite values, in any order. `None` if there are none.
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted_quantile(&sorted, q)
}

/// The `q`-quantile, where at least so many values tell it.
#[must_use]
pub fn told(values: &[f64], q: f64, least: usize) -> Option<f64> {
    if values.len() < least { None } else { quantile(values, q) }
}

/// The `q`-quantile of values that are finite and sorted upwards. `None` if there are none or `q` is NaN.
#[must_use]
pub fn sorted_quantile(sorted: &[f64], q: f64) -> Option<f64> {
    if sorted.is_empty() || q.is_nan() {
        return None;
    }
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // an index into a slice: not negative, far below 2^52
    let (below, part) = {
        let rank = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
        (rank.floor() as usize, rank - rank.floor())
    };
    let low = sorted[below];
    let high = sorted[(below + 1).min(sorted.len() - 1)];
    Some(part.mul_add(high - low, low))
}

/// Median of the finite values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Mean of the finite values.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    let (mut n, mut mean) = (0.0, 0.0);
    for v in values.iter().filter(|v| v.is_finite()) {
        n += 1.0;
        mean += (v - mean) / n;
    }
    (n > 0.0).then_some(mean)
}

/// Sample variance (n − 1) of the finite values; `None` for fewer than two. Welford's method.
#[must_use]
pub fn variance(values: &[f64]) -> Option<f64> {
    let (mut n, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for v in values.iter().filter(|v| v.is_finite()) {
        n += 1.0;
        let delta = v - mean;
        mean += delta / n;
        squares += delta * (v - mean);
    }
    (n > 1.0).then(|| squares / (n - 1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let v = [4.0, 1.0, 3.0, 2.0];
        let is = |q: f64, want: f64| (quantile(&v, q).expect("not empty") - want).abs() < 1e-12;
        assert!(is(0.0, 1.0) && is(1.0, 4.0) && is(0.5, 2.5) && is(0.25, 1.75) && is(0.9, 3.7));
        assert!(is(-3.0, 1.0) && is(7.0, 4.0), "clamped");
    }

    #[test]
    fn nothing_known_gives_nothing() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[f64::NAN, f64::INFINITY], 0.5), None);
        assert_eq!(quantile(&[1.0], f64::NAN), None);
        assert_eq!(mean(&[]), None);
        assert_eq!(variance(&[1.0]), None);
    }

    #[test]
    fn moments() {
        let v = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0, f64::NAN];
        assert!((mean(&v).expect("known") - 5.0).abs() < 1e-12);
        assert!((variance(&v).expect("known") - 32.0 / 7.0).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn a_quantile_lies_between_the_extremes_and_grows(v in prop::collection::vec(-1e6_f64..1e6, 1..60), a in 0.0_f64..1.0, b in 0.0_f64..1.0) {
            let (lo, hi) = (a.min(b), a.max(b));
            let (x, y) = (quantile(&v, lo).expect("some"), quantile(&v, hi).expect("some"));
            let min = v.iter().copied().fold(f64::INFINITY, f64::min);
            let max = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            prop_assert!(min <= x && x <= y + 1e-9 && y <= max + 1e-9);
        }
    }
}

//! The standard normal distribution: what normal-score bets are made of.

use std::f64::consts::SQRT_2;

/// P(Z ≤ x).
#[must_use]
pub fn cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x / SQRT_2)
}

/// The x with P(Z ≤ x) = p; ∓∞ at 0 and 1, NaN outside. By bisection of [`cdf`], to 10⁻¹²: tables are
/// made of it, once.
#[must_use]
pub fn quantile(p: f64) -> f64 {
    if !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p > 0.5 {
        return -quantile(1.0 - p); // the lower tail keeps its digits
    }
    if p <= 0.0 {
        return f64::NEG_INFINITY;
    }
    let (mut low, mut high) = (-39.0, 0.0);
    while high - low > 1e-12 {
        let mid = f64::midpoint(low, high);
        if cdf(mid) < p { low = mid } else { high = mid }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tabled_values_come_out_and_the_two_are_each_others_inverse() {
        for (p, x) in [(0.975, 1.959_963_985), (0.9, 1.281_551_566), (0.5, 0.0), (1e-6, -4.753_424_309)] {
            assert!((quantile(p) - x).abs() < 1e-8, "{p}: {}", quantile(p));
            assert!((cdf(x) - p).abs() < 1e-9);
        }
        assert_eq!((quantile(0.0), quantile(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
        assert!(quantile(1.5).is_nan() && quantile(f64::NAN).is_nan());
    }
}

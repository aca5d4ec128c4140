//! How many rare events chance allows.

/// The smallest n with P(X ≤ n) ≥ 95 % for a Poisson count of this mean; 0 for a mean that is not positive.
#[must_use]
pub fn upper95(mean: f64) -> u64 {
    if !mean.is_finite() || mean <= 0.0 {
        return 0;
    }
    if mean > 500.0 {
        return (mean + 1.644_853_6 * mean.sqrt() + 0.5).ceil() as u64; // e^{−mean} would underflow
    }
    let (mut n, mut term) = (0_u64, (-mean).exp());
    let mut sum = term;
    while sum < 0.95 {
        n += 1;
        term *= mean / n as f64;
        sum += term;
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tabled_bounds_come_out() {
        for (mean, bound) in [(0.0, 0), (0.05, 0), (0.1, 1), (1.0, 3), (2.8, 6), (10.0, 15), (f64::NAN, 0)] {
            assert_eq!(upper95(mean), bound, "{mean}");
        }
        assert!(upper95(500.0).abs_diff(upper95(501.0)) <= 3, "the two ways agree where they meet");
    }
}

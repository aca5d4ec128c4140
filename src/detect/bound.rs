//! Upper confidence bound of a failure rate.

/// Above so many faults the normal approximation is good and the exact sum long.
const EXACT_UP_TO: u32 = 100;
/// One-sided 95 % quantile of the normal distribution.
const Z95: f64 = 1.644_853_626_951_472_7;

/// The one-sided 95 % upper bound of a rate of which `faults` of `n` were seen; 1 for no data.
///
/// Exact (Clopper and Pearson 1934) for few faults, Wilson's score bound for many.
#[must_use]
pub fn upper95(faults: u32, n: u32) -> f64 {
    if faults >= n {
        return 1.0;
    }
    if faults > EXACT_UP_TO {
        return wilson(f64::from(faults), f64::from(n));
    }
    let (mut low, mut high) = (f64::from(faults) / f64::from(n), 1.0);
    for _ in 0..60 {
        let mid = f64::midpoint(low, high);
        if binomial_cdf(faults, n, mid) > 0.05 { low = mid } else { high = mid }
    }
    high
}

fn wilson(k: f64, n: f64) -> f64 {
    let (p, z2) = (k / n, Z95 * Z95);
    let spread = Z95 * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    ((p + z2 / (2.0 * n) + spread) / (1.0 + z2 / n)).min(1.0)
}

/// P(X ≤ k) for X binomial(n, p), summed in logarithms.
fn binomial_cdf(k: u32, n: u32, p: f64) -> f64 {
    let (ln_p, ln_q) = (p.ln(), (-p).ln_1p());
    let mut ln_term = f64::from(n) * ln_q;
    let mut sum = ln_term.exp();
    for i in 0..k {
        ln_term += (f64::from(n - i) / f64::from(i + 1)).ln() + ln_p - ln_q;
        sum += ln_term.exp();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_fault_in_n_is_bounded_by_three_over_n() {
        for n in [30, 300, 2_000] {
            let exact = 1.0 - 0.05_f64.powf(1.0 / f64::from(n));
            assert!((upper95(0, n) - exact).abs() < 1e-9);
        }
    }

    #[test]
    fn the_bound_agrees_with_published_tables_and_its_own_approximation() {
        assert!((upper95(1, 10) - 0.394_2).abs() < 5e-4);
        assert!((upper95(5, 100) - 0.102_3).abs() < 5e-4);
        assert!((upper95(100, 10_000) / upper95(101, 10_000) - 1.0).abs() < 0.02);
    }

    #[test]
    fn degenerate_counts_are_bounded_by_one() {
        for (k, n) in [(0, 0), (1, 1), (9, 3)] {
            assert!((upper95(k, n) - 1.0).abs() < 1e-12);
        }
    }
}

//! Distances of embedding vectors.
//!
//! The cosine distance of two centroids is never 0 for different samples of one healthy model: with
//! few and varied answers the noise alone reaches the thresholds that are often recommended.
//! [`centroid_noise_floor`] says how much of it to expect.

use ndarray::{Array1, ArrayView1, ArrayView2};

/// Cosine similarity, −1..=1. `None` for different lengths, an empty, zero or non-finite vector.
#[must_use]
pub fn cosine(a: ArrayView1<'_, f32>, b: ArrayView1<'_, f32>) -> Option<f64> {
    if a.len() != b.len() {
        return None;
    }
    let (mut dot, mut aa, mut bb) = (0.0_f64, 0.0_f64, 0.0_f64);
    for (x, y) in a.iter().zip(b.iter()) {
        let (x, y) = (f64::from(*x), f64::from(*y));
        dot += x * y;
        aa += x * x;
        bb += y * y;
    }
    let norm = aa.sqrt() * bb.sqrt();
    (norm.is_finite() && norm > 0.0).then(|| (dot / norm).clamp(-1.0, 1.0))
}

/// Cosine distance 1 − cosine, 0..=2.
#[must_use]
pub fn cosine_distance(a: ArrayView1<'_, f32>, b: ArrayView1<'_, f32>) -> Option<f64> {
    cosine(a, b).map(|c| 1.0 - c)
}

/// Mean of the rows. `None` if there are none or the mean is not finite.
#[must_use]
pub fn centroid(rows: ArrayView2<'_, f32>) -> Option<Array1<f32>> {
    let mut sum = Array1::<f64>::zeros(rows.ncols());
    for row in rows.rows() {
        sum.zip_mut_with(&row, |s, x| *s += f64::from(*x));
    }
    if rows.nrows() == 0 || sum.iter().any(|s| !s.is_finite()) {
        return None;
    }
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    // back to the vectors' own precision
    Some(sum.mapv(|s| (s / rows.nrows() as f64) as f32))
}

/// Mean cosine of all pairs of different rows, in one pass: with unit rows u and their sum S,
/// (|S|² − n) ÷ (n(n − 1)). `None` for fewer than two usable rows.
#[must_use]
pub fn mean_pairwise_cosine(rows: ArrayView2<'_, f32>) -> Option<f64> {
    let mut sum = Array1::<f64>::zeros(rows.ncols());
    let mut n = 0.0;
    for row in rows.rows() {
        let norm = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        if norm.is_finite() && norm > 0.0 {
            sum.zip_mut_with(&row, |s, x| *s += f64::from(*x) / norm);
            n += 1.0;
        }
    }
    (n > 1.0).then(|| (sum.dot(&sum) - n) / (n * (n - 1.0)))
}

/// The cosine distance to expect between the centroids of `n` and `m` unit vectors of one population
/// with mean pairwise cosine `s`: 1 − s/√((s+(1−s)/n)(s+(1−s)/m)). An exact centroid is `None`.
///
/// `None` if `s` is outside 0 < s ≤ 1 or a count is 0.
#[must_use]
pub fn centroid_noise_floor(s: f64, n: u32, m: Option<u32>) -> Option<f64> {
    if !(s > 0.0 && s <= 1.0) || n == 0 || m == Some(0) {
        return None;
    }
    let spread = |count: u32| s + (1.0 - s) / f64::from(count);
    let product = spread(n) * m.map_or(s, spread);
    Some((1.0 - s / product.sqrt()).max(0.0))
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, array};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_noise_floor_of_twenty_mixed_answers() {
        let exact = centroid_noise_floor(0.2, 20, None).expect("valid");
        let both = centroid_noise_floor(0.2, 20, Some(20)).expect("valid");
        assert!((exact - 0.087).abs() < 0.0005, "{exact}");
        assert!((both - 0.167).abs() < 0.0005, "{both}");
        assert_eq!(centroid_noise_floor(0.0, 20, None), None);
        assert_eq!(centroid_noise_floor(0.2, 0, None), None);
        assert_eq!(centroid_noise_floor(f64::NAN, 20, None), None);
    }

    /// The formula against sampled vectors: unit vectors of dimension 64 around a common direction.
    #[test]
    fn sampled_centroids_agree_with_the_noise_floor() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut normal = || {
            let (u, v) = (rng.f64().max(1e-12), rng.f64());
            (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
        };
        let dim = 384;
        let mut draw = |n: usize| {
            let mut rows = Array2::<f32>::zeros((n, dim));
            for mut row in rows.rows_mut() {
                // mean pairwise cosine 0.2: a common part of squared length 0.2, noise of 0.8
                row[0] = 0.2_f64.sqrt() as f32;
                for x in row.iter_mut().skip(1) {
                    *x = (normal() * (0.8 / (dim - 1) as f64).sqrt()) as f32;
                }
            }
            rows
        };
        let rounds = 60;
        let mean: f64 = (0..rounds)
            .map(|_| {
                let (a, b) = (draw(20), draw(20));
                let (a, b) = (centroid(a.view()).expect("rows"), centroid(b.view()).expect("rows"));
                cosine_distance(a.view(), b.view()).expect("valid")
            })
            .sum::<f64>()
            / f64::from(rounds);
        assert!((mean - 0.167).abs() < 0.01, "{mean}");
        let s = mean_pairwise_cosine(draw(400).view()).expect("rows");
        assert!((s - 0.2).abs() < 0.01, "{s}");
    }

    #[test]
    fn cosine_of_degenerate_vectors_is_not_known() {
        let (a, zero) = (array![1.0_f32, 0.0], array![0.0_f32, 0.0]);
        assert_eq!(cosine(a.view(), zero.view()), None);
        assert_eq!(cosine(a.view(), array![1.0_f32].view()), None);
        assert_eq!(cosine(a.view(), array![f32::NAN, 1.0].view()), None);
        assert_eq!(cosine(array![f32::INFINITY, 0.0].view(), a.view()), None);
        let empty = Array1::<f32>::zeros(0);
        assert_eq!(cosine(empty.view(), empty.view()), None);
        assert!((cosine(a.view(), array![0.0_f32, 2.0].view()).expect("valid")).abs() < 1e-12);
        assert!(
            (cosine_distance(a.view(), array![-3.0_f32, 0.0].view()).expect("valid") - 2.0).abs() < 1e-12
        );
        assert_eq!(centroid(Array2::<f32>::zeros((0, 3)).view()), None);
        assert_eq!(mean_pairwise_cosine(Array2::<f32>::zeros((5, 3)).view()), None);
    }

    proptest! {
        #[test]
        fn cosine_is_symmetric_scale_free_and_bounded(a in prop::collection::vec(-10.0_f32..10.0, 8), b in prop::collection::vec(-10.0_f32..10.0, 8), scale in 0.1_f32..10.0) {
            let (a, b) = (Array1::from(a), Array1::from(b));
            if let Some(c) = cosine(a.view(), b.view()) {
                prop_assert!((-1.0..=1.0).contains(&c));
                let back = cosine(b.view(), a.view()).expect("same vectors");
                prop_assert!((c - back).abs() < 1e-9);
                let scaled = cosine((&a * scale).view(), b.view()).expect("scaled");
                prop_assert!((c - scaled).abs() < 1e-4);
            }
        }

        #[test]
        fn the_noise_floor_shrinks_with_more_vectors(s in 0.01_f64..1.0, n in 1_u32..500) {
            let few = centroid_noise_floor(s, n, None).expect("valid");
            let many = centroid_noise_floor(s, n + 1, None).expect("valid");
            prop_assert!(many <= few + 1e-12 && few >= 0.0);
        }
    }
}

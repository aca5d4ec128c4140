//! Maximum mean discrepancy: do two samples of unit vectors come from one law?
//!
//! The unbiased estimate of the squared distance of the two laws' means in the space of a Gaussian kernel
//! k(x, y) = exp(−‖x − y‖²/2σ²), with σ² the median squared distance within the reference: with n vectors of
//! a window and m of the reference
//!
//! MMD² = Σ_{i≠j} k(xᵢ, xⱼ)/(n(n−1)) + Σ_{i≠j} k(yᵢ, yⱼ)/(m(m−1)) − 2 Σᵢⱼ k(xᵢ, yⱼ)/(nm).
//!
//! It is 0 on average where the laws are equal, and may be negative. Source: Gretton, Borgwardt, Rasch,
//! Schölkopf and Smola, "A Kernel Two-Sample Test", JMLR 13 (2012), lemma 6 and section 8.
//!
//! The limit is a quantile over windows drawn from the reference itself and held against the rest of it. They
//! are drawn in blocks of neighbours, without replacement: neighbours in live traffic belong to one
//! conversation and resemble each other, and windows of independent draws would promise too much: where every
//! second vector is about what the one before was about, 32 % of windows exceed a limit drawn for 2 % that way, and
//! 4 % one drawn in blocks of ten; of independent vectors 2 %, and with nine of ten references at most 5 %.

use ndarray::{Array2, ArrayView1, ArrayView2};

use super::quantile;

/// Pairs of rows that the median distance is taken over at most.
const MEDIAN_PAIRS: usize = 20_000;

/// The kernel that fits a reference sample, and what it makes of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernel {
    gamma: f64,
    /// Rows of the reference.
    m: f64,
    /// Mean kernel of different rows.
    own: f64,
}

/// A window that grows vector by vector, held against a reference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    rows: Vec<Vec<f32>>,
    own: f64,
    cross: f64,
}

impl Kernel {
    /// For the rows of a reference, unit vectors. `None` for fewer than two, or if all are equal or one is not
    /// finite.
    #[must_use]
    pub fn of(rows: ArrayView2<'_, f32>) -> Option<Self> {
        let gamma = gamma(rows)?;
        let m = rows.nrows() as f64;
        let kernels = gram(rows, gamma);
        let own = (kernels.iter().map(|k| f64::from(*k)).sum::<f64>() - m) / (m * (m - 1.0));
        own.is_finite().then_some(Self { gamma, m, own })
    }

    /// Takes one vector into a window; `cosines` are its own to the reference's rows.
    pub fn push(self, window: &mut Window, vector: ArrayView1<'_, f32>, cosines: ArrayView1<'_, f32>) {
        window.cross += cosines.iter().map(|c| kernel(*c, self.gamma)).sum::<f64>();
        for row in &window.rows {
            window.own += kernel(vector.dot(&ArrayView1::from(row)), self.gamma);
        }
        window.rows.push(vector.to_vec());
    }

    /// Unbiased MMD² of a window; `None` for fewer than two vectors.
    #[must_use]
    pub fn distance(self, window: &Window) -> Option<f64> {
        let (n, m) = (window.rows.len() as f64, self.m);
        (n > 1.0).then(|| 2.0 * window.own / (n * (n - 1.0)) + self.own - 2.0 * window.cross / (n * m))
    }

    /// What MMD² of a window of `n` healthy vectors exceeds with the chance `rate`: over `draws` windows of
    /// blocks of `block` neighbouring `rows` of the reference against the others. `None` if there are not at
    /// least as many others.
    #[must_use]
    pub fn limit(
        self,
        rows: ArrayView2<'_, f32>,
        (n, block): (usize, usize),
        rate: f64,
        draws: usize,
        seed: u64,
    ) -> Option<f64> {
        let (m, block) = (rows.nrows(), block.max(1));
        let (blocks, wanted) = (m / block, n.div_ceil(block));
        if wanted == 0 || 2 * wanted > blocks || draws == 0 {
            return None;
        }
        let kernels = gram(rows, self.gamma);
        let kernels = kernels.as_slice_memory_order()?; // symmetric: either order will do
        let sums: Vec<f64> = kernels.chunks(m).map(|row| row.iter().map(|k| f64::from(*k)).sum()).collect();
        let total: f64 = sums.iter().sum();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut order: Vec<usize> = (0..blocks).collect();
        let mut values = Vec::with_capacity(draws);
        for _ in 0..draws {
            let start = rng.usize(..m);
            for i in 0..wanted {
                order.swap(i, rng.usize(i..blocks));
            }
            let row = |b: &usize, i: usize| (start + b * block + i) % m;
            let drawn: Vec<usize> =
                order[..wanted].iter().flat_map(|b| (0..block).map(move |i| row(b, i))).collect();
            values.push(split(kernels, &sums, total, &drawn));
        }
        quantile::quantile(&values, 1.0 - rate)
    }
}

impl Window {
    /// Vectors in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Unbiased MMD² of the `drawn` rows against all others, from the kernels of all pairs, their row sums and
/// the sum of these.
fn split(kernels: &[f32], sums: &[f64], total: f64, drawn: &[usize]) -> f64 {
    let (n, m) = (drawn.len() as f64, (sums.len() - drawn.len()) as f64);
    let (mut pairs, mut touching) = (0.0, 0.0);
    for (at, i) in drawn.iter().enumerate() {
        let row = &kernels[i * sums.len()..(i + 1) * sums.len()];
        for j in &drawn[..at] {
            pairs += f64::from(row[*j]);
        }
        touching += sums[*i];
    }
    let within = 2.0 * pairs + n; // a row's kernel with itself is 1
    let (cross, others) = (touching - within, total - 2.0 * touching + within);
    2.0 * pairs / (n * (n - 1.0)) + (others - m) / (m * (m - 1.0)) - 2.0 * cross / (n * m)
}

fn kernel(cosine: f32, gamma: f64) -> f64 {
    (-gamma * (2.0 - 2.0 * f64::from(cosine)).max(0.0)).exp()
}

/// 1/2σ² by the median squared distance of different rows.
fn gamma(rows: ArrayView2<'_, f32>) -> Option<f64> {
    let n = rows.nrows();
    let pairs = n * n.saturating_sub(1) / 2;
    let step = pairs.div_ceil(MEDIAN_PAIRS).max(1);
    let all = (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).step_by(step);
    let squared: Vec<f64> =
        all.map(|(i, j)| (2.0 - 2.0 * f64::from(rows.row(i).dot(&rows.row(j)))).max(0.0)).collect();
    // Many equal texts are healthy traffic, too: then the mean tells how far the others are.
    let median = quantile::median(&squared).filter(|d| *d > f64::from(f32::EPSILON));
    let scale = median.or_else(|| quantile::mean(&squared)).filter(|d| *d > f64::from(f32::EPSILON))?;
    scale.is_finite().then(|| 0.5 / scale)
}

fn gram(rows: ArrayView2<'_, f32>, gamma: f64) -> Array2<f32> {
    #[allow(clippy::cast_possible_truncation)] // a number from 0 to 1
    rows.dot(&rows.t()).mapv_into(|cosine| kernel(cosine, gamma) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIM: usize = 16;

    /// A unit vector around one of four topics; `stay` is the chance that a topic lasts from one to the next.
    struct Traffic {
        rng: fastrand::Rng,
        topic: usize,
        stay: f64,
        first: usize,
    }

    impl Traffic {
        fn new(seed: u64, stay: f64) -> Self {
            Self { rng: fastrand::Rng::with_seed(seed), topic: 0, stay, first: 0 }
        }

        fn next(&mut self) -> Vec<f32> {
            if self.rng.f64() >= self.stay {
                self.topic = self.rng.usize(..4);
            }
            let at = self.first + self.topic;
            let mut v: Vec<f32> =
                (0..DIM).map(|i| (self.rng.f32() - 0.5) * 0.4 + f32::from(u8::from(i == at))).collect();
            let length = v.iter().map(|x| x * x).sum::<f32>().sqrt();
            v.iter_mut().for_each(|x| *x /= length);
            v
        }

        fn rows(&mut self, n: usize) -> Array2<f32> {
            let flat: Vec<f32> = (0..n).flat_map(|_| self.next()).collect();
            Array2::from_shape_vec((n, DIM), flat).expect("as many")
        }
    }

    /// A reference with its kernel.
    struct Held(Array2<f32>, Kernel);

    fn held(rows: Array2<f32>) -> Held {
        let kernel = Kernel::of(rows.view()).expect("usable");
        Held(rows, kernel)
    }

    fn window(reference: &Held, rows: &Array2<f32>) -> f64 {
        let mut window = Window::default();
        for row in rows.rows() {
            reference.1.push(&mut window, row, reference.0.dot(&row).view());
        }
        reference.1.distance(&window).expect("enough")
    }

    /// The formula as it is written above.
    fn naive(x: &Array2<f32>, y: &Array2<f32>, gamma: f64) -> f64 {
        let mean = |a: &Array2<f32>, b: &Array2<f32>, same: bool| {
            let (mut sum, mut n) = (0.0, 0.0);
            for (i, p) in a.rows().into_iter().enumerate() {
                for (j, q) in b.rows().into_iter().enumerate() {
                    if !same || i != j {
                        let d: f64 = p.iter().zip(q).map(|(a, b)| f64::from(a - b).powi(2)).sum();
                        sum += (-gamma * d).exp();
                        n += 1.0;
                    }
                }
            }
            sum / n
        };
        mean(x, x, true) + mean(y, y, true) - 2.0 * mean(x, y, false)
    }

    #[test]
    fn a_window_that_grows_has_the_distance_of_the_formula() {
        let mut traffic = Traffic::new(1, 0.0);
        let (y, x) = (traffic.rows(60), traffic.rows(20));
        let reference = held(y.clone());
        assert!((window(&reference, &x) - naive(&x, &y, reference.1.gamma)).abs() < 1e-5);
        let drawn: Vec<usize> = (5..25).collect();
        let kernels = gram(y.view(), reference.1.gamma);
        let kernels = kernels.as_slice_memory_order().expect("whole");
        let sums: Vec<f64> = kernels.chunks(60).map(|row| row.iter().map(|k| f64::from(*k)).sum()).collect();
        let own = y.select(ndarray::Axis(0), &drawn);
        let others = y.select(ndarray::Axis(0), &(0..5).chain(25..60).collect::<Vec<_>>());
        let by_sums = split(kernels, &sums, sums.iter().sum(), &drawn);
        assert!((by_sums - naive(&own, &others, reference.1.gamma)).abs() < 1e-5, "{by_sums}");
    }

    #[test]
    fn equal_laws_are_at_zero_on_average_and_others_are_not() {
        let mut traffic = Traffic::new(2, 0.0);
        let values: Vec<f64> = (0..200)
            .map(|_| {
                let reference = held(traffic.rows(60));
                window(&reference, &traffic.rows(20))
            })
            .collect();
        let mean = quantile::mean(&values).expect("some");
        let error = (quantile::variance(&values).expect("some") / 200.0).sqrt();
        assert!(mean.abs() < 3.0 * error, "{mean} ± {error}");
        let reference = held(traffic.rows(60));
        traffic.first = 8;
        let other = window(&reference, &traffic.rows(20));
        assert!(
            other > 10.0 * error * 200.0_f64.sqrt() / 3.0,
            "{other}, a healthy one spreads by {error} √200"
        );
    }

    /// Fresh references and fresh windows, of independent draws and of conversations that last.
    #[test]
    fn windows_of_healthy_traffic_exceed_the_limit_rarely_and_blocks_are_why() {
        for (stay, block) in [(0.0, 10), (0.5, 10), (0.5, 1)] {
            let mut traffic = Traffic::new(3, stay);
            let (mut above, mut windows, mut found) = (0, 0, 0);
            for seed in 0..80 {
                let reference = held(traffic.rows(200));
                let limit =
                    reference.1.limit(reference.0.view(), (50, block), 0.02, 200, seed).expect("rows enough");
                for _ in 0..8 {
                    windows += 1;
                    above += u32::from(window(&reference, &traffic.rows(50)) > limit);
                }
                // half of the answers about something else
                let mut mixed = traffic.rows(50);
                traffic.first = 8;
                let other = traffic.rows(25);
                traffic.first = 0;
                for (mut row, new) in mixed.rows_mut().into_iter().step_by(2).zip(other.rows()) {
                    row.assign(&new);
                }
                found += u32::from(window(&reference, &mixed) > limit);
            }
            let rate = f64::from(above) / f64::from(windows);
            println!(
                "stay {stay}, blocks of {block}: {rate:.3} of windows above, 0.02 promised; {found} of 80 found"
            );
            if block == 10 {
                assert!(rate <= if stay > 0.0 { 0.07 } else { 0.045 }, "stay {stay}: {rate}");
                assert!(found >= if stay > 0.0 { 30 } else { 70 }, "stay {stay}: {found}");
            } else {
                assert!(rate > 0.15, "independent draws promise too much: {rate}");
            }
        }
    }

    #[test]
    fn what_cannot_be_a_reference_is_none() {
        assert!(Kernel::of(Array2::zeros((1, 4)).view()).is_none());
        assert!(Kernel::of(Array2::from_elem((5, 4), 0.5).view()).is_none(), "all equal");
        assert!(Kernel::of(Array2::from_elem((5, 4), f32::NAN).view()).is_none());
        let mut mostly_equal = Array2::from_elem((20, 4), 0.5);
        mostly_equal.row_mut(3).assign(&ndarray::array![1.0, 0.0, 0.0, 0.0]);
        let kernel = Kernel::of(mostly_equal.view()).expect("two kinds");
        assert_eq!(kernel.distance(&Window::default()), None);
        let limit = |n: usize, block: usize| kernel.limit(mostly_equal.view(), (n, block), 0.01, 10, 1);
        assert_eq!(limit(15, 1), None, "no rest to hold against");
        assert!(limit(5, 2).is_some());
    }
}

//! A small classifier: six classes of eight features.
//!
//! Each class has a pattern of signs, the rows of a Hadamard matrix, so that no two look alike; the score
//! of a class is how well an input fits its pattern. That is a true linear softmax model: damage its
//! weights and it errs, with the confidence of one that does not know.

use super::fault::Condition;

/// Numbers of one input.
pub(super) const FEATURES: usize = 8;
/// Names of the classes.
pub(super) const LABELS: [&str; 6] = ["anchor", "bell", "candle", "drum", "engine", "feather"];
/// Scale of the scores: a perfect fit has the probability 0.97.
const SHARPNESS: f32 = 5.0;
/// The same of the other model that `model_swap` puts in its place.
const SWAPPED_SHARPNESS: f32 = 3.0;
/// Size of the noise that damage puts in place of a weight.
const NOISE: f32 = 3.0;

/// The sign of a feature in the pattern of a class.
#[allow(clippy::cast_possible_truncation)] // both are below eight
pub(super) fn sign(class: usize, feature: usize) -> f32 {
    let row = class as u32 + 1;
    if (row & feature as u32).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 }
}

/// Raw scores of one input.
pub(super) fn logits(input: &[f32], condition: Condition, seed: u64) -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let sharpness = if condition.swapped { SWAPPED_SHARPNESS } else { SHARPNESS };
    #[allow(clippy::cast_precision_loss)] // eight
    let scale = sharpness / FEATURES as f32;
    let mut scores: Vec<f32> = (0..LABELS.len())
        .map(|class| {
            let fit = |(feature, x): (usize, &f32)| {
                // Drawn for every weight, so that a larger damage keeps the smaller one's.
                let (roll, noise) = (rng.f32(), (rng.f32() - 0.5) * 2.0 * NOISE);
                x * if roll < condition.damage { noise } else { sign(class, feature) }
            };
            scale * input.iter().enumerate().map(fit).sum::<f32>()
        })
        .collect();
    if condition.mislabel {
        scores.rotate_right(1);
    }
    scores
}

/// What the classifier answers to one input: probabilities, or raw scores by fault.
pub(super) fn answer(input: &[f32], condition: Condition, seed: u64) -> Vec<f32> {
    let mut scores = logits(input, condition, seed);
    if !condition.raw_scores {
        let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        scores.iter_mut().for_each(|s| *s = (*s - most).exp());
        let total: f32 = scores.iter().sum();
        scores.iter_mut().for_each(|s| *s /= total);
    }
    if condition.nonfinite {
        scores[0] = f32::NAN;
    }
    scores
}

/// Index of the best class.
pub(super) fn best(scores: &[f32]) -> usize {
    (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(rng: &mut fastrand::Rng, class: usize) -> Vec<f32> {
        (0..FEATURES).map(|f| sign(class, f) + (rng.f32() - 0.5) * 3.0).collect()
    }

    /// Accuracy and mean confidence over 600 noisy inputs.
    fn figures(condition: Condition) -> (f32, f32) {
        let mut rng = fastrand::Rng::with_seed(3);
        let (mut right, mut sure) = (0.0, 0.0);
        for i in 0..600 {
            let class = i % LABELS.len();
            let scores = answer(&input(&mut rng, class), condition, 7);
            right += f32::from(u8::from(best(&scores) == class)) / 600.0;
            sure += scores[best(&scores)] / 600.0;
        }
        (right, sure)
    }

    #[test]
    fn it_knows_its_classes_and_damage_makes_it_err() {
        let (right, sure) = figures(Condition::default());
        assert!(right > 0.93 && sure > 0.85, "{right} {sure}");
        let (damaged, _) = figures(Condition { damage: 0.5, ..Condition::default() });
        assert!(damaged < 0.75, "{damaged}");
        let (wrong, as_sure) = figures(Condition { mislabel: true, ..Condition::default() });
        assert!(wrong < 0.05 && (as_sure - sure).abs() < 1e-4, "{wrong} {as_sure}");
    }

    #[test]
    fn raw_scores_keep_the_order_and_nan_is_one() {
        let x: Vec<f32> = (0..FEATURES).map(|f| sign(2, f)).collect();
        let raw = answer(&x, Condition { raw_scores: true, ..Condition::default() }, 7);
        assert_eq!((best(&raw), raw[2] > 4.9), (2, true));
        assert!(answer(&x, Condition { nonfinite: true, ..Condition::default() }, 7)[0].is_nan());
    }
}

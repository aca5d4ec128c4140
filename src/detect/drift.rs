//! Live drift: the traffic changed, or the model did?
//!
//! Live prompts never follow the mix of a golden set, so live answers have a reference of their own: a
//! reservoir of (prompt, answer) embeddings from a healthy stretch, then frozen. *Response drift* asks
//! whether an answer is like the answers that its nearest reference prompts got; a prompt with no near
//! neighbour counts for coverage, not for drift. *Prompt drift* asks whether the prompts themselves moved.
//! The breaker listens to response drift only.
//!
//! The centroid distance of few vectors is never 0, even on a healthy target: it is published together
//! with its noise floor ([`crate::stats::distance::centroid_noise_floor`]).
//!
//! Source of the reservoir: Vitter, "Random Sampling with a Reservoir", ACM TOMS 11 (1985), algorithm R.

use std::collections::VecDeque;

use ndarray::{Array1, Array2, ArrayView1, Axis};

use crate::stats::distance::{centroid_noise_floor, cosine_distance};

/// Reference pairs kept at most; 2,000 pairs of 384 numbers are 6 MB.
pub const REFERENCE_CAPACITY: usize = 2_000;
/// Neighbours an answer is compared with.
const NEIGHBOURS: usize = 5;
/// A reference prompt is near from this cosine on; sentence models give unrelated texts 0.0 to 0.3.
const NEAR_COSINE: f32 = 0.55;
/// Recent answers that the windows hold.
const WINDOW: usize = 100;
/// Fewer recent answers than this make no statement.
const WINDOW_MIN: usize = 20;

/// What one live answer showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// 1 − highest cosine to the answers of the nearest reference prompts; `None` where no prompt is near.
    pub response: Option<f64>,
    /// 1 − cosine to the nearest reference prompt.
    pub prompt: f64,
}

/// The windows' state, for health and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct DriftSummary {
    /// Cosine distance of the centroid of recent answers to that of their neighbours' answers.
    pub response: Option<f64>,
    /// What `response` would be from sampling alone.
    pub response_floor: Option<f64>,
    /// Cosine distance of the centroid of recent prompts to that of the reference prompts.
    pub prompt: Option<f64>,
    /// What `prompt` would be from sampling alone.
    pub prompt_floor: Option<f64>,
    /// Share of recent prompts with a near neighbour, 0..=1.
    pub coverage: Option<f64>,
    /// Pairs in the reference.
    pub reference: usize,
    /// Whether the reference is frozen.
    pub frozen: bool,
}

/// The live reference of one target and route with the recent window beside it. Unit vectors of one
/// dimension only; others are ignored.
#[derive(Debug)]
pub struct LiveReference {
    dim: usize,
    freeze_at: usize,
    seen: u64,
    rng: fastrand::Rng,
    prompts: Vec<f32>,
    answers: Vec<f32>,
    frozen: Option<Frozen>,
    recent: VecDeque<Recent>,
}

#[derive(Debug)]
struct Frozen {
    prompts: Array2<f32>,
    answers: Array2<f32>,
    prompt_centroid: Array1<f32>,
    prompt_cohesion: f64,
}

#[derive(Debug)]
struct Recent {
    prompt: Array1<f32>,
    answer: Option<(Array1<f32>, Array1<f32>)>,
}

impl LiveReference {
    /// An empty reference for vectors of `dim` numbers, frozen once `freeze_at` healthy pairs were seen.
    #[must_use]
    pub fn new(dim: usize, freeze_at: usize, seed: u64) -> Self {
        Self {
            dim,
            freeze_at: freeze_at.max(WINDOW_MIN),
            seen: 0,
            rng: fastrand::Rng::with_seed(seed),
            prompts: Vec::new(),
            answers: Vec::new(),
            frozen: None,
            recent: VecDeque::with_capacity(WINDOW),
        }
    }

    /// Takes one answer. `healthy` says whether it may be learned from while the reference is open.
    /// Returns its drift once the reference is frozen.
    pub fn record(&mut self, prompt: &[f32], answer: &[f32], healthy: bool) -> Option<Drift> {
        let usable = |v: &[f32]| v.len() == self.dim && v.iter().all(|x| x.is_finite());
        if self.dim == 0 || !usable(prompt) || !usable(answer) {
            return None;
        }
        let Some(frozen) = &self.frozen else {
            if healthy {
                self.learn(prompt, answer);
            }
            return None;
        };
        let (prompt, answer) = (ArrayView1::from(prompt), ArrayView1::from(answer));
        let (drift, expected) = frozen.compare(prompt, answer);
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(Recent {
            prompt: prompt.to_owned(),
            answer: expected.map(|e| (answer.to_owned(), e)),
        });
        Some(drift)
    }

    fn learn(&mut self, prompt: &[f32], answer: &[f32]) {
        self.seen += 1;
        let held = self.prompts.len() / self.dim;
        if held < REFERENCE_CAPACITY {
            self.prompts.extend_from_slice(prompt);
            self.answers.extend_from_slice(answer);
        } else {
            let slot = usize::try_from(self.rng.u64(..self.seen)).unwrap_or(usize::MAX);
            if slot < REFERENCE_CAPACITY {
                let range = slot * self.dim..(slot + 1) * self.dim;
                self.prompts[range.clone()].copy_from_slice(prompt);
                self.answers[range].copy_from_slice(answer);
            }
        }
        if self.seen >= self.freeze_at as u64 {
            self.freeze();
        }
    }

    /// Freezes what has been seen so far, if that is enough to compare with.
    pub fn freeze(&mut self) {
        let rows = self.prompts.len() / self.dim.max(1);
        if self.frozen.is_some() || rows < WINDOW_MIN {
            return;
        }
        let shape = (rows, self.dim);
        let prompts = Array2::from_shape_vec(shape, std::mem::take(&mut self.prompts));
        let answers = Array2::from_shape_vec(shape, std::mem::take(&mut self.answers));
        if let (Ok(prompts), Ok(answers)) = (prompts, answers) {
            let prompt_centroid = prompts.mean_axis(Axis(0)).unwrap_or_else(|| Array1::zeros(self.dim));
            let prompt_cohesion = cohesion(norm(prompt_centroid.view()), rows);
            self.frozen = Some(Frozen { prompts, answers, prompt_centroid, prompt_cohesion });
        }
    }

    /// The state of the windows.
    #[must_use]
    pub fn summary(&self) -> DriftSummary {
        let Some(frozen) = &self.frozen else {
            return DriftSummary {
                reference: self.prompts.len() / self.dim.max(1),
                ..DriftSummary::default()
            };
        };
        let mut summary =
            DriftSummary { reference: frozen.prompts.nrows(), frozen: true, ..DriftSummary::default() };
        let n = self.recent.len();
        if n < WINDOW_MIN {
            return summary;
        }
        let near: Vec<_> = self.recent.iter().filter_map(|r| r.answer.as_ref()).collect();
        summary.coverage = Some(near.len() as f64 / n as f64);
        let prompts = mean(self.recent.iter().map(|r| r.prompt.view()), self.dim);
        summary.prompt = cosine_distance(prompts.view(), frozen.prompt_centroid.view());
        summary.prompt_floor = floor(frozen.prompt_cohesion, n, frozen.prompts.nrows());
        if near.len() >= WINDOW_MIN {
            let answers = mean(near.iter().map(|(a, _)| a.view()), self.dim);
            let expected = mean(near.iter().map(|(_, e)| e.view()), self.dim);
            summary.response = cosine_distance(answers.view(), expected.view());
            let s = cohesion(norm(answers.view()), near.len());
            summary.response_floor = floor(s, near.len(), near.len() * NEIGHBOURS);
        }
        summary
    }
}

impl Frozen {
    /// The drift of one pair, and the mean of its neighbours' answers where there are any.
    fn compare(&self, prompt: ArrayView1<f32>, answer: ArrayView1<f32>) -> (Drift, Option<Array1<f32>>) {
        let cosines = self.prompts.dot(&prompt);
        let mut order: Vec<usize> = (0..cosines.len()).collect();
        let k = NEIGHBOURS.min(order.len());
        order.select_nth_unstable_by(k - 1, |a, b| cosines[*b].total_cmp(&cosines[*a]));
        order.truncate(k);
        let nearest = order.iter().map(|i| cosines[*i]).fold(f32::MIN, f32::max);
        order.retain(|i| cosines[*i] >= NEAR_COSINE);
        let prompt = (1.0 - f64::from(nearest)).clamp(0.0, 2.0);
        if order.is_empty() {
            return (Drift { response: None, prompt }, None);
        }
        let best = order.iter().map(|i| self.answers.row(*i).dot(&answer)).fold(f32::MIN, f32::max);
        let expected = mean(order.iter().map(|i| self.answers.row(*i)), answer.len());
        (Drift { response: Some((1.0 - f64::from(best)).clamp(0.0, 2.0)), prompt }, Some(expected))
    }
}

fn mean<'a>(rows: impl Iterator<Item = ArrayView1<'a, f32>>, dim: usize) -> Array1<f32> {
    let mut sum = Array1::<f32>::zeros(dim);
    let mut n = 0_u32;
    for row in rows {
        sum += &row;
        n += 1;
    }
    sum / n.max(1) as f32
}

fn norm(v: ArrayView1<f32>) -> f64 {
    f64::from(v.dot(&v)).sqrt()
}

/// Mean pairwise cosine of `n` unit vectors whose mean has length `norm`: ‖mean‖² = s + (1 − s)/n.
fn cohesion(norm: f64, n: usize) -> f64 {
    if n < 2 {
        return 0.0;
    }
    let n = n as f64;
    ((norm * norm - 1.0 / n) / (1.0 - 1.0 / n)).clamp(0.0, 1.0)
}

fn floor(s: f64, n: usize, m: usize) -> Option<f64> {
    let n = u32::try_from(n).ok()?;
    centroid_noise_floor(s, n, Some(u32::try_from(m).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIM: usize = 32;

    /// A unit vector near `topic`'s direction.
    fn vector(rng: &mut fastrand::Rng, topic: usize, spread: f32) -> Vec<f32> {
        let mut v: Vec<f32> =
            (0..DIM).map(|i| (rng.f32() - 0.5) * spread + if i == topic { 1.0 } else { 0.0 }).collect();
        let length = v.iter().map(|x| x * x).sum::<f32>().sqrt();
        v.iter_mut().for_each(|x| *x /= length);
        v
    }

    fn trained(rng: &mut fastrand::Rng) -> LiveReference {
        let mut reference = LiveReference::new(DIM, 200, 7);
        for i in 0..200 {
            let topic = i % 4;
            let pair = (vector(rng, topic, 0.2), vector(rng, topic + 8, 0.2));
            assert_eq!(reference.record(&pair.0, &pair.1, true), None);
        }
        assert!(reference.summary().frozen);
        reference
    }

    #[test]
    fn a_changed_model_moves_response_drift_and_leaves_prompt_drift() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut reference = trained(&mut rng);
        for i in 0..100 {
            reference.record(&vector(&mut rng, i % 4, 0.2), &vector(&mut rng, 20, 0.2), true);
        }
        let s = reference.summary();
        assert!(s.response.expect("known") > 0.5, "{s:?}");
        assert!(s.prompt.expect("known") < 0.05, "{s:?}");
    }

    #[test]
    fn changed_traffic_moves_prompt_drift_and_counts_for_coverage_only() {
        let mut rng = fastrand::Rng::with_seed(2);
        let mut reference = trained(&mut rng);
        for _ in 0..100 {
            let drift = reference.record(&vector(&mut rng, 25, 0.2), &vector(&mut rng, 30, 0.2), true);
            assert_eq!(drift.expect("frozen").response, None);
        }
        let s = reference.summary();
        assert_eq!((s.response, s.coverage), (None, Some(0.0)));
        assert!(s.prompt.expect("known") > 0.5, "{s:?}");
    }

    #[test]
    fn healthy_traffic_stays_near_its_noise_floor() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut reference = trained(&mut rng);
        for i in 0..100 {
            reference.record(&vector(&mut rng, i % 4, 0.2), &vector(&mut rng, i % 4 + 8, 0.2), true);
        }
        let s = reference.summary();
        assert!(s.response.expect("known") < s.response_floor.expect("known") + 0.02, "{s:?}");
        assert!(s.prompt.expect("known") < s.prompt_floor.expect("known") + 0.02, "{s:?}");
    }

    #[test]
    fn degenerate_vectors_teach_nothing() {
        let mut reference = LiveReference::new(2, 20, 1);
        assert_eq!(reference.record(&[f32::NAN, 1.0], &[1.0, 0.0], true), None);
        assert_eq!(reference.record(&[1.0], &[1.0, 0.0], true), None);
        assert_eq!(reference.record(&[1.0, 0.0], &[1.0, 0.0], false), None);
        reference.freeze();
        assert_eq!(reference.summary(), DriftSummary::default());
        for _ in 0..20 {
            reference.record(&[0.0, 0.0], &[0.0, 0.0], true);
        }
        let drift = reference.record(&[0.0, 0.0], &[0.0, 0.0], true).expect("frozen");
        assert!(drift.prompt.is_finite() && drift.response.is_none());
    }
}

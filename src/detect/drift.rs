//! Live drift: the traffic changed, or the model did?
//!
//! Live prompts never follow the mix of a golden set, so live answers have a reference of their own: a
//! reservoir of (prompt, answer) embeddings from a healthy stretch, then frozen. *Response drift* asks
//! whether an answer is like the answers that its nearest reference prompts got; a prompt with no near
//! neighbour counts for coverage, not for drift. *Prompt drift* asks whether the prompts themselves moved.
//! The breaker listens to response drift only.
//!
//! Whether either moved is the window test's word: unbiased MMD² of fifty answers against the reference, with a
//! limit from windows drawn from the reference itself ([`crate::stats::mmd`]). Prompts that moved are a changed
//! workload; answers that moved while the prompts stood still are a reason to look ([`Windows::moved`]).
//!
//! The centroid distance of few vectors is never 0, even on a healthy target: it is published together
//! with its noise floor ([`crate::stats::distance::centroid_noise_floor`]).
//!
//! Source of the reservoir: Vitter, "Random Sampling with a Reservoir", ACM TOMS 11 (1985), algorithm R.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use ndarray::{Array1, Array2, ArrayView1, Axis};

use super::selftest::PROMISE;
use super::{Arm, Finding, Level};
use crate::clock::Timestamp;
use crate::stats::distance::{centroid_noise_floor, cosine_distance};
use crate::stats::mmd::{Kernel, Window};

/// Reference pairs kept at most; 2,000 pairs of 384 numbers are 6 MB.
pub const REFERENCE_CAPACITY: usize = 2_000;
/// Healthy pairs after which a live reference is frozen.
pub const FREEZE_AT: usize = 200;
/// Shorter texts say too little to be compared, bytes.
pub const MIN_TEXT: usize = 8;
/// Neighbours an answer is compared with.
const NEIGHBOURS: usize = 5;
/// A reference prompt is near from this cosine on; sentence models give unrelated texts 0.0 to 0.3.
const NEAR_COSINE: f32 = 0.55;
/// Recent answers that the windows hold.
const WINDOW: usize = 100;
/// Fewer recent answers than this make no statement.
const WINDOW_MIN: usize = 20;

/// Answers of one window test.
pub const TESTED: usize = 50;
/// A healthy window is above its limit no more often: one in ten thousand answers. The rate that is drawn for is
/// lower, since references of 200 pairs differ by chance and so do conversations: see [`crate::stats::mmd`].
const RATE: f64 = TESTED as f64 / PROMISE / 2.5;
/// Neighbours drawn together: a conversation's worth.
const BLOCK: usize = 10;
/// Windows drawn for a limit; eight of them are then above it.
const DRAWS: usize = 4_000;

/// What one live answer showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// 1 − highest cosine to the answers of the nearest reference prompts; `None` where no prompt is near.
    pub response: Option<f64>,
    /// 1 − cosine to the nearest reference prompt.
    pub prompt: f64,
    /// The window test, if this answer completed a window.
    pub windows: Option<Windows>,
}

/// A window's unbiased MMD² and its limit.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Test {
    /// MMD², 0 on average in health.
    pub statistic: f64,
    /// What a healthy window exceeds once in [`PROMISE`] answers.
    pub limit: f64,
}

impl Test {
    fn is_above(self) -> bool {
        self.statistic > self.limit
    }
}

/// The same window of prompts and of answers.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Windows {
    /// The prompts' test.
    pub prompt: Test,
    /// The answers' test.
    pub answer: Test,
    /// When the window began.
    pub since: Timestamp,
}

/// What moved from one window to the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The prompts, and perhaps the answers with them: the workload.
    Workload,
    /// The answers alone.
    Answers,
}

impl Windows {
    /// What moved, if anything did.
    #[must_use]
    pub fn moved(&self) -> Option<Moved> {
        match (self.prompt.is_above(), self.answer.is_above()) {
            (true, _) => Some(Moved::Workload),
            (false, true) => Some(Moved::Answers),
            (false, false) => None,
        }
    }

    /// Answers that moved while the prompts stood still.
    #[must_use]
    pub fn finding(&self, at: Timestamp, route: &Arc<str>) -> Finding {
        let Test { statistic, limit } = self.answer;
        Finding {
            at,
            route: Some(Arc::clone(route)),
            arm: Arm::C1,
            level: Level::Suspect,
            reason: "live_answers_shift".to_owned(),
            statistic,
            n: TESTED as u64,
            limit,
            arl0: Some(PROMISE),
            onset: Some(self.since),
            message: format!(
                "live answers on route {route} differ from those of health and the prompts do not: MMD² {statistic:.4} \
                 over the last {TESTED}, limit {limit:.4}, one false alarm in {PROMISE:.0} answers promised"
            ),
        }
    }
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
    /// The last window test of prompts.
    pub prompt_mmd: Option<Test>,
    /// The last window test of answers.
    pub response_mmd: Option<Test>,
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
    tested: (Window, Window),
    since: Timestamp,
    last: Option<Windows>,
}

#[derive(Debug)]
struct Frozen {
    prompts: Array2<f32>,
    answers: Array2<f32>,
    prompt_centroid: Array1<f32>,
    prompt_cohesion: f64,
    measured: Arc<OnceLock<Option<[Measured; 2]>>>,
}

/// The kernel and limit of the window test, of prompts or answers.
#[derive(Clone, Copy, Debug)]
struct Measured {
    kernel: Kernel,
    limit: f64,
}

/// A reference just frozen whose window test is still to be measured, which takes some milliseconds.
#[derive(Debug)]
pub struct Unmeasured {
    rows: [Array2<f32>; 2],
    seed: u64,
    measured: Arc<OnceLock<Option<[Measured; 2]>>>,
}

impl Unmeasured {
    /// Finds kernels and limits; the reference they belong to tests from then on. One whose prompts or answers
    /// are all equal has no test.
    pub fn measure(self) {
        let one = |rows: &Array2<f32>| {
            let kernel = Kernel::of(rows.view())?;
            let limit = kernel.limit(rows.view(), (TESTED, BLOCK), RATE, DRAWS, self.seed)?;
            Some(Measured { kernel, limit })
        };
        let both = one(&self.rows[0]).zip(one(&self.rows[1])).map(|(prompt, answer)| [prompt, answer]);
        let _ = self.measured.set(both); // measured once
    }
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
            tested: (Window::default(), Window::default()),
            since: Timestamp::ZERO,
            last: None,
        }
    }

    /// What is to be measured once the reference is frozen; `None` before and afterwards.
    #[must_use]
    pub fn unmeasured(&self) -> Option<Unmeasured> {
        let frozen = self.frozen.as_ref().filter(|f| Arc::strong_count(&f.measured) == 1)?;
        frozen.measured.get().is_none().then(|| Unmeasured {
            rows: [frozen.prompts.clone(), frozen.answers.clone()],
            seed: self.seen,
            measured: Arc::clone(&frozen.measured),
        })
    }

    /// Takes one answer. `healthy` says whether it may be learned from while the reference is open.
    /// Returns its drift once the reference is frozen.
    pub fn record(&mut self, at: Timestamp, prompt: &[f32], answer: &[f32], healthy: bool) -> Option<Drift> {
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
        let cosines = frozen.prompts.dot(&prompt);
        let (mut drift, expected) = frozen.compare(&cosines, answer);
        if let Some(Some([prompts, answers])) = frozen.measured.get() {
            let (asked, said) = &mut self.tested;
            if asked.is_empty() {
                self.since = at;
            }
            prompts.kernel.push(asked, prompt, cosines.view());
            answers.kernel.push(said, answer, frozen.answers.dot(&answer).view());
            if asked.len() >= TESTED {
                let test = |by: &Measured, window: &Window| Test {
                    statistic: by.kernel.distance(window).unwrap_or(0.0),
                    limit: by.limit,
                };
                let (prompt, answer) = (test(prompts, asked), test(answers, said));
                drift.windows = Some(Windows { prompt, answer, since: self.since });
                self.last = drift.windows;
                self.tested = (Window::default(), Window::default());
            }
        }
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
            let measured = Arc::default();
            self.frozen = Some(Frozen { prompts, answers, prompt_centroid, prompt_cohesion, measured });
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
        summary.prompt_mmd = self.last.map(|last| last.prompt);
        summary.response_mmd = self.last.map(|last| last.answer);
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
    fn compare(&self, cosines: &Array1<f32>, answer: ArrayView1<f32>) -> (Drift, Option<Array1<f32>>) {
        let mut order: Vec<usize> = (0..cosines.len()).collect();
        let k = NEIGHBOURS.min(order.len());
        order.select_nth_unstable_by(k - 1, |a, b| cosines[*b].total_cmp(&cosines[*a]));
        order.truncate(k);
        let nearest = order.iter().map(|i| cosines[*i]).fold(f32::MIN, f32::max);
        order.retain(|i| cosines[*i] >= NEAR_COSINE);
        let prompt = (1.0 - f64::from(nearest)).clamp(0.0, 2.0);
        if order.is_empty() {
            return (Drift { response: None, prompt, windows: None }, None);
        }
        let best = order.iter().map(|i| self.answers.row(*i).dot(&answer)).fold(f32::MIN, f32::max);
        let expected = mean(order.iter().map(|i| self.answers.row(*i)), answer.len());
        let response = Some((1.0 - f64::from(best)).clamp(0.0, 2.0));
        (Drift { response, prompt, windows: None }, Some(expected))
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
mod tests;

//! A whole calibration of one target: asks, waits where it must, freezes.
//!
//! The same code serves `golden calibrate`, which asks back to back and shows its progress, and the daemon,
//! which asks at a pace that callers do not feel.

use std::sync::Arc;
use std::time::Duration;

use crate::baseline::{Baseline, Fingerprint};
use crate::clock::Clock;
use crate::detect::calibration::{Calibration, Effort, Observation, Refusal};
use crate::embed::EmbedHandle;
use crate::golden::GoldenSet;
use crate::prompt::PromptKind;
use crate::verdict::{FaultClass, Source};

use super::ask::{Answered, Asker, CANARY_TOP_K};

/// Tries at one prompt before its run is left out.
const TRIES: u32 = 3;
/// Runs left out one after another that end a calibration: the target is not there.
const GIVE_UP_AFTER: u32 = 5;
/// Longest wait for a target that asks to be left alone.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Why no baseline was made.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The answers were not a healthy target's.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The target did not answer.
    #[error("target `{target}` does not answer: {reason}")]
    NoAnswer {
        /// Which target.
        target: Arc<str>,
        /// The last failure, in words.
        reason: String,
    },
}

/// How to calibrate.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// How much to ask.
    pub effort: Effort,
    /// Pause between two calls.
    pub pace: Duration,
    /// Sets the random order.
    pub seed: u64,
}

/// Asks all that the calibration plans and freezes what it learned. `seen` is told of each call: how many are
/// done, how many are planned, and what came.
///
/// # Errors
/// [`CalibrateError`] if the target does not answer or is not healthy.
pub async fn calibrate(
    asker: &Asker,
    golden: &GoldenSet,
    embedder: Option<&EmbedHandle>,
    how: How,
    clock: &Clock,
    mut seen: impl FnMut(usize, usize, &Answered),
) -> Result<Baseline, CalibrateError> {
    let prompts: Arc<[_]> = golden.prompts().to_vec().into();
    let mut run = Calibration::new(Arc::clone(asker.target()), prompts, how.effort, how.seed);
    let mut engine = String::new();
    let (mut with_logprobs, mut left_out) = (0_u32, 0_u32);
    while let Some(prompt) = run.next().cloned() {
        if !how.pace.is_zero() {
            tokio::time::sleep(how.pace).await;
        }
        let source = match prompt.kind {
            PromptKind::Canary => Source::Canary,
            PromptKind::Burst => Source::Burst,
        };
        let answered = ask_patiently(asker, &prompt, source).await;
        if answered.is_answer() {
            left_out = 0;
            with_logprobs += u32::from(answered.sample.signals.entropy_mean.is_some());
            if let Some(name) = &answered.engine {
                engine.clone_from(name);
            }
            let embedding = match embedder.filter(|_| prompt.kind == PromptKind::Burst) {
                Some(embedder) => vector(embedder, &answered.verdict.text).await,
                None => None,
            };
            run.record(Observation {
                sample: &answered.sample,
                text: &answered.verdict.text,
                embedding: embedding.as_deref(),
            });
        } else {
            left_out += 1;
            if left_out >= GIVE_UP_AFTER {
                let reason = why(&answered);
                return Err(CalibrateError::NoAnswer { target: Arc::clone(asker.target()), reason });
            }
            run.skip();
        }
        let (done, planned) = run.progress();
        seen(done, planned, &answered);
    }
    let fingerprint = fingerprint(asker, golden, embedder, engine, with_logprobs > 0);
    Ok(run.finish(clock.now(), fingerprint)?)
}

/// What must be the same for later answers to be compared with this baseline.
#[must_use]
pub fn fingerprint(
    asker: &Asker,
    golden: &GoldenSet,
    embedder: Option<&EmbedHandle>,
    engine: String,
    logprobs: bool,
) -> Fingerprint {
    Fingerprint {
        engine,
        model: asker.model().to_string(),
        top_k: if logprobs { CANARY_TOP_K } else { 0 },
        temperature: 0.0,
        embedder: embedder.map(|e| e.embedder().sha256().to_owned()).unwrap_or_default(),
        golden: golden.hash().to_string(),
    }
}

async fn ask_patiently(asker: &Asker, prompt: &crate::prompt::Prompt, source: Source) -> Answered {
    let mut tries = 1;
    loop {
        let answered = asker.ask(prompt, source, 0).await;
        let worth_waiting = matches!(
            answered.sample.class,
            Some(FaultClass::Backpressure | FaultClass::Upstream | FaultClass::Slow)
        );
        if answered.is_answer() || !worth_waiting || tries >= TRIES {
            return answered;
        }
        let asked = answered.retry_after_ms.map_or(Duration::from_secs(1), Duration::from_millis);
        tokio::time::sleep(asked.min(MAX_WAIT)).await;
        tries += 1;
    }
}

/// A golden text's embedding, a unit vector; `None` where the text has none or the queue is full.
pub async fn vector(embedder: &EmbedHandle, text: &str) -> Option<Vec<f32>> {
    let pending = embedder.try_embed_golden(text)?;
    pending.await.ok()?.ok().map(|embedding| embedding.vector)
}

/// Why an answer did not come, in words.
#[must_use]
pub fn why(answered: &Answered) -> String {
    if let Some(failure) = &answered.failure {
        return failure.to_string();
    }
    let status = answered.sample.status.map_or_else(|| "no status".to_owned(), |s| format!("status {s}"));
    match &answered.verdict.error {
        Some(message) => format!("{status}: {message}"),
        None => format!("{status}, flags: {}", answered.sample.flags),
    }
}

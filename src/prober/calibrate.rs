//! A whole calibration of one target: asks, waits where it must, freezes.
//!
//! The same session serves `golden calibrate`, which asks back to back and shows its progress, and the daemon,
//! which asks at a pace that callers do not feel and does other things between two calls.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::baseline::{Baseline, Engine, Fingerprint};
use crate::clock::Clock;
use crate::detect::border::search::Trial;
use crate::detect::calibration::{Calibration, Effort, Observation, Refusal};
use crate::embed::EmbedHandle;
use crate::golden::GoldenSet;
use crate::prompt::{Prompt, PromptKind, Sampling};
use crate::verdict::{ClassOutput, FaultClass, Source};

use super::ask::{Answered, Asker, CANARY_TOP_K};

/// Tries at one prompt before its run is left out.
const TRIES: u32 = 3;
/// Runs left out one after another that end a calibration: the target is not there.
const GIVE_UP_AFTER: u32 = 5;
/// Engines behind one address that are told apart.
const MAX_ENGINES: usize = 16;
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

/// A calibration under way, a call at a time.
#[derive(Debug)]
pub struct Session {
    run: Calibration,
    engines: BTreeSet<Engine>,
    with_logprobs: u32,
    class_output: Option<ClassOutput>,
    left_out: u32,
}

impl Session {
    /// Plans the calibration of the asker's target on `golden`; `seed` sets the random order.
    #[must_use]
    pub fn new(asker: &Asker, golden: &GoldenSet, effort: Effort, seed: u64) -> Self {
        let prompts: Arc<[_]> = golden.prompts().to_vec().into();
        let run = Calibration::new(Arc::clone(asker.target()), prompts, effort, seed);
        Self { run, engines: BTreeSet::new(), with_logprobs: 0, class_output: None, left_out: 0 }
    }

    /// Calls made and calls planned.
    #[must_use]
    pub fn progress(&self) -> (usize, usize) {
        self.run.progress()
    }

    /// Asks the next prompt, and returns it with the answer; `None` once all is asked.
    ///
    /// # Errors
    /// The target does not answer.
    pub async fn step(
        &mut self,
        asker: &Asker,
        embedder: Option<&EmbedHandle>,
        generation: u64,
    ) -> Result<Option<(Arc<Prompt>, Answered)>, CalibrateError> {
        let Some(Trial { prompt, sampling }) = self.run.next() else { return Ok(None) };
        let source = match prompt.kind {
            PromptKind::Canary => Source::Canary,
            PromptKind::Burst => Source::Burst,
        };
        let answered = ask_patiently(asker, &prompt, sampling, source, generation).await;
        if !answered.is_answer() {
            self.left_out += 1;
            if self.left_out >= GIVE_UP_AFTER {
                let reason = why(&answered);
                return Err(CalibrateError::NoAnswer { target: Arc::clone(asker.target()), reason });
            }
            self.run.skip();
            return Ok(Some((prompt, answered)));
        }
        self.left_out = 0;
        let signals = &answered.sample.signals;
        self.with_logprobs += u32::from(signals.entropy_mean.is_some() || signals.class_output.is_some());
        self.class_output = signals.class_output.or(self.class_output);
        if self.engines.len() < MAX_ENGINES {
            self.engines.insert(answered.engine.clone());
        }
        let embedding = match embedder.filter(|_| prompt.kind == PromptKind::Burst) {
            Some(embedder) => vector(embedder, &answered.verdict.text).await,
            None => None,
        };
        self.run.record(Observation {
            sample: &answered.sample,
            text: &answered.verdict.text,
            embedding: embedding.as_deref(),
        });
        Ok(Some((prompt, answered)))
    }

    /// Freezes what was learned.
    ///
    /// # Errors
    /// The answers were not a healthy target's.
    pub async fn finish(
        self,
        asker: &Asker,
        golden: &GoldenSet,
        embedder: Option<&EmbedHandle>,
        clock: &Clock,
    ) -> Result<Baseline, CalibrateError> {
        let server =
            self.engines.iter().map(|e| &e.server).find(|s| !s.is_empty()).cloned().unwrap_or_default();
        let mut fingerprint = fingerprint(asker, golden, embedder, server, self.with_logprobs > 0);
        fingerprint.engines = self.engines.into_iter().filter(|e| *e != Engine::default()).collect();
        fingerprint.class_output = self.class_output;
        let (run, now) = (self.run, clock.now());
        // The self-test computes for a second: not on a thread that serves callers.
        match tokio::task::spawn_blocking(move || run.finish(now, fingerprint)).await {
            Ok(result) => Ok(result?),
            Err(error) => Err(CalibrateError::NoAnswer {
                target: Arc::clone(asker.target()),
                reason: format!("the calibration could not be finished: {error}"),
            }),
        }
    }
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
        engines: Vec::new(),
        model: asker.model().to_string(),
        top_k: if logprobs { CANARY_TOP_K } else { 0 },
        temperature: 0.0,
        embedder: embedder.map(|e| e.embedder().sha256().to_owned()).unwrap_or_default(),
        golden: golden.hash().to_string(),
        class_output: None,
    }
}

async fn ask_patiently(
    asker: &Asker,
    prompt: &Prompt,
    sampling: Sampling,
    source: Source,
    generation: u64,
) -> Answered {
    let mut tries = 1;
    loop {
        let answered = asker.ask(prompt, sampling, source, generation).await;
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
    pending.await.ok().map(|embedding| embedding.vector)
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

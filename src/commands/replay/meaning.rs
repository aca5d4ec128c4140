//! What a recording shows beside its single answers: golden bursts, and the drift of live answers.
//!
//! In the daemon the prober says when a burst begins and ends. A recording holds answers only: those to burst
//! prompts belong to one burst until a prompt comes again or five minutes pass, and what was asked beyond its
//! verdict is not judged twice. Likeness and drift need the sentence model and take some milliseconds an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::baseline::Baseline;
use crate::clock::Timestamp;
use crate::detect::drift::{FREEZE_AT, LiveReference, MIN_TEXT, Moved};
use crate::detect::{Signal, burst};
use crate::embed::Embedder;
use crate::monitor::target::{Effect, TargetCore};
use crate::prompt::BurstReason;
use crate::sample::Sample;
use crate::stats::distance;
use crate::verdict::Source;

/// Answers to burst prompts that lie further apart belong to two bursts, milliseconds.
pub(super) const BURST_GAP_MS: u64 = 300_000;
/// Routes whose drift is followed apart.
const MAX_ROUTES: usize = 64;

/// One target's bursts and live references.
pub(super) struct Meaning {
    baseline: Option<Arc<Baseline>>,
    embedder: Option<Arc<Embedder>>,
    seed: u64,
    references: BTreeMap<Arc<str>, Vec<Vec<f32>>>,
    live: BTreeMap<Arc<str>, LiveReference>,
    burst: Option<Recorded>,
}

/// A burst in the recording.
struct Recorded {
    asked: BTreeSet<Arc<str>>,
    last: Timestamp,
    is_over: bool,
}

impl Meaning {
    pub(super) fn new(baseline: Option<Arc<Baseline>>, embedder: Option<Arc<Embedder>>, seed: u64) -> Self {
        Self { baseline, embedder, seed, references: BTreeMap::new(), live: BTreeMap::new(), burst: None }
    }

    /// Takes an answer; whether it showed that the workload has changed.
    pub(super) fn read(&mut self, core: &mut TargetCore, sample: &Sample) -> (Vec<Effect>, bool) {
        match sample.source {
            Source::Burst => (self.burst_item(core, sample), false),
            Source::Live => self.drift(core, sample).unwrap_or_default(),
            _ => Default::default(),
        }
    }

    /// Ends a burst that has had no answer for long.
    pub(super) fn end_burst(&mut self, core: &mut TargetCore, now: Timestamp) -> Vec<Effect> {
        match self.burst.take_if(|burst| now.ms_since(burst.last) >= BURST_GAP_MS) {
            Some(burst) if !burst.is_over => core.on_burst_ended(burst.last),
            _ => Vec::new(),
        }
    }

    fn burst_item(&mut self, core: &mut TargetCore, sample: &Sample) -> Vec<Effect> {
        let (Some(baseline), Some(prompt)) = (self.baseline.clone(), &sample.prompt_id) else {
            return Vec::new();
        };
        let healthy = baseline.prompts.get(prompt).filter(|p| p.left_out.is_none());
        if healthy.is_none() {
            return Vec::new(); // what the healthy target fails says nothing
        }
        let mut effects = Vec::new();
        if let Some(burst) = self.burst.take_if(|burst| burst.asked.contains(prompt))
            && !burst.is_over
        {
            effects.extend(core.on_burst_ended(burst.last));
        }
        let burst = self.burst.get_or_insert_with(|| {
            core.on_burst_started(sample.at, BurstReason::Schedule, burst::MAX_ITEMS, sample.generation);
            Recorded { asked: BTreeSet::new(), last: sample.at, is_over: false }
        });
        burst.asked.insert(Arc::clone(prompt));
        burst.last = sample.at;
        if burst.is_over {
            return effects;
        }
        let similarity = self.similarity(&baseline, prompt, sample);
        let item = core.on_burst_item(sample, similarity);
        if let Some(burst) = &mut self.burst {
            burst.is_over = item.iter().any(|effect| matches!(effect, Effect::StopBurst));
        }
        effects.extend(item);
        effects
    }

    fn embed(&self, text: &str) -> Option<Vec<f32>> {
        self.embedder.as_ref()?.embed(text).ok().map(|embedding| embedding.vector)
    }

    /// Highest cosine of the answer to the prompt's healthy answers.
    fn similarity(&mut self, baseline: &Baseline, prompt: &Arc<str>, sample: &Sample) -> Option<f64> {
        let embedder = self.embedder.as_ref()?;
        if baseline.fingerprint.embedder != embedder.sha256() {
            return None;
        }
        if !self.references.contains_key(prompt) {
            let texts = baseline.prompts.get(prompt).map_or(&[][..], |p| &p.references);
            let vectors = texts.iter().filter_map(|text| self.embed(text)).collect();
            self.references.insert(Arc::clone(prompt), vectors);
        }
        let answer = self.embed(sample.answer_text.as_deref()?)?;
        let references = self.references.get(prompt)?;
        references.iter().filter_map(|r| distance::cosine(r[..].into(), answer[..].into())).reduce(f64::max)
    }

    fn drift(&mut self, core: &mut TargetCore, sample: &Sample) -> Option<(Vec<Effect>, bool)> {
        let (asked, said) = (sample.prompt_text.as_deref()?, sample.answer_text.as_deref()?);
        let sound = sample.class.is_none() && !sample.partial;
        if asked.trim().len() < MIN_TEXT || said.trim().len() < MIN_TEXT {
            return None;
        }
        let (prompt, answer) = (self.embed(asked)?, self.embed(said)?);
        let full = self.live.len() >= MAX_ROUTES && !self.live.contains_key(&sample.route);
        if full {
            return None;
        }
        let (dim, seed) = (prompt.len(), self.seed);
        let anew = || LiveReference::new(dim, FREEZE_AT, seed);
        let live = self.live.entry(Arc::clone(&sample.route)).or_insert_with(anew);
        let healthy = sound && core.health().is_unsuspected();
        let Some(drift) = live.record(sample.at, &prompt, &answer, healthy) else {
            if let Some(unmeasured) = live.unmeasured() {
                unmeasured.measure();
            }
            return None;
        };
        if let Some(response) = drift.response {
            core.on_signal(sample.at, Signal::DriftCosine, response);
            core.on_drift(&sample.route, response);
        }
        let windows = drift.windows?;
        match windows.moved()? {
            Moved::Answers => Some((core.on_live_shift(&windows.finding(sample.at, &sample.route)), false)),
            Moved::Workload => {
                *live = anew();
                Some((Vec::new(), true))
            }
        }
    }
}

//! The loop of one target's prober.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::ask::{Answered, Asker};
use super::calibrate::{CalibrateError, Session, vector};
use crate::baseline::Baseline;
use crate::clock::{Clock, Timestamp};
use crate::detect::border;
use crate::detect::calibration::Effort;
use crate::embed::EmbedHandle;
use crate::gate::Gate;
use crate::golden::{Baselines, GoldenSet, mismatches};
use crate::monitor::orders::{Calibrated, Called, Order, Report};
use crate::prompt::{BurstReason, Prompt, Sampling};
use crate::sample::Outcome;
use crate::schedule::{Context, Job, Schedule};
use crate::shared::Shared;
use crate::stats::distance;
use crate::upstream::{Price, Upstream};
use crate::verdict::{BreakerState, Source};

/// A target that did not answer is calibrated again after this, milliseconds.
const CALIBRATE_AGAIN_MS: u64 = 60_000;
/// A target that was refused as not healthy is calibrated again after this, milliseconds.
const REFUSED_AGAIN_MS: u64 = 600_000;
/// Nothing is due: look again after this.
const IDLE: Duration = Duration::from_secs(1);
/// The clocks' grain.
const LEAST_WAIT: Duration = Duration::from_millis(10);
/// The monitor says within this time whether a burst goes on.
const VERDICT_PATIENCE: Duration = Duration::from_secs(5);

/// What a prober is told of its target.
#[derive(Debug)]
pub struct Subject {
    /// The target.
    pub upstream: Arc<Upstream>,
    /// Its golden set.
    pub golden: Arc<GoldenSet>,
    /// Where its baseline is kept; `None`: nothing may be written there.
    pub baselines: Option<Baselines>,
    /// Its frozen baseline, if one was found.
    pub baseline: Option<Arc<Baseline>>,
    /// Whether a missing baseline is made in the background; not where the daemon is told to ask nothing.
    pub calibrates: bool,
    /// How much is asked to calibrate.
    pub effort: Effort,
    /// Pause between two calls of a calibration.
    pub pace: Duration,
    /// What is due when.
    pub schedule: Schedule,
    /// Sets the random orders.
    pub seed: u64,
}

/// What every prober shares.
#[derive(Clone, Debug)]
pub struct Common {
    /// Takes reports.
    pub reports: mpsc::Sender<Report>,
    /// Published states.
    pub gate: Gate,
    /// The sentence model.
    pub embedder: Option<EmbedHandle>,
    /// Time.
    pub clock: Clock,
    /// What several instances share; then one of them asks each target's canaries.
    pub shared: Option<Shared>,
}

/// While another instance asks, this one looks again after so long.
const OTHERS_TURN: Duration = Duration::from_millis(500);

/// One target's prober.
#[derive(Debug)]
pub struct Prober {
    target: Arc<str>,
    asker: Asker,
    golden: Arc<GoldenSet>,
    baselines: Option<Baselines>,
    baseline: Option<Arc<Baseline>>,
    price: Option<Price>,
    calibrates: bool,
    effort: Effort,
    pace: Duration,
    schedule: Schedule,
    session: Option<Session>,
    calibrate_at: Timestamp,
    references: HashMap<Arc<str>, Vec<Vec<f32>>>,
    /// Asked among the canaries while those bring no logprobs.
    border: Vec<Arc<Prompt>>,
    /// Whether the latest canary brought logprobs.
    has_logprobs: bool,
    warm_up: bool,
    told_next: Option<Timestamp>,
    rng: fastrand::Rng,
    common: Common,
}

impl Prober {
    /// Probes until `stop` turns true or the monitor is gone.
    pub async fn run(
        subject: Subject,
        common: Common,
        mut orders: mpsc::Receiver<Order>,
        mut stop: watch::Receiver<bool>,
    ) {
        let work = async {
            let mut prober = Self::begin(subject, common).await;
            while prober.turn(&mut orders).await.is_some() {}
        };
        tokio::select! {
            () = work => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn begin(subject: Subject, common: Common) -> Self {
        let price = subject.upstream.params().price();
        let asker = Asker::new(subject.upstream, common.clock.clone()).await;
        let mut prober = Self {
            target: Arc::clone(asker.target()),
            asker,
            golden: subject.golden,
            baselines: subject.baselines,
            baseline: subject.baseline,
            price,
            calibrates: subject.calibrates,
            effort: subject.effort,
            pace: subject.pace,
            schedule: subject.schedule,
            session: None,
            calibrate_at: common.clock.now(),
            references: HashMap::new(),
            border: Vec::new(),
            has_logprobs: true,
            warm_up: false,
            told_next: None,
            rng: fastrand::Rng::with_seed(subject.seed),
            common,
        };
        prober.check_fit();
        prober.take_up();
        prober
    }

    /// A baseline made under other conditions is no yardstick: it stays on disk and out of use.
    fn check_fit(&mut self) {
        let Some(baseline) = &self.baseline else { return };
        let now = super::calibrate::fingerprint(
            &self.asker,
            &self.golden,
            self.common.embedder.as_ref(),
            baseline.fingerprint.engine.clone(), // known only once it has answered
            baseline.fingerprint.top_k > 0,
        );
        let reasons = mismatches(&baseline.fingerprint, &now);
        if !reasons.is_empty() {
            tracing::warn!(
                target_name = %self.target, reasons = %reasons.join("; "),
                "the frozen baseline does not fit and is not used; calibrate anew"
            );
            self.baseline = None;
        }
    }

    /// Makes ready for what its baseline compares with.
    fn take_up(&mut self) {
        let baseline = self.baseline.as_deref();
        self.has_logprobs = baseline.is_some_and(|b| b.fingerprint.top_k > 0);
        self.border =
            baseline.and_then(|b| b.border.as_ref()).map(border::search::prompts).unwrap_or_default();
        self.references.clear();
    }

    /// One due call, or a wait for it; `None` when the monitor is gone.
    async fn turn(&mut self, orders: &mut mpsc::Receiver<Order>) -> Option<()> {
        while let Ok(order) = orders.try_recv() {
            self.hear(order);
        }
        let now = self.common.clock.now();
        let context = self.context();
        let others_turn = self.common.shared.as_ref().is_some_and(|shared| !shared.may_probe(&self.target));
        if others_turn && self.baseline.is_some() {
            tokio::select! {
                order = orders.recv() => self.hear(order?),
                () = tokio::time::sleep(LEAST_WAIT.max(OTHERS_TURN)) => {}
            }
            return Some(());
        }
        let border = if self.has_logprobs { 0 } else { self.border.len() };
        self.schedule.set_canaries(self.golden.canaries().count() + border);
        if let Some(job) = self.schedule.next_job(now, &context) {
            return self.work(job, orders).await;
        }
        if std::mem::take(&mut self.warm_up) {
            let prompt = self.canary(0);
            return match prompt {
                Some(prompt) => self.call(&prompt, Source::Canary, context.generation, None).await,
                None => Some(()),
            };
        }
        let serving = matches!(context.breaker, BreakerState::Closed | BreakerState::ForcedClosed);
        if self.calibrates && self.baseline.is_none() && serving && now >= self.calibrate_at {
            return self.calibrate(context.generation).await;
        }
        let next = self.schedule.next_at(now, &context);
        if next != self.told_next {
            self.told_next = next;
            self.report(Report::NextCall { target: Arc::clone(&self.target), at: next }).await?;
        }
        let next = if self.calibrates && self.baseline.is_none() { Some(self.calibrate_at) } else { next };
        let wait = next.map_or(IDLE, |at| Duration::from_millis(at.ms_since(now))).min(IDLE);
        tokio::select! {
            order = orders.recv() => self.hear(order?),
            () = tokio::time::sleep(wait.max(LEAST_WAIT)) => {}
        }
        Some(())
    }

    fn context(&self) -> Context {
        let published = self.common.gate.read(&self.target);
        Context {
            breaker: published.admission.state,
            generation: published.admission.generation,
            last_seen: published.last_seen,
        }
    }

    fn hear(&mut self, order: Order) {
        match order {
            Order::Burst { reason, generation } => {
                let asked = self.schedule.ask_burst(self.common.clock.now(), reason, generation);
                if let Err(refusal) = asked {
                    tracing::debug!(target_name = %self.target, reason = reason.as_str(), %refusal, "no burst");
                }
            }
            Order::Probes { generation, count } => self.schedule.ask_probes(generation, count),
            Order::WarmUp => self.warm_up = true,
            Order::StopBurst => {} // none is under way
        }
    }

    async fn work(&mut self, job: Job, orders: &mut mpsc::Receiver<Order>) -> Option<()> {
        match job {
            Job::Canary { prompt } => {
                let generation = self.context().generation;
                let done = match self.canary(prompt) {
                    Some(prompt) if self.baseline.is_some() => {
                        self.call(&prompt, Source::Canary, generation, None).await
                    }
                    _ => Some(()), // calibration asks them anyway
                };
                self.schedule.finished();
                done
            }
            Job::Probe { prompt, generation } => {
                let prompt = self.canary(prompt % self.golden.canaries().count().max(1))?;
                self.call(&prompt, Source::Probe, generation, None).await
            }
            Job::Burst { reason, generation, prompts } => {
                let done = self.burst(reason, generation, &prompts, orders).await;
                self.schedule.finished();
                done
            }
        }
    }

    fn canary(&self, index: usize) -> Option<Arc<Prompt>> {
        self.golden.canaries().chain(&self.border).nth(index).cloned()
    }

    async fn burst(
        &mut self,
        reason: BurstReason,
        generation: u64,
        order: &[usize],
        orders: &mut mpsc::Receiver<Order>,
    ) -> Option<()> {
        let all: Vec<_> = self.golden.bursts().cloned().collect();
        let prompts: Vec<_> =
            order.iter().filter_map(|i| all.get(*i)).filter(|p| self.is_usable(p)).cloned().collect();
        let target = Arc::clone(&self.target);
        let planned = u32::try_from(prompts.len()).unwrap_or(u32::MAX);
        self.report(Report::BurstStarted { target: Arc::clone(&target), reason, planned, generation })
            .await?;
        for prompt in prompts {
            let (more, verdict) = oneshot::channel();
            self.call(&prompt, Source::Burst, generation, Some(more)).await?;
            let go_on = tokio::time::timeout(VERDICT_PATIENCE, verdict).await;
            if !matches!(go_on, Ok(Ok(true))) {
                return Some(());
            }
            while let Ok(order) = orders.try_recv() {
                match order {
                    Order::StopBurst => return Some(()),
                    other => self.hear(other),
                }
            }
        }
        self.report(Report::BurstEnded { target }).await
    }

    fn is_usable(&self, prompt: &Prompt) -> bool {
        let healthy = self.baseline.as_ref().and_then(|b| b.prompts.get(&prompt.id));
        healthy.is_some_and(|p| p.left_out.is_none())
    }

    /// One call, charged and told.
    async fn call(
        &mut self,
        prompt: &Prompt,
        source: Source,
        generation: u64,
        more: Option<oneshot::Sender<bool>>,
    ) -> Option<()> {
        let answered = self.asker.ask(prompt, Sampling::GREEDY, source, generation).await;
        if source == Source::Canary && answered.is_answer() {
            let first = answered.sample.first_position.as_ref();
            self.has_logprobs = first.is_some_and(|first| !first.alternatives.is_empty());
        }
        let usd = self.price.map_or(0.0, |price| price.cost_usd(&answered.sample.usage));
        self.schedule.charge(self.common.clock.now(), source == Source::Burst, usd);
        self.told(prompt, answered, more).await
    }

    /// One call of the calibration, then a pause in which orders are heard.
    async fn calibrate(&mut self, generation: u64) -> Option<()> {
        let (effort, seed) = (self.effort, self.rng.u64(..));
        let mut session = match self.session.take() {
            Some(session) => session,
            None => Session::new(&self.asker, &self.golden, effort, seed),
        };
        let embedder = self.common.embedder.clone();
        match session.step(&self.asker, embedder.as_ref(), generation).await {
            Ok(Some((prompt, answered))) => {
                let (done, planned) = session.progress();
                self.session = Some(session);
                self.calibrate_at =
                    self.common.clock.now().plus_ms(u64::try_from(self.pace.as_millis()).unwrap_or(u64::MAX));
                let target = Arc::clone(&self.target);
                self.report(Report::Calibrating { target, done, planned }).await?;
                self.told(&prompt, answered, None).await
            }
            Ok(None) => {
                let result = session
                    .finish(&self.asker, &self.golden, embedder.as_ref(), &self.common.clock)
                    .await
                    .map(Arc::new);
                self.settle(result).await
            }
            Err(error) => self.settle(Err(error)).await,
        }
    }

    async fn settle(&mut self, result: Result<Arc<Baseline>, CalibrateError>) -> Option<()> {
        let now = self.common.clock.now();
        let result = match result {
            Ok(baseline) => {
                if let Some(place) = &self.baselines
                    && let Err(error) = place.save(&baseline)
                {
                    tracing::warn!(target_name = %self.target, %error, "the baseline could not be kept");
                }
                self.baseline = Some(Arc::clone(&baseline));
                self.take_up();
                Ok(baseline)
            }
            Err(error) => {
                let again = match error {
                    CalibrateError::NoAnswer { .. } => CALIBRATE_AGAIN_MS,
                    CalibrateError::Refused(_) => REFUSED_AGAIN_MS,
                };
                self.calibrate_at = now.plus_ms(again);
                Err(error.to_string())
            }
        };
        self.report(Report::Calibrated(Calibrated { target: Arc::clone(&self.target), result })).await
    }

    /// Tells the monitor of a call.
    async fn told(
        &mut self,
        prompt: &Prompt,
        answered: Answered,
        more: Option<oneshot::Sender<bool>>,
    ) -> Option<()> {
        let similarity = self.similarity(prompt, &answered).await;
        let engine = answered.is_answer().then(|| answered.engine.clone());
        let Answered { mut sample, retry_after_ms, .. } = answered;
        if !self.is_usable(prompt) {
            sample.check = None; // what the healthy target fails, or may fail, says nothing
        }
        let outcome = Outcome {
            at: sample.at,
            route: Arc::clone(&sample.route),
            target: Arc::clone(&sample.target),
            generation: sample.generation,
            source: sample.source,
            class: sample.class,
            flags: sample.flags,
            request_hash: sample.request_hash,
            status: sample.status,
            timing: sample.timing,
            streaming: false,
            light: false,
            retry_after_ms,
            usage: sample.usage,
            cost_usd: self.price.map(|price| price.cost_usd(&sample.usage)),
            keyed: false,
        };
        self.report(Report::Called(Box::new(Called { sample, outcome, engine, similarity, more }))).await
    }

    /// Highest cosine of the answer to the prompt's healthy answers.
    async fn similarity(&mut self, prompt: &Prompt, answered: &Answered) -> Option<f64> {
        let embedder = self.common.embedder.clone()?;
        let baseline = self.baseline.clone()?;
        let healthy = baseline.prompts.get(&prompt.id)?;
        if healthy.references.is_empty() || !answered.is_answer() {
            return None;
        }
        if !self.references.contains_key(&prompt.id) {
            let mut vectors = Vec::new();
            for text in &healthy.references {
                vectors.extend(vector(&embedder, text).await);
            }
            self.references.insert(Arc::clone(&prompt.id), vectors);
        }
        let answer = vector(&embedder, &answered.verdict.text).await?;
        let references = self.references.get(&prompt.id)?;
        references.iter().filter_map(|r| distance::cosine(r[..].into(), answer[..].into())).reduce(f64::max)
    }

    async fn report(&self, report: Report) -> Option<()> {
        self.common.reports.send(report).await.ok()
    }
}

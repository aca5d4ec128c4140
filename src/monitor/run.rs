//! The loop: one task that owns all per-target state.
//!
//! Facts before everything else, since they are what the breaker needs; rich observations when there is
//! time for them. A transition is published to the gate at once, because traffic must not wait for a disk;
//! it is told as an event once the store has it for good.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::board::{Board, RouteCard};
use super::live::{Embedded, Live};
use super::mail::breathe;
use super::orders::{Order, Report};
use super::selftests::SelfTests;
use super::target::{Effect, EventOf, Setup, TargetCore};
use super::teller::Teller;
use super::watched::Watched;
use super::{Batch, Fact, Inbox, Observed};
use crate::baseline::Baseline;
use crate::breaker;
use crate::cache::Cache;
use crate::clock::{Clock, Timestamp};
use crate::detect::Signal;
use crate::embed::EmbedHandle;
use crate::event::{Event, EventKind};
use crate::gate::{Gate, Published, target_of};
use crate::metrics::Metrics;
use crate::sample::{Done, Outcome};
use crate::shared::Shared;
use crate::stats::TimeWindow;
use crate::store::Store;
use crate::verdict::{BreakerState, HealthState, Mode};

/// Time passes for the cores at this pace.
const TICK: Duration = Duration::from_millis(200);
/// Reports gather for so long between two readings.
const PAUSE: Duration = Duration::from_millis(1);
/// The board and the metrics are renewed every so many ticks, and at every transition.
const SHOW_EVERY: u32 = 5;
/// A route's fallback ratio looks back so far, milliseconds.
pub(super) const FALLBACK_SPAN_MS: u64 = 300_000;
/// Requests that a route's fallback window holds at most.
pub(super) const FALLBACK_CAPACITY: usize = 10_000;
/// Prefix of a target's saved state in the store.
pub const STATE_KEY: &str = "target/";

/// One route as the monitor needs it.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Name.
    pub name: Arc<str>,
    /// Whether decisions are applied.
    pub mode: Mode,
    /// Target names tier by tier; what is no target (`cache`) stands as configured.
    pub tiers: Vec<Vec<Arc<str>>>,
}

/// One target as the monitor begins with it.
#[derive(Debug)]
pub struct Start {
    /// What it is configured to be.
    pub setup: Setup,
    /// Whether the golden set has canaries and burst prompts.
    pub golden: (bool, bool),
    /// Its frozen baseline, if one fits.
    pub baseline: Option<Arc<Baseline>>,
    /// Orders for its prober.
    pub prober: mpsc::Sender<Order>,
}

/// Everything the monitor writes to.
#[derive(Debug)]
pub struct Outlets {
    /// Published states.
    pub gate: Gate,
    /// What is shown.
    pub board: Board,
    /// Events, samples, states.
    pub store: Arc<Store>,
    /// Metrics.
    pub metrics: Metrics,
    /// Answers that passed quality; purged of a target found degraded.
    pub cache: Arc<Cache>,
    /// The sentence model.
    pub embedder: Option<EmbedHandle>,
    /// Time.
    pub clock: Clock,
    /// Spreads open times between instances.
    pub seed: u64,
    /// What several instances share.
    pub shared: Option<Shared>,
}

/// The monitor.
pub struct Monitor {
    pub(super) targets: BTreeMap<Arc<str>, Watched>,
    pub(super) lanes: Vec<Lane>,
    pub(super) fallbacks: HashMap<Arc<str>, TimeWindow>,
    pub(super) live: Live,
    pub(super) out: Outlets,
    ticks: u32,
    pub(super) embedded_seen: u64,
    teller: Teller,
    /// A state that another instance published is being taken over, and not told back.
    pub(super) adopting: bool,
    pub(super) tests: SelfTests,
    /// Saved states of models that have not been seen since the start.
    pub(super) saved: BTreeMap<Arc<str>, serde_json::Value>,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").field("targets", &self.targets.len()).finish_non_exhaustive()
    }
}

impl Monitor {
    /// Takes up the saved states and publishes where everything stands.
    #[must_use]
    pub fn new(starts: Vec<Start>, lanes: Vec<Lane>, out: Outlets) -> Self {
        let now = out.clock.now();
        let mut saved = out.store.states_blocking();
        let mut targets = BTreeMap::new();
        for (i, start) in starts.into_iter().enumerate() {
            let name = Arc::clone(&start.setup.name);
            let seed = out.seed.wrapping_add(i as u64);
            let mut core = TargetCore::new(start.setup.clone(), seed);
            if let Some(state) = saved.remove(&format!("{STATE_KEY}{name}")) {
                match serde_json::from_value(state) {
                    Ok(state) => core.restore(state, seed, now),
                    Err(error) => tracing::warn!(target_name = %name, %error, "saved state cannot be read"),
                }
            }
            let (canaries, bursts) = start.golden;
            let _ = core.set_golden(now, canaries, bursts, start.baseline.clone()); // told by the board
            targets.insert(name, Watched::new(core, &start, now));
        }
        let fallbacks = lanes
            .iter()
            .map(|lane| (Arc::clone(&lane.name), TimeWindow::new(FALLBACK_SPAN_MS, FALLBACK_CAPACITY)))
            .collect();
        let live = Live::new(out.embedder.clone(), out.seed);
        let mut monitor = Self {
            targets,
            lanes,
            fallbacks,
            live,
            out,
            ticks: 0,
            embedded_seen: 0,
            teller: Teller::default(),
            adopting: false,
            tests: SelfTests::default(),
            saved: saved
                .into_iter()
                .filter_map(|(key, state)| Some((key.strip_prefix(STATE_KEY)?.into(), state)))
                .collect(),
        };
        for name in monitor.names() {
            monitor.publish(&name, now);
        }
        monitor.out.gate.beat(now);
        monitor.show(now);
        monitor
    }

    /// Runs until `stop` turns true, then saves every state.
    pub async fn run(
        mut self,
        mut inbox: Inbox,
        mut reports: mpsc::Receiver<Report>,
        mut stop: watch::Receiver<bool>,
    ) {
        let telling = self.teller.start(self.out.board.clone());
        let (embedded_out, mut embedded) = mpsc::channel::<Embedded>(256);
        let mut batch = Batch::default();
        let mut mail = pin!(inbox.arrival(Duration::ZERO));
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = told(&mut stop) => break,
                _ = tick.tick() => self.tick(&inbox),
                Some(command) = inbox.commands.recv() => self.command(command),
                Some(report) = reports.recv() => self.report(report),
                Some(answer) = embedded.recv() => self.embedded(answer),
                Some(ended) = self.tests.next() => self.tested(&ended),
                () = &mut mail => {
                    self.read(&inbox, &mut batch, &embedded_out).await;
                    mail.set(inbox.arrival(PAUSE));
                }
            }
        }
        self.read(&inbox, &mut batch, &embedded_out).await;
        for name in self.names() {
            self.save(&name);
        }
        self.out.store.flush().await;
        drop(self.teller);
        let _ = telling.await; // ends once the last event is told
    }

    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.targets.keys().cloned().collect()
    }

    /// Facts before everything else, and a turn for others in between.
    async fn read(&mut self, inbox: &Inbox, batch: &mut Batch, embedded: &mpsc::Sender<Embedded>) {
        inbox.take(batch);
        let mut since = 0;
        for fact in batch.facts.drain(..) {
            self.fact(fact);
            breathe(&mut since).await;
        }
        for observed in batch.observed.drain(..) {
            self.observed(observed, embedded);
            breathe(&mut since).await;
        }
    }

    fn fact(&mut self, fact: Fact) {
        match fact {
            Fact::Outcome(outcome) => self.outcome(outcome),
            Fact::Done(done) => self.done(&done),
        }
    }

    fn outcome(&mut self, outcome: Outcome) {
        self.count_outcome(&outcome);
        if !self.targets.contains_key(&outcome.target) {
            self.split(&outcome.target);
        }
        let Some(watched) = self.targets.get_mut(&outcome.target) else { return };
        let effects = watched.core.on_outcome(&outcome);
        self.apply(&outcome.target, effects);
    }

    fn done(&mut self, done: &Done) {
        self.count_done(done);
        if let Some(window) = self.fallbacks.get_mut(&done.route) {
            let fell_back = done.reason.is_some() && &*done.tier != "0";
            window.record(done.at, f64::from(u8::from(fell_back)));
        }
    }

    pub(super) fn observed(&mut self, observed: Observed, embedded: &mpsc::Sender<Embedded>) {
        match observed {
            Observed::Sample(sample) => {
                let Some(watched) = self.targets.get_mut(&sample.target) else { return };
                let sound = sample.class.is_none() && !sample.partial && !sample.light;
                let healthy = sound && watched.core.health().is_unsuspected();
                let effects = watched.core.on_sample(&sample, None);
                self.apply(&sample.target.clone(), effects);
                self.watch_workload(&sample.route);
                self.live.embed(sample, healthy, embedded, &self.out.store);
            }
            Observed::Exchange(exchange) => self.out.store.record_exchange(exchange),
        }
    }

    /// The vectors of a live prompt and answer are there.
    fn embedded(&mut self, answer: Embedded) {
        let (target, route, at) = (Arc::clone(&answer.target), Arc::clone(&answer.route), answer.at);
        let Some((drift, summary)) = self.live.record(answer) else { return };
        let Some(watched) = self.targets.get_mut(&target) else { return };
        if let Some(response) = drift.response {
            watched.core.on_signal(at, Signal::DriftCosine, response);
            watched.core.on_drift(&route, response);
            self.out.store.record_point(Arc::clone(&target), "drift", at, response);
        }
        if let Some(prompt) = summary.prompt {
            watched.core.on_signal(at, Signal::PromptDrift, prompt);
        }
        self.out.store.record_point(Arc::clone(&target), "prompt_drift", at, drift.prompt);
        if let Some(windows) = drift.windows {
            self.live_moved(&target, &route, at, &windows);
        }
    }

    fn tick(&mut self, inbox: &Inbox) {
        let now = self.out.clock.now();
        self.out.gate.beat(now);
        for lane in &self.lanes {
            let Some(ratio) = self.fallbacks.get(&lane.name).and_then(|w| w.mean(now)) else { continue };
            let first = lane.tiers.first().and_then(|tier| tier.first());
            if let Some(watched) = first.and_then(|name| self.targets.get_mut(name)) {
                watched.core.on_signal(now, Signal::FallbackRatio, ratio);
            }
        }
        for name in self.names() {
            let alone = self.is_alone(&name, now);
            let Some(watched) = self.targets.get_mut(&name) else { continue };
            let effects = watched.core.tick(now, alone);
            if let Some(since) = watched.open_since {
                let seconds = now.ms_since(since) as f64 / 1_000.0;
                self.out.metrics.breaker_open_seconds(&name).add(seconds);
                watched.open_since = Some(now);
            }
            // only what was measured to be well is proven good
            if watched.core.health().state() == HealthState::Healthy {
                watched.last_good = now;
            }
            self.apply(&name, effects);
            self.publish(&name, now);
        }
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(SHOW_EVERY) {
            self.out.metrics.samples_dropped("monitor").raise_to(inbox.dropped());
            self.show(now);
        }
    }

    /// Whether no other target or tier of some route of `name` can answer now.
    fn is_alone(&self, name: &str, now: Timestamp) -> bool {
        let name = target_of(name);
        self.lanes.iter().filter(|lane| lane.tiers.iter().flatten().any(|n| **n == *name)).any(|lane| {
            !lane.tiers.iter().flatten().filter(|n| ***n != *name).any(|other| {
                self.targets.get(other).is_none_or(|w| {
                    matches!(w.core.admission(now).state, BreakerState::Closed | BreakerState::ForcedClosed)
                })
            })
        })
    }

    pub(super) fn apply(&mut self, target: &Arc<str>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Transition(transition) => self.transition(target, &transition),
                Effect::Event(event) => self.tell(*event),
                Effect::StartBurst { reason, generation } => {
                    self.order(target, Order::Burst { reason, generation })
                }
                Effect::StartProbe { generation, count } => {
                    self.order(target, Order::Probes { generation, count })
                }
                Effect::WarmUp => self.order(target, Order::WarmUp),
                Effect::StopBurst => self.order(target, Order::StopBurst),
                Effect::SelfTest { what, healthy } => self.tests.begin(target, what, healthy),
            }
        }
    }

    /// A prober that cannot take an order is told again at the next tick: the core asks until it is done.
    fn order(&self, target: &str, order: Order) {
        if self.is_anothers(target, &order) {
            return;
        }
        if let Some(watched) = self.targets.get(target) {
            let _ = watched.prober.try_send(order);
        }
    }

    fn transition(&mut self, target: &Arc<str>, transition: &breaker::Transition) {
        let now = self.out.clock.now();
        self.publish(target, now); // traffic first
        self.save(target);
        self.share(target, transition);
        let Some(watched) = self.targets.get_mut(target) else { return };
        let open = matches!(transition.to, BreakerState::Open | BreakerState::ForcedOpen);
        watched.open_since = open.then_some(now);
        if open && transition.cause.is_quality() {
            // what another model of the target said is taken out with it rather than a suspect answer left in
            let purged = self.out.cache.purge(target_of(target), watched.last_good);
            tracing::info!(target_name = %target, purged, "cache purged back to the last good moment");
        }
        let cause = transition.cause.as_str();
        self.out.metrics.breaker_transitions(target, transition.to, cause).inc();
        if watched.mode == Mode::Shadow && transition.to == BreakerState::Open {
            self.out.metrics.would_open(target, cause).inc();
        }
        tracing::warn!(
            target_name = %target, from = %transition.from, to = %transition.to, cause,
            mode = %watched.mode, why = %transition.message, "breaker changed"
        );
        self.show(now);
    }

    /// Publishes where the target stands.
    pub(super) fn publish(&self, target: &str, now: Timestamp) {
        let Some(watched) = self.targets.get(target) else { return };
        let published = Published {
            admission: watched.admission(now),
            health: watched.core.health().state(),
            reason: watched.core.breaker().message().to_owned(),
            last_seen: watched.core.last_seen(),
            first_text_ms: watched.core.first_text_ms(),
        };
        if *self.out.gate.read(target) != published {
            self.out.gate.publish(target, published);
        }
    }

    fn save(&self, target: &str) {
        if let Some(watched) = self.targets.get(target) {
            let state = serde_json::to_value(watched.core.saved()).unwrap_or_default();
            self.out.store.save_state(format!("{STATE_KEY}{target}"), state);
        }
    }

    pub(super) fn event(
        &mut self,
        at: Timestamp,
        kind: EventKind,
        target: Option<&Arc<str>>,
        reason: &str,
        message: String,
        data: serde_json::Value,
    ) {
        let (target, reason) = (target.cloned(), reason.to_owned());
        self.tell(EventOf(Event { id: 0, at, kind, target, route: None, reason, message, data }));
    }

    /// Stored for good, then told, in that order and without waiting here.
    pub(super) fn tell(&mut self, event: EventOf) {
        let event = event.0;
        tracing::info!(
            kind = ?event.kind, target_name = event.target.as_deref().unwrap_or(""), reason = %event.reason,
            message = %event.message, "event"
        );
        let ack = self.out.store.record_event(event.clone());
        self.teller.tell(event, ack);
    }

    /// The routes' cards.
    pub(super) fn route_cards(&self, now: Timestamp) -> Vec<RouteCard> {
        self.lanes
            .iter()
            .map(|lane| RouteCard {
                name: Arc::clone(&lane.name),
                mode: lane.mode,
                tiers: lane.tiers.clone(),
                can_serve: lane.mode == Mode::Shadow
                    || lane.tiers.iter().flatten().any(|n| {
                        // another service's URL has no breaker, so it is not shown to be unable
                        self.targets.get(n).map_or_else(
                            || crate::plan::is_url(n),
                            |w| {
                                !matches!(
                                    w.core.admission(now).state,
                                    BreakerState::Open | BreakerState::ForcedOpen
                                )
                            },
                        )
                    }),
                fallback_ratio: self.fallbacks.get(&lane.name).and_then(|w| w.mean(now)),
            })
            .collect()
    }
}

/// Ready when `stop` has turned true, or nobody is left who could turn it.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

//! The account of one request: its tries, what each showed, what the caller got. Filed once.
//!
//! Whatever happens to the future or body that holds it, it is filed: dropped unfinished, it says that the
//! caller left (499). Facts go to the monitor without waiting.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;

use super::Proxy;
use super::analysis::{Job, Watch};
use super::bill;
use super::consequence::{Ended, fault_of, is_withheld};
use super::flow::Further;
use super::inject::Injected;
use super::keep::Keep;
use super::live::{Extra, Live, Target, degraded_text};
use super::running::{Running, Seen};
use crate::cache::Key;
use crate::clock::{Stopwatch, Timestamp};
use crate::judge::{Ask, End, Progress, Verdict};
use crate::monitor::Observed;
use crate::plan::{FaultKind, Route};
use crate::sample::{Attempt, AttemptOutcome, Done, Exchange, Outcome, Sample, Timing};
use crate::spend::{Nano, Scopes};
use crate::upstream::Failure;
use crate::verdict::{FaultClass, Flag, Mode, Reason, Source, Wire};

/// What the caller sees when it did not wait.
const CLIENT_GONE: u16 = 499;

/// A caller's own limit without `Retry-After`, milliseconds.
const KEY_COOL_DOWN_MS: u64 = 1_000;
/// And the longest that is believed.
const KEY_COOL_DOWN_MAX_MS: u64 = 60_000;

/// One request's account; see the module.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) proxy: Arc<Proxy>,
    pub(super) live: Arc<Live>,
    pub(super) route: usize,
    pub(super) wire: Wire,
    pub(super) id: Arc<str>,
    pub(super) trace: Arc<str>,
    pub(super) workflow: Option<Arc<str>>,
    pub(super) ask: Option<Arc<Ask>>,
    /// The model, where the path names it.
    pub(super) path_model: Option<Arc<str>>,
    pub(super) at: Timestamp,
    pub(super) watch: Stopwatch,
    /// Who pays.
    pub(super) scopes: Scopes,
    /// Tells callers apart whose own credentials travel.
    pub(super) caller: Option<u64>,
    /// Time spent waiting for upstreams and for their wishes, microseconds.
    pub(super) waited_us: u64,
    /// What the try under way asks for on the daemon's behalf.
    pub(super) injected: Option<Injected>,
    attempts: Vec<Attempt>,
    cost_usd: Option<f64>,
    current: Option<Running>,
    keep: Option<Keep>,
    last: Verdict,
    partial: bool,
    overhead_us: u64,
    tier: Arc<str>,
    target: Option<Arc<str>>,
    degraded: Option<(Reason, Option<Flag>)>,
    status: u16,
    open: bool,
}

/// Who asks what, from where the request stands.
pub(super) struct Opening {
    pub(super) live: Arc<Live>,
    pub(super) route: usize,
    pub(super) wire: Wire,
    pub(super) trace: [u8; 32],
    pub(super) workflow: Option<Arc<str>>,
    pub(super) ask: Option<Arc<Ask>>,
    pub(super) path_model: Option<Arc<str>>,
    pub(super) at: Timestamp,
    pub(super) watch: Stopwatch,
    pub(super) scopes: Scopes,
    pub(super) caller: Option<u64>,
}

impl Ledger {
    pub(super) fn open(proxy: Arc<Proxy>, opening: Opening) -> Box<Self> {
        let none = Arc::clone(&proxy.words.none);
        Box::new(Self {
            proxy,
            live: opening.live,
            route: opening.route,
            wire: opening.wire,
            id: format!("{:016x}", fastrand::u64(..)).into(),
            trace: std::str::from_utf8(&opening.trace).unwrap_or_default().into(),
            workflow: opening.workflow,
            ask: opening.ask,
            path_model: opening.path_model,
            at: opening.at,
            watch: opening.watch,
            scopes: opening.scopes,
            caller: opening.caller,
            waited_us: 0,
            injected: None,
            attempts: Vec::new(),
            cost_usd: None,
            current: None,
            keep: None,
            last: Verdict::default(),
            partial: false,
            overhead_us: 0,
            tier: none,
            target: None,
            degraded: None,
            status: CLIENT_GONE,
            open: true,
        })
    }

    pub(super) fn route(&self) -> &Route {
        &self.live.routes[self.route]
    }

    pub(super) fn extra(&self) -> &Extra {
        &self.live.extras[self.route]
    }

    pub(super) fn target(&self, index: usize) -> &Target {
        &self.live.targets[index]
    }

    pub(super) fn running(&self) -> Option<&Running> {
        self.current.as_ref()
    }

    /// Tries so far, the one under way included.
    pub(super) fn tries(&self) -> u32 {
        self.attempts.len() as u32 + u32::from(self.current.is_some())
    }

    /// Begins a try.
    pub(super) fn begin(&mut self, running: Running) {
        self.keep = None;
        self.injected = None;
        self.current = Some(running);
    }

    /// The answer's head has come; from here on its bytes are watched.
    pub(super) fn head(&mut self, status: u16, watch: Watch, streaming: bool, retry_after_ms: Option<u64>) {
        if let Some(running) = &mut self.current {
            running.head(status, watch, streaming, retry_after_ms);
        }
    }

    /// Keeps a copy of the answer for the cache, in case it turns out sound.
    pub(super) fn keep_for(&mut self, key: Key, content_type: Option<http::HeaderValue>) {
        self.keep = Some(Keep::new(key, self.live.cache.max_entry_bytes(), content_type, self.injected));
    }

    /// The next bytes of the answer.
    pub(super) fn saw(&mut self, piece: &Bytes) -> Progress {
        if self.keep.as_mut().is_some_and(|keep| !keep.add(piece)) {
            self.keep = None;
        }
        self.current.as_mut().map(|running| running.saw(piece)).unwrap_or_default()
    }

    /// Where the answer stands with all its text read, before it is committed to.
    pub(super) fn catch_up(&mut self) -> Progress {
        self.current.as_mut().map(Running::catch_up).unwrap_or_default()
    }

    /// Whether a stream has not shown its terminal sign, as far as anyone can tell.
    pub(super) fn lacks_terminal(&self) -> bool {
        self.current.as_ref().is_some_and(Running::lacks_terminal)
    }

    /// Whether the stream has fallen below its least pace since it was looked at last.
    pub(super) fn crawls(&mut self) -> bool {
        self.current.as_mut().is_some_and(Running::crawls)
    }

    /// The try's time stops here, whenever it will be judged.
    pub(super) fn stop_watch(&mut self) {
        if let Some(running) = &mut self.current {
            running.stop_watch();
        }
    }

    /// Ends the try under way: judges it and reports it.
    pub(super) fn end(&mut self, end: End) -> Ended {
        self.note_break(end);
        let Some(running) = self.current.take() else { return Ended::default() };
        self.end_judged(running.finish(end), end)
    }

    /// Ends the try under way with a verdict that was reached elsewhere.
    pub(super) fn end_judged(&mut self, seen: Seen, end: End) -> Ended {
        let ended = self.report(seen, end);
        self.last = ended.verdict.clone();
        ended
    }

    /// Takes the try under way out, to be judged elsewhere.
    pub(super) fn take_running(&mut self) -> Option<Running> {
        self.current.take()
    }

    /// Ends the try under way, which brought no answer.
    pub(super) fn lost(&mut self, failure: &Failure, class: FaultClass) -> Ended {
        let Some(running) = self.current.take() else { return Ended::default() };
        self.end_judged(running.lost(failure, class), End::Broken)
    }

    /// What the caller is about to get.
    pub(super) fn deliver(
        &mut self,
        status: u16,
        tier: &Arc<str>,
        target: Option<Arc<str>>,
        degraded: Option<(Reason, Option<Flag>)>,
    ) {
        self.status = status;
        self.tier = Arc::clone(tier);
        self.target = target;
        self.degraded = degraded;
        self.overhead_us = self.watch.elapsed_us().saturating_sub(self.waited_us);
    }

    /// The delivered answer is not the last one tried.
    pub(super) fn show(&mut self, verdict: Verdict) {
        self.last = verdict;
    }

    /// Ends the last try and files everything.
    pub(super) fn file(mut self: Box<Self>, end: End) {
        if end == End::ClientGone {
            self.status = CLIENT_GONE;
        }
        self.partial |= end != End::Complete;
        self.note_break(end);
        if let Some(running) = self.current.take() {
            self.last = self.report(running.finish(end), end).verdict;
        }
        self.close();
    }

    /// As [`Ledger::file`], on the threads for large answers; unjudged where they are busy.
    pub(super) fn file_on_pool(self: Box<Self>, end: End) {
        let pool = self.proxy.pool.clone();
        let boxed = Arc::new(std::sync::Mutex::new(Some(self)));
        let twin = Arc::clone(&boxed);
        let take = |cell: &std::sync::Mutex<Option<Box<Self>>>| {
            cell.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        let job: Job = Box::new(move || {
            if let Some(ledger) = take(&twin) {
                ledger.file(end);
            }
        });
        if pool.offer(job).is_err()
            && let Some(mut ledger) = take(&boxed)
        {
            if let Some(running) = &mut ledger.current {
                running.give_up_judging();
            }
            ledger.file(end);
        }
    }

    /// Files the request. Every further call does nothing.
    pub(super) fn close(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let now = self.proxy.clock.now();
        let ms = self.watch.elapsed_ms();
        let route = Arc::clone(self.route().name());
        let first_target = Arc::clone(&self.extra().first_target);
        tracing::debug!(
            id = &*self.id,
            route = &*route,
            target = self.target.as_deref(),
            tier = &*self.tier,
            status = self.status,
            attempts = self.attempts.len(),
            ms,
            "request ended"
        );
        if self.status == CLIENT_GONE {
            tracing::info!(id = &*self.id, route = &*route, status = CLIENT_GONE, ms, "caller left");
        }
        self.proxy.monitor.done(Done {
            at: now,
            route: Arc::clone(&route),
            target: self.target.clone().unwrap_or_else(|| Arc::clone(&self.proxy.words.empty)),
            tier: Arc::clone(&self.tier),
            client_status: self.status,
            reason: self.degraded.map(|(reason, _)| reason),
            first_target,
            ms,
            overhead_us: self.overhead_us,
            attempts: self.attempts.len() as u32,
        });
        let last = std::mem::take(&mut self.last);
        self.proxy.monitor.observe(Observed::Exchange(Arc::new(Exchange {
            id: Arc::clone(&self.id),
            at: self.at,
            trace_id: Arc::clone(&self.trace),
            workflow: self.workflow.clone(),
            route,
            wire: self.wire,
            attempts: std::mem::take(&mut self.attempts),
            flags: last.flags,
            signals: last.signals,
            usage: last.usage,
            cost_usd: self.cost_usd,
            client_status: self.status,
            partial: self.partial || last.partial,
            light: last.light,
            tier: Arc::clone(&self.tier),
            target: self.target.clone(),
            degraded: self.degraded.map(|(reason, flag)| degraded_text(reason, flag)),
            ms,
        })));
    }

    /// Whether a refusal meant the caller's own key: then the target rests for that caller and nobody else.
    fn keyed(&self, target: usize, class: Option<FaultClass>, now: Timestamp, after_ms: Option<u64>) -> bool {
        let target = &self.live.targets[target];
        let Some(caller) = self.caller.filter(|_| target.upstream.forwards_auth()) else { return false };
        if class != Some(FaultClass::Backpressure) {
            return false;
        }
        target.flow.cool_key(caller, now, after_ms.unwrap_or(KEY_COOL_DOWN_MS).min(KEY_COOL_DOWN_MAX_MS));
        true
    }

    fn report(&mut self, seen: Seen, end: End) -> Ended {
        let now = self.proxy.clock.now();
        let target = &self.live.targets[seen.running.target];
        let usage = bill::used(&seen, self.ask.as_deref());
        let Seen { running, mut verdict, mut class, total_ms, reached: _, purchase } = seen;
        if let (Some(ask), true) = (&self.ask, verdict.signals.dim.is_some()) {
            let mut known = target.dimensions.lock().unwrap_or_else(PoisonError::into_inner);
            known.hold(ask, &mut verdict);
            if verdict.flags.contains(Flag::EmbeddingDimMismatch) {
                class = class.filter(|c| *c != FaultClass::QualitySoft).or(verdict.class);
            }
        }
        let price = target.upstream.params().price();
        let cost = price.map(|price| bill::cost(&price, &usage));
        if cost.is_some() {
            verdict.usage = usage;
        }
        if let Some(purchase) = purchase {
            purchase.settle(cost.unwrap_or_default());
        }
        if let Some(cost) = cost {
            *self.cost_usd.get_or_insert(0.0) += cost.usd();
        }
        let retry_after_ms = running.retry_after_ms.or(verdict.retry_after_ms);
        let keyed = self.keyed(running.target, class, now, retry_after_ms);
        if class != Some(FaultClass::Client) {
            let sound = matches!(class, None | Some(FaultClass::Info | FaultClass::QualitySoft));
            let generation = running.generation;
            target.flow.ended(&self.live.retry, now, running.further, sound, total_ms, generation);
        }
        let timing = Timing {
            total_ms,
            headers_ms: running.headers_ms,
            ttft_ms: verdict.ttft_ms,
            tokens_per_second: verdict.tokens_per_second,
        };
        let request_hash = self.ask.as_ref().map_or(0, |ask| ask.request_hash);
        let state = self.state_of(running.target);
        self.note_model(running.target, class.is_none() && running.status == Some(200));
        let gone = end == End::ClientGone;
        self.attempts.push(Attempt {
            target: Arc::clone(&target.name),
            tier: running.tier as u32,
            status: running.status,
            ms: total_ms,
            ttft_ms: verdict.ttft_ms,
            outcome: match class {
                _ if gone => AttemptOutcome::ClientGone,
                None | Some(FaultClass::Info | FaultClass::QualitySoft) => AttemptOutcome::Ok,
                Some(_) => AttemptOutcome::Failed,
            },
            class,
            flags: verdict.flags,
        });
        if let Some(keep) = self.keep.take()
            && class.is_none()
            && running.status == Some(200)
            && end == End::Complete
            // an answer of a target that was found unfit meanwhile is suspect, however sound it looks
            && self.live.gate.read(&state).admission.generation == running.generation
        {
            keep.store(&self.proxy.cache, &verdict, Arc::clone(&target.name), now);
        }
        self.proxy.monitor.outcome(Outcome {
            at: now,
            route: Arc::clone(self.route().name()),
            target: Arc::clone(&state),
            generation: running.generation,
            source: Source::Live,
            class,
            flags: verdict.flags,
            request_hash,
            status: running.status,
            timing,
            streaming: running.streaming,
            light: verdict.light,
            retry_after_ms,
            usage: verdict.usage,
            cost_usd: cost.map(Nano::usd),
            keyed,
        });
        self.proxy.monitor.observe(Observed::Sample(Box::new(Sample {
            at: now,
            request_id: Arc::clone(&self.id),
            route: Arc::clone(self.route().name()),
            target: state,
            source: Source::Live,
            wire: self.wire,
            status: running.status,
            class,
            flags: verdict.flags,
            signals: verdict.signals.clone(),
            usage: verdict.usage,
            timing,
            request_hash,
            prompt_id: None,
            check: None,
            first_position: verdict.first_position.take(),
            prompt_text: self.ask.as_ref().map(|a| Arc::clone(&a.prompt_text)).filter(|t| !t.is_empty()),
            answer_text: Some(Arc::clone(&verdict.text)).filter(|t| !t.is_empty()),
            partial: verdict.partial,
            light: verdict.light,
            generation: running.generation,
        })));
        let withheld = || self.live.fallback.on_content_filter() && is_withheld(running.status, &verdict);
        let fault =
            fault_of(running.status, &verdict).or_else(|| withheld().then_some(FaultKind::ContentFilter));
        let repeatable = fault.map_or(class == Some(FaultClass::Upstream), FaultKind::is_repeatable);
        if self.extra().mode == Mode::Shadow && repeatable && !gone {
            self.live.targets[running.target].flow.note_further(Further::Would);
        }
        Ended { verdict, class, fault, retry_after_ms: running.retry_after_ms }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if self.open {
            self.status = CLIENT_GONE;
            self.partial = true;
            self.end(End::ClientGone);
            self.close();
        }
    }
}

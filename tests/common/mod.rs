//! A proxy and the upstreams that it speaks to, all in one process: what an upstream does is scripted down
//! to the byte, and what the proxy reported is kept.
#![allow(dead_code)] // each test file uses its own part

pub(crate) mod cases;
#[path = "../support/http.rs"]
pub(crate) mod http;
pub(crate) mod upstream;
pub(crate) mod wires;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use touchstone::clock::{Clock, Stopwatch};
use touchstone::gate::{Gate, Published};
use touchstone::monitor::{self, Fact, Observed};
use touchstone::plan::{FallbackParams, RouteParams};
use touchstone::proxy::{HoldParams, Live, Parts, Proxy, ProxyParams, Setup, serve};
use touchstone::sample::{Done, Exchange, Outcome, Sample};
use touchstone::upstream::{Limits, TargetParams};
use touchstone::verdict::{BreakerState, Mode};
use touchstone::{cache, chaos, permits, retry, spend};

/// The part of a configuration that the proxy reads.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configuration {
    mode: Mode,
    target: Vec<TargetParams>,
    route: Vec<RouteParams>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    proxy: ProxyParams,
    #[serde(default)]
    hold: HoldParams,
    #[serde(default)]
    retry: retry::Params,
    #[serde(default)]
    cache: cache::Params,
    #[serde(default)]
    queue: permits::Params,
    #[serde(default)]
    fallback: FallbackParams,
    #[serde(default)]
    cost: spend::Params,
    #[serde(default)]
    chaos: chaos::Params,
}

pub(crate) fn setup(text: &str) -> Setup {
    let read: Configuration = toml::from_str(text).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    Setup {
        mode: read.mode,
        targets: read.target,
        routes: read.route,
        limits: read.limits,
        proxy: read.proxy,
        hold: read.hold,
        retry: read.retry,
        cache: read.cache,
        queue: read.queue,
        fallback: read.fallback,
        cost: read.cost,
        chaos: read.chaos,
    }
}

/// What the proxy reported.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) done: Vec<Done>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) exchanges: Vec<Exchange>,
}

/// A proxy that serves on a free port until it is dropped.
pub(crate) struct Served {
    pub(crate) port: u16,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) gate: Gate,
    pub(crate) reports: Arc<Mutex<Reports>>,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<tokio::task::JoinHandle<()>>,
    runtime: Option<Runtime>,
}

impl Served {
    /// Serves this configuration.
    pub(crate) fn start(text: &str) -> Self {
        Self::start_with(text, Parts::default())
    }

    /// Likewise, with what the proxy may use.
    pub(crate) fn start_with(text: &str, parts: Parts) -> Self {
        let setup = setup(text);
        let runtime = runtime();
        let gate = Gate::new(setup.targets.iter().map(|t| Arc::clone(t.name())));
        let live = Live::new(&setup, gate.clone(), None).unwrap_or_else(|fault| panic!("{fault}"));
        let (handle, inbox) = monitor::channel(1_024);
        let proxy = Proxy::with(live, handle, Clock::system(), parts).expect("threads");
        let reports = Arc::<Mutex<Reports>>::default();
        runtime.spawn(collect(inbox, Arc::clone(&reports)));
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = serve(listener, Arc::clone(&proxy), async {
            let _ = stopped.await;
        });
        let ended = Some(runtime.spawn(serving));
        Self { port, proxy, gate, reports, stop: Some(stop), ended, runtime: Some(runtime) }
    }

    /// Asks for a drain; see [`Served::has_ended`].
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.as_ref().is_none_or(tokio::task::JoinHandle::is_finished)
    }

    /// Tasks of the proxy's runtime that have not ended.
    pub(crate) fn tasks(&self) -> usize {
        self.runtime.as_ref().map_or(0, |runtime| runtime.metrics().num_alive_tasks())
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("a runtime").block_on(future)
    }

    /// Publishes a breaker state.
    pub(crate) fn publish(&self, target: &str, state: BreakerState) {
        let mut published = Published::default();
        published.admission.state = state;
        published.admission.due = Some(Clock::system().now().plus_ms(9_500));
        self.gate.publish(target, published);
    }

    /// Reports once `n` requests are done.
    pub(crate) fn reports_of(&self, n: usize) -> std::sync::MutexGuard<'_, Reports> {
        eventually("all requests are reported", || {
            let reports = self.reports.lock().expect("whole");
            reports.done.len() >= n && reports.exchanges.len() >= reports.done.len()
        });
        self.reports.lock().expect("whole")
    }

    pub(crate) fn chat(&self, headers: &[(&str, &str)], body: &str) -> http::Answer {
        self.post("/v1/chat/completions", headers, body)
    }

    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> http::Answer {
        http::request(self.port, "POST", path, headers, body.as_bytes()).expect("an answer")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn collect(inbox: monitor::Inbox, reports: Arc<Mutex<Reports>>) {
    let mut batch = monitor::Batch::default();
    loop {
        inbox.arrival(Duration::ZERO).await;
        inbox.take(&mut batch);
        let mut reports = reports.lock().expect("whole");
        for fact in batch.facts.drain(..) {
            match fact {
                Fact::Outcome(outcome) => reports.outcomes.push(outcome),
                Fact::Done(done) => reports.done.push(done),
            }
        }
        for observed in batch.observed.drain(..) {
            match observed {
                Observed::Sample(sample) => reports.samples.push(*sample),
                Observed::Exchange(exchange) => reports.exchanges.push(Arc::unwrap_or_clone(exchange)),
            }
        }
    }
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Polls until it holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let watch = Stopwatch::start();
    while !holds() {
        assert!(watch.elapsed() < Duration::from_secs(10), "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A chat request in the form that clients send it.
pub(crate) const ASK: &str =
    r#"{"model":"assistant","messages":[{"role":"user","content":"Name a primary colour."}]}"#;
/// The same, streaming.
pub(crate) const ASK_STREAM: &str =
    r#"{"model":"assistant","stream":true,"messages":[{"role":"user","content":"Name a primary colour."}]}"#;

/// A sound answer that says `text`, with spacing and numbers that no writer of ours would make.
pub(crate) fn chat_json(text: &str) -> String {
    format!(
        "{{ \"id\":\"c-1\",\"object\":\"chat.completion\", \"created\":1.70e9,\"model\":\"m\",\n \
         \"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\"}},\
         \"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":9,\"completion_tokens\":4,\"total_tokens\":13}} }}"
    )
}

/// One event of a chat stream.
pub(crate) fn event(delta: &str, finish: Option<&str>) -> String {
    let finish = finish.map_or("null".to_owned(), |f| format!("\"{f}\""));
    format!(
        "data: {{\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
         \"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

/// A whole sound chat stream, event by event.
pub(crate) fn chat_stream() -> Vec<String> {
    vec![
        event("{\"role\":\"assistant\",\"content\":\"\"}", None),
        event("{\"content\":\"Red is \"}", None),
        event("{\"content\":\"a primary colour.\"}", None),
        event("{}", Some("stop")),
        "data: [DONE]\n\n".to_owned(),
    ]
}

/// Targets in one tier after the other, each with its own model name.
pub(crate) fn tiers(mode: &str, upstreams: &[&upstream::Upstream], more: &str) -> String {
    let mut text = format!("mode = \"{mode}\"\n{more}\n");
    for (i, upstream) in upstreams.iter().enumerate() {
        text.push_str(&format!(
            "[[target]]\nname = \"t{i}\"\nurl = \"{}\"\nmodel = \"model-{i}\"\n",
            upstream.url()
        ));
    }
    let names: Vec<String> = (0..upstreams.len()).map(|i| format!("[\"t{i}\"]")).collect();
    text.push_str(&format!("[[route]]\nname = \"r\"\ntiers = [{}]\n", names.join(", ")));
    text
}

//! One golden prompt, asked of one target and judged like any answer.
//!
//! The daemon's own calls ask for logprobs where the wire has them. An upstream that turns the question
//! into an error because of them is asked once more without, and remembered ([`Asker::without_logprobs`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use tokio::time::timeout;

use crate::baseline::Engine;
use crate::clock::{Clock, Stopwatch};
use crate::detect::canary::first_word;
use crate::golden;
use crate::judge::{Ask, End, Head, Judge, Limit, Verdict, check};
use crate::prompt::{Prompt, PromptKind, Sampling};
use crate::sample::{Sample, Timing};
use crate::upstream::{Answer, Call, Failure, FailureKind, Upstream};
use crate::verdict::{FaultClass, Source};

/// Alternatives a position asked for by canaries; what most engines give at most.
pub const CANARY_TOP_K: u32 = 20;
/// Alternatives a position asked for by burst prompts; enough for entropy, less to send.
pub const BURST_TOP_K: u32 = 5;
/// A target that asks for more patience is asked again after this all the same, milliseconds.
const MAX_RETRY_AFTER_MS: u64 = 60_000;
/// A golden answer longer than this is not read for the name of who gave it.
const MAX_NAMED_BYTES: usize = 1 << 18;
/// A model list longer than this is not read.
const MAX_MODELS_BYTES: usize = 1 << 20;

/// Asks golden prompts of one target.
#[derive(Clone, Debug)]
pub struct Asker {
    upstream: Arc<Upstream>,
    model: Arc<str>,
    refuses_logprobs: Arc<AtomicBool>,
    clock: Clock,
}

/// An answer and what it turned out to be. The texts are in the verdict; the sample is for the detectors.
#[derive(Clone, Debug)]
pub struct Answered {
    /// For the detectors.
    pub sample: Sample,
    /// Everything the judge found.
    pub verdict: Verdict,
    /// `Retry-After`, milliseconds.
    pub retry_after_ms: Option<u64>,
    /// Who answered, as far as it tells.
    pub engine: Engine,
    /// Why no answer came, if none did.
    pub failure: Option<Failure>,
}

impl Answered {
    /// Whether an answer of the model came, good or bad.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        self.sample.status.is_some_and(|s| (200..300).contains(&s))
            && !matches!(
                self.sample.class,
                Some(FaultClass::Upstream | FaultClass::Slow | FaultClass::Backpressure | FaultClass::Client)
            )
    }
}

impl Asker {
    /// Asks `upstream` under the model name of its configuration, or the first it lists itself.
    pub async fn new(upstream: Arc<Upstream>, clock: Clock) -> Self {
        let model = match upstream.model() {
            Some(model) => Arc::clone(model),
            None => listed_model(&upstream).await.unwrap_or_else(|| Arc::from("")),
        };
        Self { upstream, model, refuses_logprobs: Arc::default(), clock }
    }

    /// Name of the target.
    #[must_use]
    pub fn target(&self) -> &Arc<str> {
        self.upstream.name()
    }

    /// The model name that is sent; empty if none is known.
    #[must_use]
    pub fn model(&self) -> &Arc<str> {
        &self.model
    }

    /// Whether the target has refused to be asked for logprobs.
    #[must_use]
    pub fn without_logprobs(&self) -> bool {
        self.refuses_logprobs.load(Ordering::Relaxed)
    }

    /// Asks once; once more without logprobs if they were what was refused.
    pub async fn ask(
        &self,
        prompt: &Prompt,
        sampling: Sampling,
        source: Source,
        generation: u64,
    ) -> Answered {
        let k = (!self.without_logprobs()).then_some(match prompt.kind {
            PromptKind::Canary => CANARY_TOP_K,
            PromptKind::Burst => BURST_TOP_K,
        });
        let first = self.call(prompt, k, sampling, source, generation).await;
        let refused = k.is_some()
            && first.sample.status.is_some_and(|s| matches!(s, 400 | 404 | 422 | 500 | 501))
            && !first.is_answer();
        if !refused {
            return first;
        }
        let second = self.call(prompt, None, sampling, source, generation).await;
        if second.is_answer() {
            self.refuses_logprobs.store(true, Ordering::Relaxed);
            self.upstream.injection().withdraw();
            tracing::info!(target_name = %self.upstream.name(), "target refuses to be asked for logprobs");
            return second;
        }
        first
    }

    async fn call(
        &self,
        prompt: &Prompt,
        k: Option<u32>,
        sampling: Sampling,
        source: Source,
        generation: u64,
    ) -> Answered {
        let (path, body) = golden::request(prompt, &self.model, k, false, sampling);
        let ask = Arc::new(Ask::parse(prompt.wire, &body));
        let watch = Stopwatch::start();
        let limits = self.upstream.limits();
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let call = Call {
            method: Method::POST,
            path: &path,
            headers,
            body: Bytes::from(body),
            wire: Some(prompt.wire),
            patient: false,
        };
        // A whole answer is asked for, so its headers may come as late as its end.
        let answer = self.upstream.send(call, Some(limits.total())).await;
        match answer {
            Ok(answer) => self.read(prompt, ask, answer, watch, source, generation).await,
            Err(failure) => self.failed(prompt, &ask, failure, watch, source, generation),
        }
    }

    async fn read(
        &self,
        prompt: &Prompt,
        ask: Arc<Ask>,
        mut answer: Answer,
        watch: Stopwatch,
        source: Source,
        generation: u64,
    ) -> Answered {
        let text = |name: header::HeaderName| {
            answer.headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned)
        };
        let server = text(header::SERVER).unwrap_or_default();
        let retry_after_ms = crate::judge::retry_after(
            text(header::RETRY_AFTER).as_deref(),
            text(header::HeaderName::from_static("retry-after-ms")).as_deref(),
            self.clock.now(),
            MAX_RETRY_AFTER_MS,
        );
        let head = Head {
            status: answer.status.as_u16(),
            content_type: text(header::CONTENT_TYPE),
            content_encoding: text(header::CONTENT_ENCODING),
            content_length: answer.body.exact_len(),
            inference_header_length: text(header::HeaderName::from_static("inference-header-content-length")),
        };
        let headers_ms = watch.elapsed_ms();
        let status = head.status;
        let mut judge = Judge::new(Arc::clone(&ask), head);
        let left = self.upstream.limits().total().saturating_sub(Duration::from_millis(headers_ms));
        let mut body = Vec::new();
        let end = timeout(left, async {
            loop {
                match answer.body.next().await {
                    Ok(Some(bytes)) => {
                        if body.len() + bytes.len() <= MAX_NAMED_BYTES {
                            body.extend_from_slice(&bytes);
                        }
                        let _ = judge.push(watch.elapsed_ms(), &bytes);
                    }
                    Ok(None) => return End::Complete,
                    Err(_) => return End::Broken,
                }
            }
        })
        .await
        .unwrap_or(End::TimedOut(Limit::Total));
        let total_ms = watch.elapsed_ms();
        let verdict = judge.finish(total_ms, end);
        let timing = Timing {
            total_ms,
            headers_ms: Some(headers_ms),
            ttft_ms: verdict.ttft_ms,
            tokens_per_second: verdict.tokens_per_second,
        };
        let sample = self.sample(prompt, &ask, &verdict, Some(status), timing, source, generation);
        let retry_after_ms = retry_after_ms.or(verdict.retry_after_ms);
        let model = verdict.model.clone().unwrap_or_default();
        let engine = Engine { server, model, system: system_fingerprint(&body) };
        Answered { sample, verdict, retry_after_ms, engine, failure: None }
    }

    fn failed(
        &self,
        prompt: &Prompt,
        ask: &Ask,
        failure: Failure,
        watch: Stopwatch,
        source: Source,
        generation: u64,
    ) -> Answered {
        let mut verdict = Verdict { class: Some(failure.class()), ..Verdict::default() };
        if failure.kind == FailureKind::HeadersTimeout {
            verdict.flags.insert(crate::verdict::Flag::Stall);
        }
        let timing = Timing { total_ms: watch.elapsed_ms(), ..Timing::default() };
        let sample = self.sample(prompt, ask, &verdict, None, timing, source, generation);
        Answered { sample, verdict, retry_after_ms: None, engine: Engine::default(), failure: Some(failure) }
    }

    #[allow(clippy::too_many_arguments)] // one call, flat, is clearer than a struct for it alone
    fn sample(
        &self,
        prompt: &Prompt,
        ask: &Ask,
        verdict: &Verdict,
        status: Option<u16>,
        timing: Timing,
        source: Source,
        generation: u64,
    ) -> Sample {
        let answered = status.is_some_and(|s| (200..300).contains(&s));
        Sample {
            at: self.clock.now(),
            request_id: Arc::from(""),
            route: Arc::from(""),
            target: Arc::clone(self.upstream.name()),
            source,
            wire: prompt.wire,
            status,
            class: verdict.class,
            flags: verdict.flags,
            signals: verdict.signals.clone(),
            usage: verdict.usage,
            timing,
            request_hash: ask.request_hash,
            prompt_id: Some(Arc::clone(&prompt.id)),
            check: prompt.check.as_ref().filter(|_| answered).map(|c| check::check(c, prompt, verdict)),
            first_position: verdict.first_position.clone().or_else(|| first_word(&verdict.text)),
            prompt_text: None,
            answer_text: None,
            partial: verdict.partial,
            light: false,
            generation,
        }
    }
}

/// `system_fingerprint` of an answer; empty where there is none.
fn system_fingerprint(body: &[u8]) -> String {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Named {
        system_fingerprint: Option<serde_json::Value>,
    }
    let named: Named = serde_json::from_slice(body).unwrap_or_default();
    named.system_fingerprint.and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
}

/// The first model that the upstream lists at `/v1/models`, if it does.
async fn listed_model(upstream: &Upstream) -> Option<Arc<str>> {
    let call = Call {
        method: Method::GET,
        path: "/v1/models",
        headers: HeaderMap::new(),
        body: Bytes::new(),
        wire: None,
        patient: false,
    };
    let wait = upstream.limits().connect() + Duration::from_secs(5);
    let mut answer = upstream.send(call, Some(wait)).await.ok()?;
    if !answer.status.is_success() {
        return None;
    }
    let mut body = Vec::new();
    while let Ok(Some(bytes)) = timeout(wait, answer.body.next()).await.ok()? {
        body.extend_from_slice(&bytes);
        if body.len() > MAX_MODELS_BYTES {
            return None;
        }
    }
    let list: serde_json::Value = serde_json::from_slice(&body).ok()?;
    let id = list.pointer("/data/0/id").or_else(|| list.pointer("/models/0/name"))?;
    id.as_str().map(Arc::from)
}

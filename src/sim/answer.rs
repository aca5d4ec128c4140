//! One answer on its way to the client: pace, streaming, and the faults that strike in the middle.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream;

use super::decode::{Chunk, End, Sampling, Writer};
use super::fault::{Condition, Transport};
use super::render::{Choice, Frame};
use super::request::{Request, Wire};
use super::serve::{State, json_response, trained};
use super::voice::Voice;
use crate::clock::Clock;

/// A request that is to be answered with status 200.
pub(super) struct Job {
    state: Arc<State>,
    voice: Voice,
    writers: VecDeque<(usize, Writer<'static>)>,
    stream: bool,
    include_usage: bool,
    transport: Transport,
    prompt_tokens: usize,
    finished: bool,
}

impl Job {
    pub(super) fn new(
        state: Arc<State>,
        request: Request,
        condition: Condition,
        transport: Transport,
        prompt_tokens: usize,
        number: u64,
        seed: u64,
    ) -> Self {
        let prefix = match request.wire {
            Wire::Chat => "chatcmpl",
            Wire::Completions => "cmpl",
            Wire::Responses => "resp",
            Wire::Messages => "msg",
            Wire::OllamaChat | Wire::OllamaGenerate => "ollama",
        };
        let frame = Frame {
            wire: request.wire,
            id: format!("{prefix}-sim{number}"),
            created: Clock::system().now().as_millis() / 1000,
            model: state.params.model.clone(),
            tool: request.tool.clone(),
            logprobs: request.alternatives.is_some() && !transport.logprobs_drop,
        };
        let room = state.params.context_tokens.saturating_sub(prompt_tokens).max(1);
        let writer = |(at, ask): (usize, &super::model::Ask)| {
            let sampling = Sampling {
                temperature: request.temperature,
                top_p: request.top_p,
                seed: seed.wrapping_add(at as u64),
                max_tokens: request.max_tokens.min(room),
                stop: request.stop.clone(),
                alternatives: request.alternatives,
                guided: request.guided && !condition.schema_break,
            };
            (at, Writer::new(trained(), ask, state.params.size, condition, state.params.seed, sampling))
        };
        let writers: VecDeque<_> = request.asks.iter().enumerate().map(writer).collect();
        state.counters.in_flight.fetch_add(1, Ordering::Relaxed);
        if request.stream {
            state.counters.streams.fetch_add(1, Ordering::Relaxed);
        }
        Self {
            state,
            voice: Voice::new(frame, writers.len()),
            writers,
            stream: request.stream,
            include_usage: request.include_usage,
            transport,
            prompt_tokens,
            finished: false,
        }
    }

    /// Waits as long as generating `tokens` takes at the configured pace, or just lets others run.
    async fn pace(&self, tokens: usize) {
        let rate = self.state.params.tokens_per_second;
        if rate > 0.0 {
            #[allow(clippy::cast_precision_loss)]
            tokio::time::sleep(Duration::from_secs_f64(tokens as f64 / rate)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }

    fn count_tokens(&self, tokens: usize) {
        self.state.counters.tokens.fetch_add(tokens as u64, Ordering::Relaxed);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.state.counters.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !self.finished {
            self.state.counters.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The response to a job; its body is generated while it is sent.
pub(super) async fn respond(job: Job) -> Response {
    tokio::time::sleep(Duration::from_millis(job.state.params.ttft_ms)).await;
    if job.stream { streamed(job) } else { whole(job).await }
}

async fn whole(mut job: Job) -> Response {
    let mut choices = Vec::new();
    let mut made = 0;
    while let Some((_, mut writer)) = job.writers.pop_front() {
        let mut all = Chunk::default();
        while let Some(chunk) = writer.next_chunk() {
            job.count_tokens(chunk.steps.len());
            job.pace(chunk.steps.len()).await;
            all.text.push_str(&chunk.text);
            all.steps.extend(chunk.steps);
        }
        made += writer.tokens();
        choices.push(Choice { chunk: all, end: writer.end() });
    }
    let body = job.voice.whole(&trained().vocab, &choices, job.prompt_tokens, made);
    if job.transport.cut.is_none() && job.transport.stall.is_none() {
        job.finished = true;
        return json_response(StatusCode::OK, &body);
    }
    let mut half = body.to_string().into_bytes();
    half.truncate(half.len() / 2);
    let half = Bytes::from(half);
    let mut response = Response::new(broken(job, half));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Half a body, then the break or the silence that the fault asks for.
fn broken(job: Job, half: Bytes) -> Body {
    Body::from_stream(stream::unfold((job, Some(half)), |(mut job, half)| async move {
        match half {
            Some(half) => Some((Ok(half), (job, None))),
            None if job.transport.cut.is_some() => {
                job.finished = true;
                // The half must have left before the connection breaks.
                tokio::time::sleep(CUT_DELAY).await;
                Some((Err(cut()), (job, None)))
            }
            None => std::future::pending().await,
        }
    }))
}

/// Lets what was written reach the client before the break.
const CUT_DELAY: Duration = Duration::from_millis(20);

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "simulated cut")
}

/// Where a stream stands.
struct Stream {
    job: Job,
    ready: VecDeque<Bytes>,
    opened: bool,
    sent: usize,
    made: usize,
}

fn streamed(job: Job) -> Response {
    let kind = job.voice.stream_type();
    let start = Stream { job, ready: VecDeque::new(), opened: false, sent: 0, made: 0 };
    let body = Body::from_stream(stream::unfold(start, |mut stream| async move {
        let item = stream.next().await?;
        Some((item, stream))
    }));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

impl Stream {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if let Some(bytes) = self.ready.pop_front() {
            return Some(Ok(bytes));
        }
        if !self.opened {
            self.opened = true;
            for index in 0..self.job.writers.len() {
                let opening = self.job.voice.opening(index, self.job.prompt_tokens);
                self.ready.extend(opening);
            }
            if let Some(bytes) = self.ready.pop_front() {
                return Some(Ok(bytes));
            }
        }
        if self.job.finished {
            return None;
        }
        let reached = |after: Option<usize>| after.is_some_and(|after| self.sent >= after);
        if reached(self.job.transport.cut) || reached(self.job.transport.stall) {
            return self.break_off().await;
        }
        let Some((index, mut writer)) = self.job.writers.pop_front() else {
            let last = self.job.voice.last(self.job.prompt_tokens, self.made, self.job.include_usage);
            self.ready.extend(last);
            self.job.finished = true;
            return self.ready.pop_front().map(Ok);
        };
        match writer.next_chunk() {
            Some(chunk) => {
                self.job.pace(chunk.steps.len()).await;
                self.say(index, &chunk);
                self.job.writers.push_back((index, writer));
            }
            // An answer shorter than the fault waits for breaks just before its end.
            None if self.job.transport.cut.is_some() || self.job.transport.stall.is_some() => {
                self.sent = usize::MAX;
                return self.break_off().await;
            }
            None => self.close(index, writer.tokens(), writer.end()),
        }
        match self.ready.pop_front() {
            Some(bytes) => Some(Ok(bytes)),
            // A wire that says a call in one line has nothing to send before it.
            None => Box::pin(self.next()).await,
        }
    }

    /// The end that was not asked for.
    async fn break_off(&mut self) -> Option<io::Result<Bytes>> {
        if self.job.transport.cut.is_none() {
            return std::future::pending().await;
        }
        self.job.finished = true;
        tokio::time::sleep(CUT_DELAY).await;
        Some(Err(cut()))
    }

    fn say(&mut self, index: usize, chunk: &Chunk) {
        let events = self.job.voice.piece(&trained().vocab, index, chunk);
        self.sent += chunk.steps.len();
        self.job.count_tokens(chunk.steps.len());
        self.ready.extend(events);
    }

    fn close(&mut self, index: usize, tokens: usize, end: End) {
        self.made += tokens;
        let events = self.job.voice.closing(index, end, self.made);
        self.ready.extend(events);
    }
}

//! One recorded exchange: a line of the file, and what it turns out to be.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::detect::canary::first_word;
use crate::golden::GoldenSet;
use crate::judge::{Ask, End, Head, Judge, check};
use crate::prompt::{Prompt, PromptKind};
use crate::sample::{Outcome, Sample, Timing};
use crate::verdict::{Source, Wire};

/// A request of so few tokens at temperature 0 is a canary where no golden set says so.
const CANARY_TOKENS: u64 = 16;
/// Name of a target, or a route, that the file does not name.
const UNNAMED: &str = "recorded";

/// One line: `{at_ms, target?, route?, wire?, request, status, response|chunks, latency_ms, label?}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    at_ms: u64,
    #[serde(default)]
    target: Option<Arc<str>>,
    #[serde(default)]
    route: Option<Arc<str>>,
    #[serde(default)]
    wire: Option<Wire>,
    request: Value,
    status: u16,
    #[serde(default)]
    response: Option<Box<RawValue>>,
    #[serde(default)]
    chunks: Option<Vec<Value>>,
    #[serde(default)]
    latency_ms: f64,
    #[serde(default)]
    label: Option<Value>,
}

/// A line, judged.
#[derive(Clone, Debug)]
pub struct Judged {
    /// For the detectors.
    pub sample: Sample,
    /// For the breaker.
    pub outcome: Outcome,
    /// What the label says: whether the target was bad at the time.
    pub bad: Option<bool>,
}

impl Judged {
    /// The same exchange at another time.
    #[must_use]
    pub fn at(mut self, at: Timestamp) -> Self {
        (self.sample.at, self.outcome.at) = (at, at);
        self
    }
}

/// Golden prompts by what they ask.
#[derive(Clone, Debug, Default)]
pub struct Index(HashMap<String, Arc<Prompt>>);

impl Index {
    /// Of a golden set.
    #[must_use]
    pub fn of(set: &GoldenSet) -> Self {
        Self(set.prompts().iter().filter_map(|p| Some((asked(p)?, Arc::clone(p)))).collect())
    }

    /// Knows these prompts, too.
    pub fn add<'a>(&mut self, prompts: impl IntoIterator<Item = &'a Arc<Prompt>>) {
        self.0.extend(prompts.into_iter().filter_map(|p| Some((asked(p)?, Arc::clone(p)))));
    }

    fn find(&self, request: &Value) -> Option<&Arc<Prompt>> {
        let of = |key: &str| request.get(key).filter(|v| !v.is_null());
        let asked = of("messages").or_else(|| of("prompt")).or_else(|| of("input"))?;
        self.0.get(&asked.to_string())
    }
}

fn asked(prompt: &Prompt) -> Option<String> {
    let text = prompt.prompt.as_ref().map(|p| Value::String(p.clone()));
    prompt.messages.clone().or(text).or_else(|| prompt.input.clone()).map(|v| v.to_string())
}

/// Reads and judges one line.
///
/// # Errors
/// What is wrong with it, naming the field.
pub fn judge(line: &str, golden: &Index) -> Result<Judged, String> {
    let line: Line = serde_json::from_str(line).map_err(|e| e.to_string())?;
    if !line.request.is_object() {
        return Err("request: must be an object".to_owned());
    }
    if line.response.is_some() == line.chunks.is_some() {
        return Err("response, chunks: write one of them".to_owned());
    }
    if !line.latency_ms.is_finite() || line.latency_ms < 0.0 {
        return Err("latency_ms: must be a number of at least 0".to_owned());
    }
    let bad = line.label.as_ref().map(is_bad).transpose()?;
    let wire = line.wire.unwrap_or_else(|| wire_of(&line.request));
    let ask = Arc::new(Ask::parse(wire, line.request.to_string().as_bytes()));
    let total_ms = line.latency_ms.round() as u64;
    let pieces = pieces(&line, total_ms)?;
    let streaming = line.chunks.is_some();
    let head = Head {
        status: line.status,
        content_type: Some(if streaming { "text/event-stream" } else { "application/json" }.to_owned()),
        content_encoding: None,
        content_length: None,
        inference_header_length: None,
    };
    let mut judge = Judge::new(Arc::clone(&ask), head);
    for (at_ms, bytes) in &pieces {
        let _ = judge.push(*at_ms, bytes);
    }
    let verdict = judge.finish(total_ms, End::Complete);
    let prompt = golden.find(&line.request);
    let tokens = ask.max_tokens.unwrap_or(u64::MAX);
    let cold = line.request.get("temperature").and_then(Value::as_f64).is_some_and(|t| t <= 0.0);
    let canary = match prompt {
        Some(prompt) => prompt.kind == PromptKind::Canary,
        None => tokens <= 1 || (cold && tokens <= CANARY_TOKENS),
    };
    let source = match prompt.map(|p| p.kind) {
        Some(PromptKind::Burst) => Source::Burst,
        _ if canary => Source::Canary,
        _ => Source::Live,
    };
    let id = || Arc::from(format!("{:016x}", ask.request_hash));
    let prompt_id = prompt.map(|p| Arc::clone(&p.id)).or_else(|| canary.then(id));
    let timing = Timing {
        total_ms,
        headers_ms: None,
        ttft_ms: verdict.ttft_ms.filter(|_| streaming),
        tokens_per_second: verdict.tokens_per_second.filter(|_| streaming),
    };
    let at = Timestamp::from_millis(line.at_ms);
    let target = line.target.clone().unwrap_or_else(|| Arc::from(UNNAMED));
    let route = if source == Source::Live { line.route.clone() } else { Some(Arc::from("")) };
    let route = route.unwrap_or_else(|| Arc::from(UNNAMED));
    let answered = (200..300).contains(&line.status);
    let first = verdict.first_position.clone();
    let sample = Sample {
        at,
        request_id: Arc::from(""),
        route: Arc::clone(&route),
        target: Arc::clone(&target),
        source,
        wire,
        status: Some(line.status),
        class: verdict.class,
        flags: verdict.flags,
        signals: verdict.signals.clone(),
        usage: verdict.usage,
        timing,
        request_hash: ask.request_hash,
        prompt_id,
        check: prompt.and_then(|p| Some(check::check(p.check.as_ref()?, p, &verdict))).filter(|_| answered),
        first_position: first.or_else(|| first_word(&verdict.text)).filter(|_| canary),
        prompt_text: Some(Arc::clone(&ask.prompt_text)),
        answer_text: Some(Arc::clone(&verdict.text)),
        partial: verdict.partial,
        light: false,
        generation: 0,
    };
    let outcome = Outcome {
        at,
        route,
        target,
        generation: 0,
        source,
        class: verdict.class,
        flags: verdict.flags,
        request_hash: ask.request_hash,
        status: Some(line.status),
        timing,
        streaming,
        light: false,
        retry_after_ms: verdict.retry_after_ms,
        usage: verdict.usage,
        cost_usd: None,
        keyed: false,
    };
    Ok(Judged { sample, outcome, bad })
}

/// The answer's bytes and when each piece came.
fn pieces(line: &Line, total_ms: u64) -> Result<Vec<(u64, Vec<u8>)>, String> {
    if let Some(response) = &line.response {
        // A string is a body that is no JSON, as it came.
        let body = match serde_json::from_str::<Value>(response.get()) {
            Ok(Value::String(text)) => text.into_bytes(),
            _ => response.get().as_bytes().to_vec(),
        };
        return Ok(vec![(total_ms, body)]);
    }
    let chunks = line.chunks.as_deref().unwrap_or_default();
    let many = chunks.len().max(1) as u64;
    let one = |(i, chunk): (usize, &Value)| match chunk {
        Value::String(text) => Ok((total_ms * (i as u64 + 1) / many, text.clone().into_bytes())),
        Value::Array(pair) => match pair.as_slice() {
            [Value::Number(at), Value::String(text)] => {
                Ok((at.as_f64().unwrap_or(0.0).max(0.0) as u64, text.clone().into_bytes()))
            }
            _ => Err(format!("chunks[{i}]: write a text, or [milliseconds, text]")),
        },
        _ => Err(format!("chunks[{i}]: write a text, or [milliseconds, text]")),
    };
    chunks.iter().enumerate().map(one).collect()
}

fn is_bad(label: &Value) -> Result<bool, String> {
    match label {
        Value::Bool(bad) => Ok(*bad),
        Value::String(word) => Ok(!matches!(
            word.to_ascii_lowercase().as_str(),
            "healthy" | "ok" | "good" | "normal" | "none" | ""
        )),
        Value::Number(n) => Ok(n.as_f64().is_some_and(|n| n != 0.0)),
        _ => Err("label: write \"healthy\", the name of a fault, or true for bad".to_owned()),
    }
}

fn wire_of(request: &Value) -> Wire {
    let has = |key: &str| request.get(key).is_some();
    match () {
        () if has("messages") => Wire::Chat,
        () if has("documents") => Wire::Rerank,
        () if has("prompt") => Wire::Completions,
        () if has("inputs") => Wire::KserveInfer,
        () if has("instances") => Wire::TfPredict,
        () if has("input") && (has("max_output_tokens") || has("instructions")) => Wire::Responses,
        () if has("input") => Wire::Embeddings,
        () => Wire::Chat,
    }
}

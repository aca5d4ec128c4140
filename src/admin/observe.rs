//! The same judgement for calls that do not pass through the proxy: `POST /v1/observe`.
//!
//! An application that talks to its model by a way of its own (gRPC, a library) reports what came back, as
//! far as it knows, and is told the flags, the signals and whether the next call is admitted.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use super::{Surface, api};
use crate::monitor::Observed;
use crate::sample::{Outcome, Sample, Signals, Timing, Usage};
use crate::stats::entropy;
use crate::text;
use crate::verdict::{FaultClass, Flag, FlagSet, Source, Wire};

/// A logprob at or below this is a sentinel, not a probability.
const SENTINEL: f64 = -9_000.0;

/// What a caller reports of one call.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Report {
    target: String,
    #[serde(default)]
    route: Option<String>,
    /// A classifier's distribution.
    #[serde(default)]
    probabilities: Option<Vec<f64>>,
    /// A classifier's raw scores.
    #[serde(default)]
    logits: Option<Vec<f64>>,
    /// Logprobs of the sampled tokens, nats.
    #[serde(default)]
    logprobs: Option<Vec<Option<f64>>>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    embedding: Option<Vec<Option<f64>>>,
    #[serde(default)]
    latency_ms: Option<u64>,
    #[serde(default)]
    error: Option<String>,
}

pub(super) async fn observe(
    State(surface): State<Surface>,
    report: Result<Json<Report>, axum::extract::rejection::JsonRejection>,
) -> Response {
    let report = match report {
        Ok(Json(report)) => report,
        Err(rejection) => return api::error(StatusCode::BAD_REQUEST, rejection.body_text()),
    };
    let Some(card) = surface.board.target(&report.target) else {
        return api::error(StatusCode::NOT_FOUND, format!("target: there is no target `{}`", report.target));
    };
    let said = [
        report.probabilities.is_some(),
        report.logits.is_some(),
        report.logprobs.is_some(),
        report.text.is_some(),
        report.embedding.is_some(),
        report.error.is_some(),
        report.latency_ms.is_some(),
    ];
    if !said.contains(&true) {
        let all = "probabilities, logits, logprobs, text, embedding, latency_ms or error is needed";
        return api::error(StatusCode::BAD_REQUEST, all);
    }
    let (flags, signals) = match judge(&report) {
        Ok(judged) => judged,
        Err(why) => return api::error(StatusCode::BAD_REQUEST, why),
    };
    let class = report.error.as_ref().map(|_| FaultClass::Upstream).or_else(|| {
        [FaultClass::QualityHard, FaultClass::QualitySoft].into_iter().find(|c| flags.first_of(*c).is_some())
    });
    let timing = Timing { total_ms: report.latency_ms.unwrap_or(0), ..Timing::default() };
    let at = surface.clock.now();
    let route: Arc<str> = report.route.as_deref().unwrap_or("").into();
    let request_hash = hash(&report, at.as_millis());
    let status = report.error.is_none().then_some(200);
    surface.monitor.outcome(Outcome {
        at,
        route: Arc::clone(&route),
        target: Arc::clone(&card.name),
        generation: card.admission.generation,
        source: Source::Observe,
        class,
        flags,
        request_hash,
        status,
        timing,
        streaming: false,
        light: false,
        retry_after_ms: None,
        usage: Usage::default(),
        cost_usd: None,
        keyed: false,
    });
    surface.monitor.observe(Observed::Sample(Box::new(Sample {
        at,
        request_id: "".into(),
        route,
        target: Arc::clone(&card.name),
        source: Source::Observe,
        wire: if report.embedding.is_some() { Wire::Embeddings } else { Wire::Chat },
        status,
        class,
        flags,
        signals: signals.clone(),
        usage: Usage::default(),
        timing,
        request_hash,
        prompt_id: None,
        check: None,
        first_position: None,
        prompt_text: None,
        answer_text: report.text.map(Into::into),
        partial: false,
        light: false,
        generation: card.admission.generation,
    })));
    let admit = api::admission(&surface, &card.name).map(|a| a["admit"].clone());
    Json(json!({ "flags": flags, "signals": signals, "admit": admit })).into_response()
}

fn judge(report: &Report) -> Result<(FlagSet, Signals), String> {
    let mut flags = FlagSet::EMPTY;
    let mut signals = Signals::default();
    if let Some(probabilities) = &report.probabilities {
        let sum: f64 = probabilities.iter().sum();
        if (sum - 1.0).abs() > 0.01 {
            return Err(format!("probabilities: they add up to {sum:.3}, not 1; raw scores go into logits"));
        }
        classify(probabilities, "probabilities", &mut signals)?;
    } else if let Some(logits) = &report.logits {
        let probabilities = entropy::softmax(logits).ok_or("logits: empty, or not all are finite")?;
        classify(&probabilities, "logits", &mut signals)?;
    }
    if let Some(logprobs) = &report.logprobs {
        let usable: Vec<f64> = logprobs
            .iter()
            .flatten()
            .copied()
            .filter(|l| (SENTINEL..=entropy::MAX_LOGPROB).contains(l))
            .collect();
        if usable.len() < logprobs.len() {
            flags.insert(Flag::LogprobsInvalid);
        }
        signals.coverage = (!logprobs.is_empty()).then(|| usable.len() as f64 / logprobs.len() as f64);
        signals.logprob_mean = crate::stats::quantile::mean(&usable);
        signals.tokens = Some(logprobs.len() as u64);
    }
    if let Some(text) = &report.text {
        let mut watch = text::Watch::new(&text::Context::default());
        watch.push(text);
        let seen = watch.finish(text::Finish { finish_reason_is_length: false });
        flags = flags.union(seen.flags);
        if text.trim().is_empty() {
            flags.insert(Flag::EmptyOutput);
        }
        signals.repetition = seen.repetition;
        signals.compression = seen.compression;
        signals.foreign_share = seen.foreign_share;
        signals.text_bytes = seen.bytes;
    }
    if let Some(embedding) = &report.embedding {
        let known: Vec<f64> = embedding.iter().flatten().copied().filter(|x| x.is_finite()).collect();
        let norm = known.iter().map(|x| x * x).sum::<f64>().sqrt();
        if embedding.is_empty() {
            flags.insert(Flag::EmbeddingEmpty);
        } else if known.len() < embedding.len() {
            flags.insert(Flag::EmbeddingNonfinite);
        } else if norm <= f64::EPSILON {
            flags.insert(Flag::EmbeddingZero);
        }
        signals.dim = u32::try_from(embedding.len()).ok();
        signals.norm = norm.is_finite().then_some(norm);
        signals.items = Some(1);
    }
    Ok((flags, signals))
}

fn classify(probabilities: &[f64], field: &str, signals: &mut Signals) -> Result<(), String> {
    let seen = entropy::categorical(probabilities)
        .ok_or_else(|| format!("{field}: empty, negative or not finite"))?;
    signals.class_entropy = Some(seen.entropy);
    signals.confidence = Some(seen.confidence);
    signals.margin = Some(seen.margin);
    Ok(())
}

/// The request is not known here, so that two reports are two requests.
fn hash(report: &Report, at_ms: u64) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (at_ms, report.latency_ms, report.text.as_deref(), report.error.as_deref()).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(report: &str) -> Result<(FlagSet, Signals), String> {
        judge(&serde_json::from_str(report).expect("a report"))
    }

    #[test]
    fn a_classifiers_answer_gives_entropy_confidence_and_margin() {
        let (flags, signals) = judged(r#"{"target":"t","probabilities":[0.5,0.5]}"#).expect("judged");
        assert!(flags.is_empty());
        assert!((signals.class_entropy.expect("known") - 2.0_f64.ln()).abs() < 1e-12);
        assert!(signals.margin.expect("known").abs() < 1e-12);
        let (_, signals) = judged(r#"{"target":"t","logits":[0.0,0.0,0.0]}"#).expect("judged");
        assert!((signals.confidence.expect("known") - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn faults_of_a_report_are_named_by_their_field() {
        assert!(
            judged(r#"{"target":"t","probabilities":[3.0,4.0]}"#)
                .expect_err("no distribution")
                .starts_with("prob")
        );
        assert!(judged(r#"{"target":"t","logits":[]}"#).expect_err("empty").starts_with("logits"));
    }

    #[test]
    fn embeddings_and_logprobs_are_checked_number_by_number() {
        let flags = |r| judged(r).expect("judged").0;
        assert!(flags(r#"{"target":"t","embedding":[]}"#).contains(Flag::EmbeddingEmpty));
        assert!(flags(r#"{"target":"t","embedding":[0,0]}"#).contains(Flag::EmbeddingZero));
        assert!(flags(r#"{"target":"t","embedding":[1,null]}"#).contains(Flag::EmbeddingNonfinite));
        let (seen, signals) = judged(r#"{"target":"t","logprobs":[-0.5,-9999,null,-1.5]}"#).expect("judged");
        assert!(seen.contains(Flag::LogprobsInvalid));
        assert_eq!((signals.coverage, signals.logprob_mean), (Some(0.5), Some(-1.0)));
        assert!(flags(r#"{"target":"t","text":"  "}"#).contains(Flag::EmptyOutput));
    }
}

//! The classifier's two protocols: `/v2/models/{m}/infer` with JSON or raw tensors, and
//! `/v1/models/{m}:predict`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, State as Shared};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream;
use serde_json::{Value, json};

use super::classifier::{FEATURES, LABELS, answer, best};
use super::fault::{Condition, Transport};
use super::listen::Reset;
use super::serve::{State, Struck, json_response, strike};

/// Where a document with raw tensors behind it ends.
const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");
/// Inputs of one request.
const MAX_BATCH: usize = 1024;
/// Lets what was written reach the client before a break.
const CUT_DELAY: Duration = Duration::from_millis(20);

/// One answer: a document, and raw tensors behind it.
struct Made {
    document: String,
    tail: Vec<u8>,
}

/// `POST /v2/models/{m}/infer`.
pub(super) async fn infer(
    Shared(state): Shared<Arc<State>>,
    Extension(reset): Extension<Reset>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let length = headers.get(&JSON_LENGTH).map(|v| v.to_str().unwrap_or_default().trim().to_owned());
    serve(state, reset, |condition, state| kserve(&body, length.as_deref(), condition, state)).await
}

/// `POST /v1/models/{m}:predict`.
pub(super) async fn predict(
    Shared(state): Shared<Arc<State>>,
    Extension(reset): Extension<Reset>,
    Path(call): Path<String>,
    body: Bytes,
) -> Response {
    if !call.ends_with(":predict") {
        return refused(StatusCode::NOT_FOUND, "the simulated classifier has the verb :predict alone");
    }
    serve(state, reset, |condition, state| tensorflow(&body, condition, state)).await
}

/// `GET /v1/models/{m}`.
pub(super) async fn model_status() -> Response {
    let version = json!({ "version": "1", "state": "AVAILABLE", "status": { "error_code": "OK", "error_message": "" } });
    json_response(StatusCode::OK, &json!({ "model_version_status": [version] }))
}

/// `GET /v2/models/{m}`.
pub(super) async fn metadata(Path(model): Path<String>) -> Response {
    let tensor = |name: &str, datatype: &str, shape: Value| json!({ "name": name, "datatype": datatype, "shape": shape });
    json_response(
        StatusCode::OK,
        &json!({
            "name": model, "versions": ["1"], "platform": "touchstone-sim",
            "inputs": [tensor("features", "FP32", json!([-1, FEATURES]))],
            "outputs": [
                tensor("probabilities", "FP32", json!([-1, LABELS.len()])),
                tensor("label", "BYTES", json!([-1])),
            ],
        }),
    )
}

async fn serve(
    state: Arc<State>,
    reset: Reset,
    make: impl FnOnce(Condition, &State) -> Result<Made, String>,
) -> Response {
    let Struck { condition, transport, .. } = strike(&state, &reset).await;
    let failed = |response: Response| {
        state.counters.errors.fetch_add(1, Ordering::Relaxed);
        response
    };
    if let Some(status) = transport.status {
        let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = refused(code, code.canonical_reason().unwrap_or("simulated fault"));
        if let Some(seconds) = transport.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        return failed(response);
    }
    match make(condition, &state) {
        Err(message) => failed(refused(StatusCode::BAD_REQUEST, &message)),
        Ok(made) => {
            state.counters.ok.fetch_add(1, Ordering::Relaxed);
            send(made, transport)
        }
    }
}

/// Both protocols say it so.
fn refused(status: StatusCode, message: &str) -> Response {
    json_response(status, &json!({ "error": message }))
}

fn send(made: Made, transport: Transport) -> Response {
    let Made { document, tail } = made;
    let length = document.len();
    let mut body = document.into_bytes();
    body.extend_from_slice(&tail);
    let mut response = if transport.cut.is_none() && transport.stall.is_none() {
        Response::new(Body::from(body))
    } else {
        body.truncate(body.len() / 2);
        Response::new(half(body.into(), transport.cut.is_some()))
    };
    let kind = if tail.is_empty() { "application/json" } else { "application/octet-stream" };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if !tail.is_empty() {
        response.headers_mut().insert(JSON_LENGTH, HeaderValue::from(length));
    }
    response
}

/// Half a body, then a break or silence.
fn half(body: Bytes, breaks: bool) -> Body {
    Body::from_stream(stream::unfold(Some(body), move |left| async move {
        match left {
            Some(body) => Some((Ok(body), None)),
            None if breaks => {
                tokio::time::sleep(CUT_DELAY).await;
                Some((Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted)), None))
            }
            None => std::future::pending().await,
        }
    }))
}

fn rows(numbers: &[f32]) -> Result<Vec<&[f32]>, String> {
    let whole = !numbers.is_empty() && numbers.len().is_multiple_of(FEATURES);
    if !whole || numbers.len() / FEATURES > MAX_BATCH {
        return Err(format!(
            "the input must have the shape [n,{FEATURES}] with n from 1 to {MAX_BATCH}, it has {} numbers",
            numbers.len()
        ));
    }
    Ok(numbers.chunks_exact(FEATURES).collect())
}

fn flatten(value: &Value, out: &mut Vec<f32>) -> Result<(), String> {
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| flatten(item, out)),
        #[allow(clippy::cast_possible_truncation)] // the model computes in 32 bits
        Value::Number(number) => {
            out.push(number.as_f64().unwrap_or(f64::NAN) as f32);
            Ok(())
        }
        other => Err(format!("the input must be numbers, not {other}")),
    }
}

fn spoil(document: String, condition: Condition) -> String {
    if condition.schema_break { document[..document.len() - 1].to_owned() } else { document }
}

/// A list of numbers as C++ servers write it: what is no number has its bare name.
fn list(numbers: &[f32]) -> String {
    let all: Vec<_> =
        numbers.iter().map(|n| if n.is_nan() { "NaN".to_owned() } else { n.to_string() }).collect();
    format!("[{}]", all.join(","))
}

fn tensorflow(body: &[u8], condition: Condition, state: &State) -> Result<Made, String> {
    let request: Value = serde_json::from_slice(body).map_err(|e| format!("JSON Parse error: {e}"))?;
    let (input, by_row) = match (request.get("instances"), request.get("inputs")) {
        (Some(rows), _) => (rows, true),
        (None, Some(columns)) => (columns, false),
        _ => return Err("Missing 'inputs' or 'instances' key".to_owned()),
    };
    let mut numbers = Vec::new();
    flatten(input, &mut numbers)?;
    let scored: Vec<_> =
        rows(&numbers)?.into_iter().map(|row| list(&answer(row, condition, state.params.seed))).collect();
    let scored = if condition.empty { Vec::new() } else { scored };
    let name = if by_row { "predictions" } else { "outputs" };
    let document =
        if condition.empty { "{}".to_owned() } else { format!("{{\"{name}\":[{}]}}", scored.join(",")) };
    Ok(Made { document: spoil(document, condition), tail: Vec::new() })
}

/// An output asked for.
struct Wanted {
    name: String,
    raw: bool,
    classes: Option<usize>,
}

fn kserve(body: &[u8], length: Option<&str>, condition: Condition, state: &State) -> Result<Made, String> {
    let at = match length {
        None => body.len(),
        Some(text) => text.parse().ok().filter(|n| *n <= body.len()).ok_or_else(|| {
            format!("Inference-Header-Content-Length {text:?} is no length within {} bytes", body.len())
        })?,
    };
    let (document, tail) = body.split_at(at);
    let request: Value = serde_json::from_slice(document)
        .map_err(|e| format!("failed to parse the request JSON buffer: {e}"))?;
    let input = request.pointer("/inputs/0").ok_or("the request has no input")?;
    let numbers = read_input(input, tail)?;
    let scored: Vec<_> =
        rows(&numbers)?.into_iter().map(|row| answer(row, condition, state.params.seed)).collect();
    let mut tail = Vec::new();
    let mut outputs = Vec::new();
    if !condition.empty {
        for wanted in wanted(&request)? {
            outputs.push(output(&wanted, &scored, &mut tail));
        }
    }
    let id = request.get("id").map_or(String::new(), |id| format!("\"id\":{id},"));
    let model = Value::from(state.params.model.as_str());
    let document =
        format!("{{{id}\"model_name\":{model},\"model_version\":\"1\",\"outputs\":[{}]}}", outputs.join(","));
    Ok(Made { document: spoil(document, condition), tail })
}

fn read_input(input: &Value, tail: &[u8]) -> Result<Vec<f32>, String> {
    let mut numbers = Vec::new();
    let size = input.pointer("/parameters/binary_data_size").and_then(Value::as_u64);
    let Some(size) = size else {
        flatten(input.get("data").ok_or("the input has no data")?, &mut numbers)?;
        return Ok(numbers);
    };
    let raw = usize::try_from(size).ok().and_then(|size| tail.get(..size));
    let raw = raw.ok_or_else(|| format!("the input says {size} bytes, {} came", tail.len()))?;
    match input.get("datatype").and_then(Value::as_str) {
        Some("FP32") => {
            numbers.extend(raw.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
            Ok(numbers)
        }
        other => Err(format!("raw inputs must be FP32, not {}", other.unwrap_or("nothing"))),
    }
}

fn wanted(request: &Value) -> Result<Vec<Wanted>, String> {
    let flag = |value: Option<&Value>| value.and_then(Value::as_bool);
    let all_raw = flag(request.pointer("/parameters/binary_data_output")).unwrap_or(false);
    let Some(named) = request.get("outputs").and_then(Value::as_array).filter(|o| !o.is_empty()) else {
        let each = |name: &str| Wanted { name: name.to_owned(), raw: all_raw, classes: None };
        return Ok(vec![each("probabilities"), each("label")]);
    };
    named
        .iter()
        .map(|output| {
            let name = output.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            if !["probabilities", "label"].contains(&name.as_str()) {
                return Err(format!("unexpected inference output {name:?}"));
            }
            let classes = output.pointer("/parameters/classification").and_then(Value::as_u64);
            let classes = classes.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
            let raw = flag(output.pointer("/parameters/binary_data")).unwrap_or(all_raw);
            Ok(Wanted { name, raw, classes: classes.map(|n| n.min(LABELS.len())) })
        })
        .collect()
}

/// One output's entry; raw elements go to the tail.
fn output(wanted: &Wanted, scored: &[Vec<f32>], tail: &mut Vec<u8>) -> String {
    let texts: Option<(usize, Vec<String>)> = match (wanted.classes, wanted.name.as_str()) {
        (Some(k), _) => Some((k, scored.iter().flat_map(|row| classified(row, k)).collect())),
        (None, "label") => Some((0, scored.iter().map(|row| LABELS[best(row)].to_owned()).collect())),
        _ => None,
    };
    let before = tail.len();
    let (datatype, shape, data) = match texts {
        Some((k, texts)) => {
            let shape = if k > 0 { json!([scored.len(), k]) } else { json!([scored.len()]) };
            if wanted.raw {
                for text in &texts {
                    #[allow(clippy::cast_possible_truncation)] // a label
                    tail.extend_from_slice(&(text.len() as u32).to_le_bytes());
                    tail.extend_from_slice(text.as_bytes());
                }
            }
            ("BYTES", shape, json!(texts).to_string())
        }
        None => {
            let flat = scored.concat();
            if wanted.raw {
                flat.iter().for_each(|v| tail.extend_from_slice(&v.to_le_bytes()));
            }
            ("FP32", json!([scored.len(), LABELS.len()]), list(&flat))
        }
    };
    let value = if wanted.raw {
        format!("\"parameters\":{{\"binary_data_size\":{}}}", tail.len() - before)
    } else {
        format!("\"data\":{data}")
    };
    format!("{{\"name\":\"{}\",\"datatype\":\"{datatype}\",\"shape\":{shape},{value}}}", wanted.name)
}

/// The best classes of a row as `score:index:label`.
fn classified(row: &[f32], k: usize) -> Vec<String> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
    order.truncate(k);
    order.into_iter().map(|i| format!("{:.6}:{i}:{}", row[i], LABELS[i])).collect()
}

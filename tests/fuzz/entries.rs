//! What must hold of each reader whatever bytes it is given: it ends, and it says the same however they are cut.
//! Shared by the fuzz targets and the normal tests; a law that does not hold panics.
#![allow(dead_code)] // each target uses one

use std::sync::Arc;

use touchstone::config::Config;
use touchstone::golden::GoldenSet;
use touchstone::judge::{Ask, End, Head, Judge};
use touchstone::verdict::Wire;
use touchstone::wire::ndjson::Ndjson;
use touchstone::wire::sse::{Event, Sse};
use touchstone::wire::{Doc, Value};

/// Server-sent events, under a small and a large limit.
pub(crate) fn sse(data: &[u8]) {
    let read = |limit: usize, pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut events = Vec::new();
        let mut emit = |event: Event<'_>| {
            events.push(match event {
                Event::Data { name, data } => (0, name.to_vec(), data.to_vec()),
                Event::Comment => (1, Vec::new(), Vec::new()),
                Event::Bare(line) => (2, Vec::new(), line.to_vec()),
                Event::TooLong => (3, Vec::new(), Vec::new()),
            });
        };
        let mut sse = Sse::new(limit);
        pieces.for_each(|piece| sse.push(piece, &mut emit));
        sse.finish(&mut emit);
        events
    };
    let (size, data) = cuts(data);
    for limit in [24, 1 << 20] {
        let whole = read(limit, &mut std::iter::once(data));
        assert_eq!(read(limit, &mut data.chunks(size)), whole, "cut into pieces of {size}");
        assert!(whole.iter().all(|(_, _, said)| said.len() <= limit.max(data.len().min(limit))));
    }
}

/// JSON lines.
pub(crate) fn ndjson(data: &[u8]) {
    let read = |limit: usize, pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut lines = Vec::new();
        let mut emit = |line: Option<&[u8]>| lines.push(line.map(<[u8]>::to_vec));
        let mut reader = Ndjson::new(limit);
        pieces.for_each(|piece| reader.push(piece, &mut emit));
        reader.finish(&mut emit);
        lines
    };
    let (size, data) = cuts(data);
    for limit in [24, 1 << 20] {
        let whole = read(limit, &mut std::iter::once(data));
        assert_eq!(read(limit, &mut data.chunks(size)), whole, "cut into pieces of {size}");
        assert!(whole.iter().flatten().all(|line| line.len() <= limit));
    }
}

/// The lenient JSON reader: whatever a strict one takes, it takes and calls standard.
pub(crate) fn json(data: &[u8]) {
    let mut doc = Doc::default();
    let (root, odd) = doc.parse(data);
    if let Some(root) = root {
        walk(root, 0);
    }
    if let Ok(strict) = serde_json::from_slice::<serde_json::Value>(data) {
        assert!(odd.is_standard() && !odd.cut && !odd.invalid_utf8, "{odd:?}");
        let root = root.expect("a strict reader found a value");
        let agrees = match strict {
            serde_json::Value::Null => root.is_null(),
            serde_json::Value::Bool(b) => root.boolean() == Some(b),
            serde_json::Value::Number(_) => root.number().is_some(),
            serde_json::Value::String(s) => root.string().as_deref() == Some(&*s),
            serde_json::Value::Array(_) => root.is_array(),
            serde_json::Value::Object(map) => {
                root.is_object() && map.keys().all(|name| root.get(name).is_some())
            }
        };
        assert!(agrees, "{}", String::from_utf8_lossy(data));
    }
}

/// Asks a value everything.
fn walk(value: Value<'_>, depth: usize) {
    let _ = (value.boolean(), value.count(), value.is_null(), value.after());
    if let (Some(exact), Some(rough)) = (value.number(), value.rough_number()) {
        assert!(
            exact.is_nan() && rough.is_nan()
                || (exact - rough).abs() <= exact.abs() * 1e-15
                || exact.to_bits() == rough.to_bits()
        );
    }
    assert!(value.is_string() == value.string().is_some());
    if depth < 64 {
        value.members().for_each(|(name, member)| {
            assert!(name.is_string());
            walk(member, depth + 1);
        });
        value.items().for_each(|item| walk(item, depth + 1));
    }
    assert!(value.numbers().take(1_000).count() <= value.span().len());
}

/// A KServe answer with raw tensors: two bytes say where its document is said to end.
pub(crate) fn tensors(data: &[u8]) {
    let Some((declared, body)) = data.split_first_chunk::<2>() else { return };
    let declared = u16::from_le_bytes(*declared);
    let head = Head {
        status: 200,
        content_type: Some("application/octet-stream".into()),
        inference_header_length: (declared != u16::MAX).then(|| declared.to_string()),
        ..Head::default()
    };
    judged(Wire::KserveInfer, b"{}", &head, body, 1 + usize::from(declared) % 61);
}

/// A request of any wire, and an answer to it.
pub(crate) fn ask(data: &[u8]) {
    const WIRES: [Wire; 11] = [
        Wire::Chat,
        Wire::Completions,
        Wire::Responses,
        Wire::Messages,
        Wire::OllamaChat,
        Wire::OllamaGenerate,
        Wire::OllamaEmbed,
        Wire::Embeddings,
        Wire::Rerank,
        Wire::KserveInfer,
        Wire::TfPredict,
    ];
    let Some((which, request)) = data.split_first() else { return };
    let wire = WIRES[usize::from(*which) % WIRES.len()];
    let again = Ask::parse(wire, request);
    assert_eq!(Ask::parse(wire, request).request_hash, again.request_hash);
    assert!(again.choices >= 1 && again.input_tokens_estimate >= 1);
    let head = Head { status: 200, content_type: Some("application/json".into()), ..Head::default() };
    let answer = br#"{"choices":[{"index":0,"message":{"content":"{\"a\":1}"},"text":"x","finish_reason":"stop"}],"done":true}"#;
    judged(wire, request, &head, answer, 7);
}

fn judged(wire: Wire, request: &[u8], head: &Head, body: &[u8], size: usize) {
    let ask = Arc::new(Ask::parse(wire, request));
    let judge = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut judge = Judge::new(Arc::clone(&ask), head.clone());
        pieces.for_each(|piece| {
            let _ = judge.push(3, piece);
        });
        format!("{:?}", judge.finish(7, End::Complete))
    };
    let whole = judge(&mut std::iter::once(body));
    assert_eq!(judge(&mut body.chunks(size)), whole, "cut into pieces of {size}");
}

/// A golden set's prompts: a fault is told with its line.
pub(crate) fn golden(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match GoldenSet::parse("fuzz", &text) {
        Ok(set) => {
            assert!(!set.prompts().is_empty() && set.prompts().iter().all(|p| set.find(&p.id).is_some()))
        }
        Err(fault) => assert!(fault.to_string().contains("fuzz"), "{fault}"),
    }
}

/// A configuration: what is refused is told, and what is taken has a target and a route.
pub(crate) fn config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Config::from_toml(&text) {
        Ok(config) => assert!(!config.targets.is_empty() && !config.routes.is_empty()),
        Err(refused) => {
            assert!(!refused.faults.is_empty());
            assert!(refused.faults.iter().all(|fault| !fault.to_string().is_empty()));
        }
    }
}

/// The first byte says how large the pieces are.
fn cuts(data: &[u8]) -> (usize, &[u8]) {
    data.split_first().map_or((1, data), |(size, rest)| (1 + usize::from(*size) % 17, rest))
}

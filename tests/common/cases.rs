//! The cases of odd or sound bytes: their files, what their upstream does, what their caller should see.

use std::path::PathBuf;

use base64::Engine as _;
use serde_json::Value;

use super::upstream::{Act, Seen};

/// All case files, in order of their names.
pub(crate) fn all() -> Vec<Value> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("fixtures")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    assert_eq!(files.len(), 48, "a case file more or less");
    files.iter().map(|f| serde_json::from_slice(&std::fs::read(f).expect("a file")).expect("json")).collect()
}

/// Headers of the request that the caller sends.
pub(crate) fn headers(case: &Value) -> Vec<(String, String)> {
    let headers = case["request"]["headers"].as_object();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    headers.into_iter().flatten().map(|(n, v)| (n.clone(), text(v))).collect()
}

/// Body of the request that the caller sends.
pub(crate) fn request_body(case: &Value) -> Vec<u8> {
    let body = &case["request"]["body"];
    if body.is_null() { Vec::new() } else { body.to_string().into_bytes() }
}

/// What the caller receives of an answer, and whether it ends in order.
pub(crate) fn received(answer: &Value) -> (Vec<u8>, bool) {
    let cut = answer["behaviour"]["close_midstream"]["after_chunk"].as_u64();
    let declared = answer["behaviour"]["content_length"].as_u64();
    let all = pieces(answer);
    let mut bytes = all[..cut.map_or(all.len(), |n| n as usize)].concat();
    let short = declared.is_some_and(|n| n as usize > bytes.len());
    bytes.truncate(declared.map_or(bytes.len(), |n| n as usize));
    (bytes, cut.is_none() && !short)
}

/// A header of an answer.
pub(crate) fn header(answer: &Value, name: &str) -> Option<String> {
    let pairs: Vec<(String, String)> = match &answer["headers"] {
        Value::Object(map) => {
            map.iter().map(|(n, v)| (n.clone(), v.as_str().unwrap_or_default().to_owned())).collect()
        }
        Value::Array(list) => {
            let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            list.iter().map(|p| (text(&p[0]), text(&p[1]))).collect()
        }
        _ => Vec::new(),
    };
    pairs.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v)
}

pub(crate) fn bytes(piece: &Value) -> Vec<u8> {
    if let Some(text) = piece.as_str() {
        return text.as_bytes().to_vec();
    }
    if let Some(text) = piece["base64"].as_str() {
        return base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
    }
    let times = piece["repeat"].as_u64().unwrap_or(1) as usize;
    piece["text"].as_str().unwrap_or_default().repeat(times).into_bytes()
}

/// The answer that a case gives to its n-th request.
pub(crate) fn answer(upstream: &Value, seen: &Seen, n: usize) -> Value {
    if let Some(list) = upstream["sequence"].as_array() {
        return list[n.min(list.len() - 1)].clone();
    }
    if let Some(routes) = upstream["routes"].as_object() {
        let path = seen.line.split(' ').nth(1).unwrap_or_default();
        return routes.get(path).or_else(|| routes.get("*")).cloned().unwrap_or_default();
    }
    if let Some(rules) = upstream["rules"].as_array() {
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        let body = squeezed(&seen.text());
        let holds = |rule: &&Value| {
            rule["if_body_contains"].as_str().is_none_or(|w| body.contains(&squeezed(w)))
                && rule["if_body_lacks"].as_str().is_none_or(|w| !body.contains(&squeezed(w)))
        };
        return rules.iter().find(holds).cloned().unwrap_or_default();
    }
    upstream.clone()
}

pub(crate) fn pieces(answer: &Value) -> Vec<Vec<u8>> {
    match answer["chunks"].as_array() {
        Some(chunks) => chunks.iter().map(bytes).collect(),
        None => vec![bytes(&answer["body"])],
    }
}

pub(crate) fn acts(answer: &Value, longest: u64) -> Vec<Act> {
    let how = &answer["behaviour"];
    let framing =
        how["framing"].as_str().unwrap_or(if answer["chunks"].is_null() { "length" } else { "chunked" });
    let all = pieces(answer);
    let mut head = format!("HTTP/1.1 {} X\r\n", answer["status"].as_u64().unwrap_or(200));
    let mut header = |name: &str, value: &str| {
        let value = if value.contains("{{") { "Fri, 31 Dec 2100 23:59:59 GMT" } else { value };
        head.push_str(&format!("{name}: {value}\r\n"));
    };
    match &answer["headers"] {
        Value::Object(map) => map.iter().for_each(|(n, v)| header(n, v.as_str().unwrap_or_default())),
        Value::Array(list) => {
            list.iter()
                .for_each(|p| header(p[0].as_str().unwrap_or_default(), p[1].as_str().unwrap_or_default()));
        }
        _ => {}
    }
    let length: usize = all.iter().map(Vec::len).sum();
    match framing {
        "length" => {
            let length = how["content_length"].as_u64().unwrap_or(length as u64);
            head.push_str(&format!("content-length: {length}\r\n"));
        }
        "chunked" => head.push_str("transfer-encoding: chunked\r\n"),
        _ => head.push_str("connection: close\r\n"),
    }
    let wait = |ms: &Value| Act::Wait(ms.as_u64().unwrap_or(0).min(longest));
    let mut acts = vec![wait(&how["headers_delay_ms"]), Act::Send(format!("{head}\r\n").into_bytes())];
    let cut = how["close_midstream"]["after_chunk"].as_u64();
    let step = how["split_bytes"].as_u64().unwrap_or(0) as usize;
    for (i, piece) in all.iter().enumerate() {
        if cut == Some(i as u64) {
            break;
        }
        if how["stall_after"]["chunk"].as_u64() == Some(i as u64) {
            acts.push(wait(&how["stall_after"]["ms"]));
        }
        if i > 0 {
            acts.push(wait(&how["delay_ms"]));
        }
        acts.push(wait(&answer["chunks"][i]["delay_ms"]));
        for part in piece.chunks(if step == 0 { piece.len().max(1) } else { step }) {
            acts.push(Act::Send(match framing {
                "chunked" => [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat(),
                _ => part.to_vec(),
            }));
        }
    }
    acts.retain(|act| !matches!(act, Act::Wait(0)));
    match (cut, framing) {
        (Some(_), _) => acts.extend([Act::Wait(20), Act::Close]),
        (None, "chunked") => acts.push(Act::Send(b"0\r\n\r\n".to_vec())),
        (None, _) => acts.push(Act::Close),
    }
    acts
}

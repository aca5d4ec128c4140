//! Every case of odd or sound bytes passes through the proxy unchanged in shadow mode, however its upstream
//! frames, splits, delays or cuts it.

mod common;

use base64::Engine as _;
use common::upstream::{Act, Seen, Upstream};
use common::{Served, http, tiers};
use serde_json::Value;

/// No delay of a case is kept longer than this, milliseconds.
const LONGEST: u64 = 60;

fn bytes(piece: &Value) -> Vec<u8> {
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
fn answer(upstream: &Value, seen: &Seen, n: usize) -> Value {
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

fn pieces(answer: &Value) -> Vec<Vec<u8>> {
    match answer["chunks"].as_array() {
        Some(chunks) => chunks.iter().map(bytes).collect(),
        None => vec![bytes(&answer["body"])],
    }
}

fn acts(answer: &Value) -> Vec<Act> {
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
    let mut acts = vec![Act::Send(format!("{head}\r\n").into_bytes())];
    let cut = how["close_midstream"]["after_chunk"].as_u64();
    let step = how["split_bytes"].as_u64().unwrap_or(0) as usize;
    for (i, piece) in all.iter().enumerate() {
        if cut == Some(i as u64) {
            break;
        }
        if how["stall_after"]["chunk"].as_u64() == Some(i as u64) {
            acts.push(Act::Wait(how["stall_after"]["ms"].as_u64().unwrap_or(0).min(LONGEST)));
        }
        for part in piece.chunks(if step == 0 { piece.len().max(1) } else { step }) {
            acts.push(Act::Send(match framing {
                "chunked" => [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat(),
                _ => part.to_vec(),
            }));
        }
    }
    match (cut, framing) {
        (Some(_), _) => acts.extend([Act::Wait(20), Act::Close]),
        (None, "chunked") => acts.push(Act::Send(b"0\r\n\r\n".to_vec())),
        (None, _) => acts.push(Act::Close),
    }
    acts
}

#[test]
fn every_case_passes_unchanged_in_shadow_mode() {
    let folder = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("fixtures")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    assert!(files.len() >= 40, "{} cases", files.len());
    for file in files {
        let case: Value = serde_json::from_slice(&std::fs::read(&file).expect("a file")).expect("json");
        let id = case["id"].as_str().expect("an id").to_owned();
        let request = &case["request"];
        let method = request["method"].as_str().unwrap_or("POST");
        let told = case["upstream"].clone();
        let upstream = Upstream::start(move |seen, n| acts(&answer(&told, seen, n)));
        let text = tiers("shadow", &[&upstream], "[proxy]\npassthrough=[\"*\"]")
            .replace("model = \"model-0\"\n", "");
        let served = Served::start(&text);
        let headers: Vec<(String, String)> = request["headers"]
            .as_object()
            .map(|m| m.iter().map(|(n, v)| (n.clone(), v.as_str().unwrap_or_default().to_owned())).collect())
            .unwrap_or_default();
        let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let body =
            if request["body"].is_null() { Vec::new() } else { request["body"].to_string().into_bytes() };
        let path = request["path"].as_str().expect("a path");
        let got =
            http::request(served.port, method, path, &headers, &body).unwrap_or_else(|f| panic!("{id}: {f}"));
        let seen = upstream.seen();
        let expected = answer(&case["upstream"], &seen[0], 0);
        let cut = expected["behaviour"]["close_midstream"]["after_chunk"].as_u64();
        let all = pieces(&expected);
        let kept = cut.map_or(all.len(), |n| n as usize);
        let declared = expected["behaviour"]["content_length"].as_u64();
        let mut bytes = all[..kept].concat();
        bytes.truncate(declared.map_or(bytes.len(), |n| n as usize));
        assert_eq!(got.status as u64, expected["status"].as_u64().unwrap_or(200), "{id}");
        assert!(got.body == bytes, "{id}: {} bytes came of {}", got.body.len(), bytes.len());
        let short = declared.is_some_and(|n| n as usize > all.concat().len());
        assert_eq!(got.whole, cut.is_none() && !short, "{id}: ends as it ended");
        assert_eq!(seen.len(), 1, "{id}: nothing is repeated");
        assert_eq!(seen[0].body, body, "{id}: the request too");
    }
}

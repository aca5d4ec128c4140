use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::judge::{Ask, End, Head, Judge, Verdict};
use crate::verdict::{Flag, Wire};

async fn start(spec: &str) -> SimHandle {
    let params = Params { faults: spec.parse().unwrap(), ..Params::default() };
    Sim::start("127.0.0.1:0".parse().unwrap(), params).await.unwrap()
}

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().unwrap()
}

fn question(text: &str) -> Value {
    json!({ "model": "any", "temperature": 0, "max_tokens": 40, "messages": [{ "role": "user", "content": text }] })
}

async fn post(sim: &SimHandle, path: &str, body: &Value) -> reqwest::Result<reqwest::Response> {
    client().post(format!("{}{path}", sim.url())).body(body.to_string()).send().await
}

async fn chat(sim: &SimHandle, body: &Value) -> Value {
    let answer = post(sim, "/v1/chat/completions", body).await.unwrap();
    assert_eq!(answer.status(), 200);
    serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
}

async fn said(sim: &SimHandle, text: &str) -> String {
    let answer = chat(sim, &question(text)).await;
    answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// Events of a stream, `[DONE]` as null.
async fn events(sim: &SimHandle, path: &str, body: &Value) -> Vec<Value> {
    let text = post(sim, path, body).await.unwrap().text().await.unwrap();
    let data = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap_or(Value::Null)).collect()
}

#[tokio::test]
async fn a_chat_answer_has_text_usage_and_logprobs_that_agree() {
    let sim = start("none").await;
    let mut body = question("How do bees make honey?");
    body["logprobs"] = json!(true);
    body["top_logprobs"] = json!(5);
    let answer = chat(&sim, &body).await;
    let choice = &answer["choices"][0];
    let text = choice["message"]["content"].as_str().unwrap();
    let content = choice["logprobs"]["content"].as_array().unwrap();
    let joined: String = content.iter().map(|entry| entry["token"].as_str().unwrap()).collect();
    assert_eq!(joined, text);
    assert_eq!(answer["usage"]["completion_tokens"], content.len());
    assert_eq!(choice["finish_reason"], "length");
    for entry in content {
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 5);
        assert_eq!(top[0]["token"], entry["token"], "greedy takes the likeliest");
        let mass: f64 = top.iter().map(|alternative| alternative["logprob"].as_f64().unwrap().exp()).sum();
        assert!(mass > 0.0 && mass < 1.0 + 1e-6, "{mass}");
    }
}

#[tokio::test]
async fn a_stream_says_the_same_as_the_whole_answer() {
    let sim = start("none").await;
    let mut body = question("What is a library?");
    let whole = said(&sim, "What is a library?").await;
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    let events = events(&sim, "/v1/chat/completions", &body).await;
    let text: String =
        events.iter().filter_map(|event| event.pointer("/choices/0/delta/content")?.as_str()).collect();
    assert_eq!(text, whole);
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(events.last(), Some(&Value::Null));
    assert!(events[events.len() - 2]["usage"]["total_tokens"].as_u64().unwrap() > 0);
    assert_eq!(events[events.len() - 3]["choices"][0]["finish_reason"], "length");
    assert_eq!(sim.stats().streams, 1);
}

#[tokio::test]
async fn legacy_completions_use_the_array_layout_and_stop_strings_cut() {
    let sim = start("none").await;
    let body = json!({ "prompt": ["The capital of Peru is", "The capital of Chile is"], "temperature": 0,
        "logprobs": 3, "max_tokens": 8, "stop": ["."] });
    let answer = post(&sim, "/v1/completions", &body).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    assert_eq!(answer["choices"][0]["text"], " Lima");
    assert_eq!(answer["choices"][1]["text"], " Santiago");
    let logprobs = &answer["choices"][0]["logprobs"];
    let count = logprobs["tokens"].as_array().unwrap().len();
    for key in ["token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(logprobs[key].as_array().unwrap().len(), count, "{key}");
    }
    assert_eq!(logprobs["top_logprobs"][0].as_object().unwrap().len(), 3);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn shapes_are_kept_and_tools_called() {
    let sim = start("none").await;
    let mut body = question("Extract name and age: Mara is 31 years old.");
    body["response_format"] = json!({ "type": "json_schema", "json_schema": { "name": "p", "schema": {
        "type": "object", "properties": { "name": { "type": "string" }, "age": { "type": "integer" } } } } });
    body["temperature"] = json!(1.0);
    let answer = chat(&sim, &body).await;
    let person: Value =
        serde_json::from_str(answer["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
    assert!(person["name"].is_string() && person["age"].is_u64(), "{person}");

    let mut body = question("What is the weather in Oslo?");
    body["tools"] = json!([{ "type": "function", "function": { "name": "weather", "description": "Weather of a city",
        "parameters": { "type": "object", "properties": { "city": { "type": "string" } } } } }]);
    let answer = chat(&sim, &body).await;
    let call = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "weather");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments["city"], "Oslo");
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    body["stream"] = json!(true);
    let events = events(&sim, "/v1/chat/completions", &body).await;
    let streamed: String = events
        .iter()
        .filter_map(|event| event.pointer("/choices/0/delta/tool_calls/0/function/arguments")?.as_str())
        .collect();
    assert_eq!(streamed, call["arguments"].as_str().unwrap());
}

#[tokio::test]
async fn bad_requests_get_the_wires_own_error() {
    let sim = start("none").await;
    let answer = post(&sim, "/v1/chat/completions", &json!({ "messages": [] })).await.unwrap();
    assert_eq!(answer.status(), 400);
    let error: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    assert_eq!(error["error"]["param"], "messages");
    assert_eq!(post(&sim, "/v1/unknown", &json!({})).await.unwrap().status(), 404);
    let long = question(&"word ".repeat(20_000));
    let answer = post(&sim, "/v1/chat/completions", &long).await.unwrap();
    assert_eq!(answer.status(), 400);
    assert!(answer.text().await.unwrap().contains("context_length_exceeded"));
}

#[tokio::test]
async fn quality_faults_change_the_answer_at_status_200() {
    let sim = start("none").await;
    let prompt = "How do bees make honey?";
    let healthy = said(&sim, prompt).await;
    let with = async |spec: &str| {
        sim.set_fault(spec).unwrap();
        said(&sim, prompt).await
    };
    assert_eq!(with("empty").await, "");
    let looped = with("loop").await;
    let words: Vec<&str> = looped.split_whitespace().collect();
    assert_eq!(words[words.len() - 5..], words[words.len() - 10..words.len() - 5], "{looped}");
    let foreign = with("wrong_language").await;
    assert!(foreign.chars().filter(|c| c.is_alphabetic()).all(|c| !c.is_ascii()), "{foreign}");
    let gibberish = with("gibberish").await;
    assert!(gibberish.split_whitespace().count() < 6, "{gibberish}");
    let shuffled = with("shuffle").await;
    assert_ne!(shuffled, healthy);
    assert!(
        shuffled.contains("honey") || shuffled.contains("flowers") || shuffled.contains("hive"),
        "{shuffled}"
    );
    assert_ne!(with("model_swap").await, healthy);
    assert_ne!(with("damage=0.1").await, healthy);
    assert_eq!(with("none").await, healthy);

    sim.set_fault("logprobs_drop").unwrap();
    let mut body = question(prompt);
    body["logprobs"] = json!(true);
    assert!(chat(&sim, &body).await["choices"][0]["logprobs"].is_null());
    sim.set_fault("schema_break").unwrap();
    let mut body = question("Extract name and age: Mara is 31 years old.");
    body["response_format"] = json!({ "type": "json_object" });
    let broken = chat(&sim, &body).await;
    let text = broken["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
}

#[tokio::test]
async fn transport_faults_strike_below_the_answer() {
    let sim = start("status=503").await;
    let body = question("What is the sun?");
    let path = "/v1/chat/completions";
    assert_eq!(post(&sim, path, &body).await.unwrap().status(), 503);
    sim.set_fault("storm429=3").unwrap();
    let limited = post(&sim, path, &body).await.unwrap();
    assert_eq!((limited.status().as_u16(), limited.headers()["retry-after"].to_str().unwrap()), (429, "3"));
    sim.set_fault("reset").unwrap();
    assert!(post(&sim, path, &body).await.is_err());
    sim.set_fault("refuse").unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(post(&sim, path, &body).await.unwrap_err().is_connect());
    sim.set_fault("none").unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(post(&sim, path, &body).await.unwrap().status(), 200);

    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    for body in [&body, &streamed] {
        sim.set_fault("cut=3").unwrap();
        let cut = post(&sim, path, body).await.unwrap();
        assert_eq!(cut.status(), 200);
        assert!(cut.text().await.is_err(), "the body must break");
        sim.set_fault("stall=3").unwrap();
        let stalled = post(&sim, path, body).await.unwrap();
        let read = tokio::time::timeout(Duration::from_millis(300), stalled.text()).await;
        assert!(read.is_err(), "the body must not end");
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(sim.stats().cancelled, 2);
    assert_eq!(sim.stats().in_flight, 0);
}

#[tokio::test]
async fn faults_are_switched_over_http_and_bad_ones_refused() {
    let sim = start("none").await;
    let url = format!("{}/__sim/fault", sim.url());
    let send = async |spec: &'static str| client().post(&url).body(spec).send().await.unwrap();
    assert_eq!(send("damage=0.1,latency=1ms").await.status(), 200);
    assert_eq!(sim.faults().to_string(), "damage=0.1,latency=1ms");
    let refused = send("damage=7").await;
    assert_eq!(refused.status(), 400);
    assert!(refused.text().await.unwrap().contains("between 0 and 1"));
    assert_eq!(send("refuse").await.status(), 400);
    assert_eq!(sim.faults().to_string(), "damage=0.1,latency=1ms");
    assert_eq!(send("refuse=300ms").await.status(), 200);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(send("none").await.status(), 200, "it listens again by itself");
    let stats =
        client().get(format!("{}/__sim/stats", sim.url())).send().await.unwrap().text().await.unwrap();
    assert!(stats.contains("\"requests\":0"), "{stats}");
    sim.shutdown().await;
    assert!(client().get(&url).send().await.is_err());
}

#[tokio::test]
async fn the_pace_is_kept() {
    let params = Params { tokens_per_second: 100.0, ttft_ms: 50, ..Params::default() };
    let sim = Sim::start("127.0.0.1:0".parse().unwrap(), params).await.unwrap();
    let watch = crate::clock::Clock::system();
    let before = watch.now();
    said(&sim, "How do bees make honey?").await;
    let took = watch.now().ms_since(before);
    assert!((400..2_000).contains(&took), "40 tokens at 100 a second took {took} ms");
}

/// What the daemon's own judge reads in the answer to `body` on that wire.
async fn judged(sim: &SimHandle, wire: Wire, path: &str, body: &Value) -> Verdict {
    let answer = post(sim, path, body).await.unwrap();
    let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
    let head = Head { status: answer.status().as_u16(), content_type: Some(kind), ..Head::default() };
    let ask = Ask::parse(wire, body.to_string().as_bytes());
    let mut judge = Judge::new(std::sync::Arc::new(ask), head);
    let _ = judge.push(1, &answer.bytes().await.unwrap());
    judge.finish(2, End::Complete)
}

/// The same question on each text wire, and the path it is asked on.
fn question_on(wire: Wire, text: &str, stream: bool) -> (&'static str, Value) {
    let turns = json!([{ "role": "user", "content": text }]);
    let ollama = json!({ "num_predict": 40, "temperature": 0 });
    match wire {
        Wire::Responses => (
            "/v1/responses",
            json!({ "model": "m", "input": text, "max_output_tokens": 40, "temperature": 0, "stream": stream,
                "include": ["message.output_text.logprobs"], "top_logprobs": 3 }),
        ),
        Wire::Messages => (
            "/v1/messages",
            json!({ "model": "m", "messages": turns, "max_tokens": 40, "temperature": 0, "stream": stream }),
        ),
        Wire::OllamaChat => (
            "/api/chat",
            json!({ "model": "m", "messages": turns, "options": ollama, "stream": stream, "logprobs": true, "top_logprobs": 3 }),
        ),
        Wire::OllamaGenerate => (
            "/api/generate",
            json!({ "model": "m", "prompt": text, "options": ollama, "stream": stream, "logprobs": true, "top_logprobs": 3 }),
        ),
        _ => (
            "/v1/chat/completions",
            json!({ "model": "m", "messages": turns, "max_tokens": 40, "temperature": 0, "stream": stream,
                "stream_options": { "include_usage": true }, "logprobs": true, "top_logprobs": 3 }),
        ),
    }
}

const TEXT_WIRES: [Wire; 5] =
    [Wire::Chat, Wire::Responses, Wire::Messages, Wire::OllamaChat, Wire::OllamaGenerate];

#[tokio::test]
async fn every_wire_says_the_same_and_is_sound() {
    let sim = start("none").await;
    let wanted = said(&sim, "What is a library?").await;
    for wire in TEXT_WIRES {
        for stream in [false, true] {
            let (path, body) = question_on(wire, "What is a library?", stream);
            let verdict = judged(&sim, wire, path, &body).await;
            assert_eq!(verdict.flags.to_string(), "truncated", "{wire} {stream}");
            assert_eq!(*verdict.text, *wanted, "{wire} {stream}");
            assert_eq!(verdict.usage.output, Some(40), "{wire} {stream}");
            assert_eq!(verdict.streamed, stream, "{wire}");
            let positions = if wire == Wire::Messages { 0 } else { 40 };
            assert_eq!(verdict.logprob_positions, positions, "{wire} {stream}");
        }
    }
}

#[tokio::test]
async fn every_wire_calls_tools_and_breaks_off_as_told() {
    let sim = start("none").await;
    let schema =
        json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    for wire in [Wire::Chat, Wire::Responses, Wire::Messages, Wire::OllamaChat] {
        for stream in [false, true] {
            let (path, mut body) = question_on(wire, "What is the weather in Paris?", stream);
            let function =
                json!({ "name": "get_weather", "description": "weather of a city", "parameters": schema });
            body["tools"] = match wire {
                Wire::Responses => {
                    json!([{ "type": "function", "name": "get_weather", "description": "weather of a city", "parameters": schema }])
                }
                Wire::Messages => {
                    json!([{ "name": "get_weather", "description": "weather of a city", "input_schema": schema }])
                }
                _ => json!([{ "type": "function", "function": function }]),
            };
            let verdict = judged(&sim, wire, path, &body).await;
            let (name, arguments) =
                verdict.tool_calls.first().unwrap_or_else(|| panic!("{wire} {stream}: {verdict:?}"));
            assert_eq!(&**name, "get_weather", "{wire} {stream}");
            assert!(
                serde_json::from_str::<Value>(arguments).unwrap()["city"].is_string(),
                "{wire} {arguments}"
            );
            assert!(!verdict.flags.contains(Flag::ToolCallInvalid), "{wire} {stream}");
        }
    }
    sim.set_fault("empty").unwrap();
    for wire in TEXT_WIRES {
        for stream in [false, true] {
            let (path, body) = question_on(wire, "What is a library?", stream);
            let verdict = judged(&sim, wire, path, &body).await;
            assert!(verdict.flags.contains(Flag::EmptyOutput), "{wire} {stream} {}", verdict.flags);
        }
    }
    sim.set_fault("status=503").unwrap();
    for wire in TEXT_WIRES {
        let (path, body) = question_on(wire, "What is a library?", true);
        let verdict = judged(&sim, wire, path, &body).await;
        assert_eq!(verdict.error.as_deref(), Some("Service Unavailable"), "{wire}");
    }
}

#[tokio::test]
async fn vectors_and_rankings_are_sound_until_damaged() {
    let sim = start("none").await;
    let asked = [
        (Wire::Embeddings, "/v1/embeddings", json!({ "model": "e", "input": ["bees make honey", "taxes"] })),
        (
            Wire::Embeddings,
            "/v1/embeddings",
            json!({ "model": "e", "input": "bees", "encoding_format": "base64", "dimensions": 64 }),
        ),
        (Wire::OllamaEmbed, "/api/embed", json!({ "model": "e", "input": ["bees make honey"] })),
        (Wire::OllamaEmbed, "/api/embeddings", json!({ "model": "e", "prompt": "bees make honey" })),
        (
            Wire::Rerank,
            "/v1/rerank",
            json!({ "model": "r", "query": "Who makes honey?", "documents": ["Taxes rise.", "Bees make honey."], "top_n": 1 }),
        ),
    ];
    for (wire, path, body) in &asked {
        let verdict = judged(&sim, *wire, path, body).await;
        assert_eq!(verdict.flags.to_string(), "", "{path}");
    }
    let ranked = post(&sim, "/v1/rerank", &asked[4].2).await.unwrap().text().await.unwrap();
    let ranked: Value = serde_json::from_str(&ranked).unwrap();
    assert_eq!(ranked["results"][0]["index"], 1, "{ranked}");
    sim.set_fault("empty").unwrap();
    for (wire, path, body) in &asked {
        let flags = judged(&sim, *wire, path, body).await.flags;
        assert!(flags.contains(Flag::EmbeddingEmpty) || flags.contains(Flag::EmptyOutput), "{path} {flags}");
    }
    let refused = post(&sim, "/api/embed", &json!({ "input": 7 })).await.unwrap();
    assert_eq!(refused.status(), 400);
    assert!(serde_json::from_str::<Value>(&refused.text().await.unwrap()).unwrap()["error"].is_string());
}

#[tokio::test]
async fn loading_a_model_is_an_answer_without_text() {
    let sim = start("none").await;
    for (body, reason) in
        [(json!({ "model": "m" }), "load"), (json!({ "model": "m", "keep_alive": 0 }), "unload")]
    {
        let verdict = judged(&sim, Wire::OllamaGenerate, "/api/generate", &body).await;
        assert_eq!(
            (verdict.flags.to_string(), verdict.finish_reason.as_deref()),
            (String::new(), Some(reason))
        );
    }
}

#[tokio::test]
async fn the_classifier_answers_by_both_protocols_and_says_what_is_wrong() {
    let sim = start("none").await;
    let ask = |path: &'static str, body: Value| {
        let sim = &sim;
        async move {
            let answer = post(sim, path, &body).await.unwrap();
            let status = answer.status().as_u16();
            (status, serde_json::from_slice::<Value>(&answer.bytes().await.unwrap()).unwrap())
        }
    };
    let bell: Vec<f32> = (0..8).map(|f| super::classifier::sign(1, f)).collect();
    let input = json!({ "name": "features", "datatype": "FP32", "shape": [1, 8], "data": bell });
    let (status, answer) = ask("/v2/models/m/infer", json!({ "id": "7", "inputs": [input] })).await;
    assert_eq!((status, &answer["id"]), (200, &json!("7")));
    assert_eq!(answer["outputs"][1]["data"], json!(["bell"]));
    let classes = json!([{ "name": "probabilities", "parameters": { "classification": 2 } }]);
    let (_, answer) = ask("/v2/models/m/infer", json!({ "inputs": [input], "outputs": classes })).await;
    let best = answer["outputs"][0]["data"][0].as_str().unwrap();
    assert!(best.starts_with("0.96") && best.ends_with(":1:bell"), "{best}");
    let (_, rows) = ask("/v1/models/m:predict", json!({ "instances": [bell, bell] })).await;
    assert_eq!(rows["predictions"].as_array().map(Vec::len), Some(2));
    for (path, body) in [
        ("/v2/models/m/infer", json!({ "inputs": [] })),
        ("/v2/models/m/infer", json!({ "inputs": [input], "outputs": [{ "name": "none" }] })),
        ("/v1/models/m:predict", json!({ "instances": [[1, 2, 3]] })),
        ("/v1/models/m:predict", json!({})),
    ] {
        let (status, answer) = ask(path, body).await;
        assert!(status == 400 && answer["error"].is_string(), "{path}: {answer}");
    }
}

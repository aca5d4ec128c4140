use std::collections::HashSet;

use serde_json::Value;

use super::*;
use crate::prompt::{Check, Sampling};

const SOUND: &str =
    r#"{"id":"a","kind":"burst","wire":"chat","messages":[{"role":"user","content":"Hello?"}]}"#;

fn with(members: &str) -> String {
    format!("{},{members}}}", SOUND.strip_suffix('}').expect("an object"))
}

fn refusal(text: &str) -> String {
    GoldenSet::parse("set", text).expect_err(text).to_string()
}

#[test]
fn the_starter_set_is_sound_and_as_large_as_promised() {
    let set = GoldenSet::starter().expect("reads");
    assert!(set.canaries().count() >= 20);
    assert!(set.bursts().count() >= 60);
    assert_eq!(set.hash().len(), 64);
    let kinds: HashSet<_> =
        set.prompts().iter().filter_map(|p| p.check.as_ref()).map(std::mem::discriminant).collect();
    assert_eq!(kinds.len(), 7, "every kind of check occurs");
    let cheap = set.bursts().filter(|p| p.max_tokens <= 24).count();
    assert!(cheap >= 60, "{cheap} bursts answer in 24 tokens");
    let likeness = set.bursts().filter(|p| matches!(p.check, Some(Check::Similarity(_)))).count();
    assert!(likeness >= 12, "{likeness} are judged by likeness");
}

#[test]
fn the_starter_folder_is_what_the_program_carries() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/starter");
    let (folder, carried) = (GoldenSet::load(&dir).expect("reads"), GoldenSet::starter().expect("reads"));
    assert_eq!(folder.hash(), carried.hash());
    assert_eq!(&**folder.name(), STARTER);
    assert_eq!(folder.find("fact-japan").map(|p| &*p.id), Some("fact-japan"));
}

#[test]
fn faults_name_the_line_and_the_reason() {
    let cases = [
        (with(r#""chek":1"#), "unknown field `chek`"),
        (SOUND.replace("burst", "bust"), "unknown variant `bust`"),
        (SOUND.replace("\"a\"", "\"a b\""), "id \"a b\": wanted 1 to 64 of letters"),
        (with(r#""max_tokens":0"#), "max_tokens must be at least 1"),
        (with(r#""prompt":"x""#), "wire chat takes messages, not prompt"),
        (SOUND.replace("chat", "completions"), "wire completions takes prompt, not messages"),
        (r#"{"id":"a","kind":"burst","wire":"chat"}"#.to_owned(), "wire chat needs messages"),
        (SOUND.replace("Hello?", " "), "messages[0] has no content"),
        (SOUND.replace("role", "roll"), "messages[0] has no role"),
        (with(r#""check":{"regex":"(a"}"#), "check regex: error: unclosed group"),
        (with(r#""check":{"regex":"a*"}"#), "matches the empty answer"),
        (with(r#""check":{"exact":[]}"#), "empty text"),
        (with(r#""check":{"exact":"a "}"#), "white space at an end"),
        (with(r#""check":{"json_schema":{"type":"objekt"}}"#), "check json_schema: bad schema"),
        (with(r#""check":{"json_schema":7}"#), "schema is no JSON object"),
        (with(r#""check":{"tool":"go"}"#), "check tool \"go\" is not among the tools"),
        (with(r#""check":{"similarity":1.5}"#), "check similarity 1.5"),
        (with(r#""check":{"label":""}"#), "check label is empty"),
        (with(r#""check":{"exact":"a","label":"a"}"#), "expected"),
        (with(r#""tools":[{"function":{}}]"#), "tools[0] has no name"),
        (with(r#""references":[""]"#), "an empty text among the references"),
        ("{".to_owned(), "EOF while parsing"),
    ];
    for (line, reason) in cases {
        let text = refusal(&format!("{SOUND}\n\n{}\n", line.replace("\"id\":\"a\"", "\"id\":\"b\"")));
        assert!(text.starts_with("set line 3: ") && text.contains(reason), "{line}\n{text}");
    }
    assert_eq!(refusal(&format!("{SOUND}\n{SOUND}\n")), "set line 2: id \"a\" was given in line 1 already");
    assert_eq!(refusal("\n \n"), "set: no prompt in it");
}

#[test]
fn a_file_that_is_not_utf8_is_named_with_its_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut bytes = format!("{SOUND}\n").into_bytes();
    bytes.extend(b"{\"id\":\"\xff\"}\n");
    std::fs::write(dir.path().join(PROMPTS_FILE), bytes).expect("writes");
    let text = GoldenSet::load(dir.path()).expect_err("broken").to_string();
    assert!(text.ends_with("prompts.jsonl line 2: not UTF-8"), "{text}");
    let text = GoldenSet::load(&dir.path().join("none")).expect_err("absent").to_string();
    assert!(text.contains("none") && text.contains("No such file"), "{text}");
}

#[test]
fn recorded_prompts_read_back_and_a_broken_set_is_never_overwritten() {
    let dir = tempfile::tempdir().expect("a folder");
    let place = dir.path().join("mine");
    let mut prompts: Vec<Prompt> =
        GoldenSet::starter().expect("reads").prompts().iter().map(|p| (**p).clone()).collect();
    prompts[0].references = vec!["Yes.".to_owned()];
    let path = write_prompts(&place, &prompts).expect("writes");
    let back = GoldenSet::load(&place).expect("reads");
    assert!(back.prompts().iter().map(|p| &**p).eq(prompts.iter()));
    assert_eq!(&**back.name(), "mine");

    std::fs::write(&path, "{oops").expect("writes");
    let text = write_prompts(&place, &prompts).expect_err("broken").to_string();
    assert!(text.contains("line 1"), "{text}");
    assert_eq!(std::fs::read_to_string(&path).expect("reads"), "{oops");
    assert_eq!(std::fs::read_dir(&place).expect("lists").count(), 1, "no temporary file stays");
}

fn body(wire: &str, members: &str, k: Option<u32>, stream: bool) -> (String, Value) {
    let line = format!(r#"{{"id":"a","kind":"burst","wire":"{wire}","max_tokens":9,{members}}}"#);
    let set = GoldenSet::parse("set", &line).expect("reads");
    let (path, bytes) = request(&set.prompts()[0], "m", k, stream, Sampling::GREEDY);
    (path, serde_json::from_slice(&bytes).expect("JSON"))
}

const TURNS: &str = r#""messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}]"#;

#[test]
fn a_chat_probe_is_deterministic_and_asks_for_what_is_wanted() {
    let (path, plain) = body("chat", TURNS, None, false);
    assert_eq!(path, "/v1/chat/completions");
    assert_eq!((&plain["model"], &plain["temperature"]), (&"m".into(), &0.into()));
    assert_eq!((&plain["seed"], &plain["max_tokens"]), (&Sampling::GREEDY.seed.into(), &9.into()));
    assert!(plain.get("stream").is_none() && plain.get("logprobs").is_none());
    let (_, full) = body("chat", TURNS, Some(20), true);
    assert_eq!((&full["logprobs"], &full["top_logprobs"]), (&true.into(), &20.into()));
    assert_eq!(full["stream_options"]["include_usage"], true);
    let (path, completion) = body("completions", r#""prompt":"p""#, Some(5), false);
    assert_eq!((path.as_str(), &completion["logprobs"]), ("/v1/completions", &5.into()));
}

#[test]
fn every_wire_is_asked_in_its_own_words() {
    let (path, ollama) = body("ollama_chat", TURNS, None, false);
    assert_eq!((path.as_str(), &ollama["stream"]), ("/api/chat", &false.into()));
    assert_eq!(ollama["options"]["num_predict"], 9);
    let (path, anthropic) = body("messages", TURNS, Some(5), false);
    assert_eq!((path.as_str(), &anthropic["system"]), ("/v1/messages", &"s".into()));
    assert_eq!(anthropic["messages"].as_array().map(Vec::len), Some(1));
    assert!(anthropic.get("logprobs").is_none() && anthropic.get("seed").is_none());
    let (_, responses) = body("responses", TURNS, None, false);
    assert_eq!(responses["max_output_tokens"], 9);
    assert!(responses["input"].is_array());
    let (path, vectors) = body("embeddings", r#""input":"x""#, Some(5), true);
    assert_eq!((path.as_str(), vectors), ("/v1/embeddings", serde_json::json!({"model":"m","input":"x"})));
    let (path, tensors) = body("kserve", r#""input":[{"name":"x"}]"#, None, false);
    assert_eq!(path, "/v2/models/m/infer");
    assert_eq!(tensors, serde_json::json!({"inputs":[{"name":"x"}]}));
    let (path, rows) = body("tfserving", r#""input":{"instances":[[1.0]]}"#, None, false);
    assert_eq!((path.as_str(), rows), ("/v1/models/m:predict", serde_json::json!({"instances":[[1.0]]})));
}

#[test]
fn tools_and_formats_are_said_in_the_wires_own_form() {
    let schema = r#"{"type":"object","required":["a"]}"#;
    let chat =
        format!(r#"{{"type":"function","function":{{"name":"f","description":"d","parameters":{schema}}}}}"#);
    let anthropic = format!(r#"{{"name":"f","description":"d","input_schema":{schema}}}"#);
    let read: Value = serde_json::from_str(schema).expect("JSON");
    for tool in [chat, anthropic] {
        let on = |wire: &str| {
            body(wire, &format!(r#"{TURNS},"tools":[{tool}]"#), None, false).1["tools"][0].clone()
        };
        for wire in ["chat", "ollama_chat"] {
            assert_eq!(on(wire)["function"]["parameters"], read, "{wire}");
            assert_eq!(on(wire)["type"], "function", "{wire}");
        }
        assert_eq!(
            on("messages"),
            serde_json::json!({ "name": "f", "description": "d", "input_schema": read })
        );
        let flat =
            serde_json::json!({ "type": "function", "name": "f", "description": "d", "parameters": read });
        assert_eq!(on("responses"), flat);
    }
    let format = format!(
        r#"{TURNS},"response_format":{{"type":"json_schema","json_schema":{{"name":"x","schema":{schema}}}}}"#
    );
    let (_, responses) = body("responses", &format, None, false);
    assert_eq!(
        responses["text"]["format"],
        serde_json::json!({ "type": "json_schema", "name": "x", "schema": read })
    );
    assert!(responses.get("response_format").is_none());
}

#[test]
fn a_canary_costs_one_token_where_logprobs_exist_and_few_elsewhere() {
    let line = SOUND.replace("burst", "canary");
    let set = GoldenSet::parse("set", &line).expect("reads");
    let tokens = |k| {
        let (_, bytes) = request(&set.prompts()[0], "", k, false, Sampling::GREEDY);
        let body: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert!(body.get("model").is_none());
        body["max_tokens"].as_u64()
    };
    assert_eq!(tokens(Some(20)), Some(1));
    assert_eq!(tokens(None), Some(u64::from(CANARY_TOKENS_WITHOUT_LOGPROBS)));
}

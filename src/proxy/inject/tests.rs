use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::cutter::Cutter;
use super::*;

const BOTH: Injected = Injected { logprobs: true, usage: true };
const LOGPROBS: Injected = Injected { logprobs: true, usage: false };

fn asked(wire: Wire, body: &str) -> Option<(String, Injected)> {
    let (body, injected) = with_questions(wire, &Bytes::copy_from_slice(body.as_bytes()))?;
    Some((String::from_utf8(body.to_vec()).expect("text"), injected))
}

#[test]
fn questions_are_added_and_every_other_byte_stays() {
    let chat = "{ \"model\" : \"m\",\"n\":1.50e0 }";
    let (body, injected) = asked(Wire::Chat, chat).expect("something to ask");
    assert_eq!(body, "{ \"logprobs\":true,\"top_logprobs\":5,\"model\" : \"m\",\"n\":1.50e0 }");
    assert_eq!((injected, injected.as_str()), (LOGPROBS, "logprobs"));

    let (body, injected) = asked(Wire::Chat, "{\"stream\":true,\"model\":\"m\"}").expect("something");
    let options = "\"stream_options\":{\"include_usage\":true},";
    assert_eq!(
        body,
        format!("{{\"logprobs\":true,\"top_logprobs\":5,{options}\"stream\":true,\"model\":\"m\"}}")
    );
    assert_eq!((injected, injected.as_str()), (BOTH, "logprobs, usage"));

    let nested = "{\"stream\":true,\"logprobs\":false,\"stream_options\": { \"x\":1 }}";
    let (body, injected) = asked(Wire::Chat, nested).expect("usage");
    assert_eq!(
        body,
        "{\"stream\":true,\"logprobs\":false,\"stream_options\": {\"include_usage\":true, \"x\":1 }}"
    );
    assert_eq!(injected.as_str(), "usage");

    let (body, _) = asked(Wire::Completions, "{\"prompt\":\"a\"}").expect("logprobs");
    assert_eq!(body, "{\"logprobs\":5,\"prompt\":\"a\"}");
}

#[test]
fn what_the_caller_said_itself_is_obeyed() {
    for (wire, body) in [
        (Wire::Chat, r#"{"model":"m","logprobs":false}"#),
        (Wire::Chat, r#"{"model":"m","logprobs":null}"#),
        (Wire::Chat, r#"{"model":"m","logprobs":true,"top_logprobs":2}"#),
        (Wire::Chat, r#"{"model":"m","logprob\u0073":true}"#),
        (Wire::Chat, r#"{"logprobs":true,"stream":true,"stream_options":{"include_usage":false}}"#),
        (Wire::Chat, r#"{"logprobs":true,"stream":true,"stream_options":{"include_usage":true}}"#),
        (Wire::Chat, r#"{"logprobs":true,"stream":true,"stream_options":null}"#),
        (Wire::Completions, r#"{"prompt":"a","echo":true}"#),
        (Wire::Completions, r#"{"prompt":"a","logprobs":0}"#),
        (Wire::Embeddings, r#"{"input":"a"}"#),
        (Wire::Messages, r#"{"messages":[]}"#),
        (Wire::Chat, "{}"),
        (Wire::Chat, "[]"),
        (Wire::Chat, r#"{"model":"m""#),
        (Wire::Chat, ""),
    ] {
        assert_eq!(asked(wire, body), None, "{body}");
    }
}

fn document(body: &str, injected: Injected) -> String {
    let whole = Cutter::whole(injected, Bytes::copy_from_slice(body.as_bytes()));
    String::from_utf8(whole.to_vec()).expect("text")
}

#[test]
fn exactly_the_members_that_were_asked_for_are_cut_out_of_a_document() {
    for (said, left) in [
        (
            r#"{"choices":[{"index":0,"logprobs":{"content":[{"token":"a"}]},"x":1}]}"#,
            r#"{"choices":[{"index":0,"x":1}]}"#,
        ),
        (r#"{"choices":[{"logprobs":null,"index":0}]}"#, r#"{"choices":[{"index":0}]}"#),
        (r#"{"choices":[{"index":0,"logprobs":null}]}"#, r#"{"choices":[{"index":0}]}"#),
        (r#"{"choices":[{"logprobs":null}]}"#, r#"{"choices":[{}]}"#),
        (
            "{ \"choices\" : [ { \"i\" : 0 , \"logprobs\" : { } , \"m\" : \"logprobs\" } ] }",
            "{ \"choices\" : [ { \"i\" : 0 , \"m\" : \"logprobs\" } ] }",
        ),
        (
            r#"{"choices":[{"a":1,"logprobs":1},{"logprobs":2,"b":2}],"usage":{"n":1.0e1}}"#,
            r#"{"choices":[{"a":1},{"b":2}],"usage":{"n":1.0e1}}"#,
        ),
        // Elsewhere the name is somebody else's.
        (
            r#"{"logprobs":1,"choices":[{"message":{"content":"\"logprobs\":1","logprobs":2}}]}"#,
            r#"{"logprobs":1,"choices":[{"message":{"content":"\"logprobs\":1","logprobs":2}}]}"#,
        ),
        // What is no JSON stays.
        (r#"{"choices":[{"logprobs":1"#, r#"{"choices":[{"logprobs":1"#),
        (r#"{"choices":[{"logprobs":1} {}]}"#, r#"{"choices":[{"logprobs":1} {}]}"#),
        ("", ""),
        ("  ", "  "),
    ] {
        assert_eq!(document(said, BOTH), left);
    }
    let usage = Injected { logprobs: false, usage: true };
    let said = r#"{"choices":[{"logprobs":1}],"usage":{"n":1}}"#;
    assert_eq!(document(said, usage), said, "an answer that is no stream has its usage anyhow");
}

/// A stream as it comes with the questions, and as it would have come without.
fn stream(end: &str) -> (String, String) {
    let event = |data: &str| format!("data: {data}{end}{end}");
    let with = [
        format!(": hello{end}{end}"),
        event(
            r#"{"id":1,"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.1}]}}],"usage":null}"#,
        ),
        format!(
            "event: message{end}id: 7{end}data:{{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"usage \\n\"}}}}]}}{end}{end}"
        ),
        event(
            r#"{"choices":[{"index":0,"logprobs":null,"delta":{},"finish_reason":"stop"}],"usage":{"total_tokens":3}}"#,
        ),
        event(r#"{"choices":[],"usage":{"total_tokens":3}}"#),
        event("[DONE]"),
    ];
    let without = [
        with[0].clone(),
        event(r#"{"id":1,"choices":[{"index":0,"delta":{"content":"a"}}]}"#),
        with[2].clone(),
        event(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#),
        String::new(),
        with[5].clone(),
    ];
    (with.concat(), without.concat())
}

#[test]
fn a_stream_is_left_as_it_would_have_come_however_it_is_split() {
    for end in ["\n", "\r\n", "\r"] {
        let (with, without) = stream(end);
        for size in 1..=with.len() {
            let mut cutter = Cutter::new(BOTH);
            let mut out = Vec::new();
            for piece in with.as_bytes().chunks(size) {
                out.extend_from_slice(&cutter.push(Bytes::copy_from_slice(piece)));
            }
            out.extend_from_slice(&cutter.finish());
            assert_eq!(String::from_utf8_lossy(&out), without, "{end:?} in pieces of {size}");
        }
    }
}

#[test]
fn an_event_leaves_when_it_is_whole_and_not_before() {
    let mut cutter = Cutter::new(BOTH);
    let first = b"data: {\"choices\":[{\"index\":0,\"logprobs\":null}]}\n\n";
    assert_eq!(&cutter.push(Bytes::from_static(first))[..], b"data: {\"choices\":[{\"index\":0}]}\n\n");
    assert!(cutter.push(Bytes::from_static(b"data: {\"choices\":[],\"usage\":{}")).is_empty());
    assert_eq!(&cutter.finish()[..], b"data: {\"choices\":[],\"usage\":{}", "a cut stream shows what came");
}

#[test]
fn what_is_too_large_is_passed_on_uncut() {
    let mut cutter = Cutter::new(BOTH);
    let mut said = b"data: {\"choices\":[{\"logprobs\":[".to_vec();
    said.resize(2 << 20, b'1');
    let out = cutter.push(Bytes::from(said.clone()));
    assert_eq!(out, said);
    let next = b"]}]}\n\ndata: {\"choices\":[{\"logprobs\":1}]}\n\n";
    assert_eq!(&cutter.push(Bytes::from_static(next))[..], next);
}

proptest! {
    #[test]
    fn cutting_agrees_with_parsing_removing_and_parsing(
        contents in prop::collection::vec("[a-z\"\\\\{}\\[\\],:\u{e9} ]{0,12}", 0..4),
        at in 0usize..4,
        usage in prop::option::of(0u8..9),
        pretty in any::<bool>(),
    ) {
        let choice = |(i, text): (usize, &String)| {
            let mut choice = json!({"index": i, "message": {"content": text, "logprobs": text}});
            if i != at {
                choice["logprobs"] = json!({"content": [{"token": text, "top_logprobs": [text]}]});
            }
            choice
        };
        let choices: Vec<Value> = contents.iter().enumerate().map(choice).collect();
        let mut document = json!({"id": "c", "choices": choices});
        if let Some(n) = usage {
            document["usage"] = json!({"total_tokens": n});
        }
        let text = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) };
        let text = text.expect("written");
        let mut wanted = document.clone();
        for choice in wanted["choices"].as_array_mut().expect("a list") {
            choice.as_object_mut().expect("an object").remove("logprobs");
        }
        let whole = super::tests::document(&text, BOTH);
        prop_assert_eq!(serde_json::from_str::<Value>(&whole).expect("still JSON"), wanted.clone());
        let event = left_of(text.as_bytes(), BOTH, true);
        if contents.is_empty() && usage.is_some() {
            prop_assert_eq!(event, Left::Nothing);
        } else if let Left::Without(cuts) = event {
            wanted.as_object_mut().expect("an object").remove("usage");
            let left = without(&Bytes::from(text.clone()), &cuts);
            prop_assert_eq!(serde_json::from_slice::<Value>(&left).expect("still JSON"), wanted);
        } else {
            prop_assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), wanted);
        }
    }

    #[test]
    fn no_bytes_at_all_make_it_fail_or_lose_what_was_not_asked_for(
        bytes in prop::collection::vec(prop_oneof![Just(b'{'), Just(b'}'), Just(b'"'), Just(b'\n'), Just(b'\r'), Just(b','), any::<u8>()], 0..80),
        size in 1usize..9,
    ) {
        let mut cutter = Cutter::new(BOTH);
        let mut out = Vec::new();
        for piece in bytes.chunks(size) {
            out.extend_from_slice(&cutter.push(Bytes::copy_from_slice(piece)));
        }
        out.extend_from_slice(&cutter.finish());
        prop_assert_eq!(out, bytes.clone());
        let _ = with_questions(Wire::Chat, &Bytes::from(bytes));
    }
}

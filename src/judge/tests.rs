use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::verdict::Wire;

mod streams;

const SSE: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";

fn ask(request: &str) -> Arc<Ask> {
    Arc::new(Ask::parse(Wire::Chat, request.as_bytes()))
}

fn head(status: u16, kind: &str) -> Head {
    Head { status, content_type: Some(kind.into()), ..Head::default() }
}

fn judge(request: &str, head: Head, body: &[u8], end: End) -> Verdict {
    let mut judge = Judge::new(ask(request), head);
    let _ = judge.push(10, body);
    judge.finish(20, end)
}

/// A whole body under 200.
fn whole(request: &str, body: &str) -> Verdict {
    judge(request, head(200, JSON), body.as_bytes(), End::Complete)
}

/// A whole answer whose choice has these members.
fn answer(request: &str, choice: &str) -> Verdict {
    whole(
        request,
        &format!(
            r#"{{"choices":[{{"index":0,{choice}}}],"usage":{{"prompt_tokens":5,"completion_tokens":20,"total_tokens":25}}}}"#
        ),
    )
}

fn text(request: &str, content: &str, finish: &str) -> Verdict {
    let content = serde_json::to_string(content).expect("a string");
    answer(request, &format!(r#""message":{{"content":{content}}},"finish_reason":"{finish}""#))
}

/// A stream of events under 200, each given as its data.
fn stream(request: &str, events: &[&str], end: End) -> Verdict {
    let body: String = events.iter().map(|e| format!("data: {e}\n\n")).collect();
    judge(request, head(200, SSE), body.as_bytes(), end)
}

fn delta(delta: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

fn ended(reason: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
}

#[track_caller]
fn flags(verdict: &Verdict, wanted: &str) {
    assert_eq!(verdict.flags.to_string(), wanted);
}

#[test]
fn a_sound_answer_has_no_flag() {
    let verdict = text("{}", "Paris is the capital of France.", "stop");
    flags(&verdict, "");
    assert_eq!(verdict.class, None);
    assert_eq!((verdict.usage.input, verdict.usage.output), (Some(5), Some(20)));
    assert_eq!(verdict.signals.entropy_unavailable, Some(crate::verdict::Unavailable::NotRequested));
}

#[test]
fn every_kind_of_nothing_has_its_name() {
    let none = |choice: &str| {
        let v = answer("{}", choice);
        (v.flags.to_string(), v.empty_cause)
    };
    assert_eq!(
        none(r#""message":{"content":""},"finish_reason":"stop""#),
        ("empty_output".into(), Some("swallowed_by_the_parser"))
    );
    assert_eq!(
        none(r#""message":{"content":"\n\n"},"finish_reason":"stop""#),
        ("empty_output".into(), Some("white_space"))
    );
    assert_eq!(
        none(r#""message":{"content":null,"reasoning_content":"hm"},"finish_reason":"stop""#),
        ("reasoning_only".into(), Some("reasoning_only"))
    );
    assert_eq!(
        none(r#""message":{"content":""},"finish_reason":"content_filter""#),
        ("content_filtered".into(), None)
    );
    assert_eq!(none(r#""message":{"refusal":"no"},"finish_reason":"stop""#), ("refusal".into(), None));
    flags(
        &whole("{}", r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0}}"#),
        "empty_output",
    );
    let thinking = whole(
        "{}",
        r#"{"choices":[{"message":{"content":""},"finish_reason":"length"}],
        "usage":{"prompt_tokens":1,"completion_tokens":64,"completion_tokens_details":{"reasoning_tokens":64}}}"#,
    );
    flags(&thinking, "empty_output,truncated");
    assert_eq!(thinking.empty_cause, Some("thinking_took_the_budget"));
}

#[test]
fn one_token_of_white_space_at_the_limit_is_an_answer() {
    flags(&text(r#"{"max_tokens":1}"#, "\n", "length"), "truncated");
}

#[test]
fn images_and_sound_are_content() {
    flags(&answer("{}", r#""message":{"content":null,"audio":{"id":"a"}},"finish_reason":"stop""#), "");
    flags(&answer("{}", r#""message":{"content":[{"type":"image_url"}]},"finish_reason":"stop""#), "");
}

#[test]
fn a_body_that_is_something_else_is_told_by_what_it_is() {
    let of = |body: &[u8]| judge("{}", head(200, JSON), body, End::Complete);
    for (body, wanted) in [
        (&b"<html><body>502</body></html>"[..], "non_json_body"),
        (b"\x1f\x8b\x08\x00abc", "non_json_body"),
        (b"Service Unavailable", "non_json_body"),
        (b"", "empty_body"),
        (b" \n\n ", "empty_body"),
        (b"{\"choices\":[{\"message\":{\"content\":\"Hel", "malformed_json"),
    ] {
        let verdict = of(body);
        assert_eq!(
            verdict.flags.iter().next().map(Flag::as_str),
            Some(wanted),
            "{}",
            String::from_utf8_lossy(body)
        );
        assert_eq!(verdict.class, Some(FaultClass::Upstream));
    }
}

#[test]
fn a_short_body_is_truncated_and_no_more() {
    let short = Head { content_length: Some(1000), ..head(200, JSON) };
    let body = br#"{"choices":[{"message":{"content":"Hel"#;
    for end in [End::Broken, End::Complete] {
        let verdict = judge("{}", short.clone(), body, end);
        flags(&verdict, "body_truncated");
        assert_eq!((verdict.class, &*verdict.text), (Some(FaultClass::Upstream), "Hel"));
    }
}

#[test]
fn invalid_utf8_and_half_pairs_are_encoding_errors() {
    let invalid = b"{\"choices\":[{\"message\":{\"content\":\"caf\xe9 noir\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":3}}";
    let verdict = judge("{}", head(200, JSON), invalid, End::Complete);
    flags(&verdict, "encoding_error");
    assert_eq!(verdict.class, Some(FaultClass::QualitySoft));
    flags(&answer("{}", r#""message":{"content":"ok \ud83d"},"finish_reason":"stop""#), "encoding_error");
    let split = stream(
        "{}",
        &[&delta(r#"{"content":"ok \ud83d"}"#), &delta(r#"{"content":"\ude00"}"#), &ended("stop"), "[DONE]"],
        End::Complete,
    );
    flags(&split, "encoding_error");
}

#[test]
fn a_character_cut_between_reads_is_sound() {
    let body = format!(
        "data: {}\n\ndata: {}\n\ndata: [DONE]\n\n",
        delta(r#"{"content":"naïve 😀"}"#),
        ended("stop")
    );
    let mut judge = Judge::new(ask("{}"), head(200, SSE));
    body.as_bytes().chunks(1).for_each(|b| {
        let _ = judge.push(1, b);
    });
    let verdict = judge.finish(1, End::Complete);
    flags(&verdict, "");
    assert_eq!(&*verdict.text, "naïve 😀");
}

#[test]
fn schema_faults_need_an_answer_that_was_finished() {
    let asked = r#"{"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object","required":["a"]}}}}"#;
    flags(&text(asked, "{\"a\":1}", "stop"), "");
    flags(&text(asked, "{\"b\":1}", "stop"), "schema_invalid");
    flags(&text(asked, "{\"a\":", "stop"), "schema_invalid");
    flags(&text(asked, "{\"a\":", "length"), "truncated");
    flags(&text(asked, "```json\n{\"a\":1}\n```", "stop"), "schema_invalid");
}

#[test]
fn tool_calls_are_held_against_the_request() {
    let asked = r#"{"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object",
        "properties":{"a":{"type":"string"}},"required":["a"]}}}],"tool_choice":"required"}"#;
    let call = |name: &str, arguments: &str, finish: &str| {
        let arguments = serde_json::to_string(arguments).expect("a string");
        answer(
            asked,
            &format!(
                r#""message":{{"content":null,"tool_calls":[{{"id":"c","function":{{"name":"{name}","arguments":{arguments}}}}}]}},"finish_reason":"{finish}""#
            ),
        )
    };
    flags(&call("f", r#"{"a":"x"}"#, "tool_calls"), "");
    flags(&call("f", r#"{"a":1}"#, "tool_calls"), "tool_call_invalid");
    flags(&call("f", r#"{"a":"#, "tool_calls"), "tool_call_invalid");
    flags(&call("f", r#"{"a":"#, "length"), "truncated");
    flags(&call("g", r#"{"a":"x"}"#, "tool_calls"), "tool_call_invalid");
    flags(&text(asked, "I will not.", "stop"), "tool_call_missing");
    let auto = r#"{"tools":[{"type":"function","function":{"name":"f"}}]}"#;
    flags(&text(auto, "Here you are.", "stop"), "");
}

#[test]
fn the_status_decides_the_class_of_a_failure() {
    let class =
        |status: u16, body: &str| judge("{}", head(status, JSON), body.as_bytes(), End::Complete).class;
    for status in [400, 401, 403, 404, 413, 422] {
        assert_eq!(class(status, "{}"), Some(FaultClass::Client), "{status}");
    }
    for status in [429, 503, 529] {
        assert_eq!(class(status, ""), Some(FaultClass::Backpressure), "{status}");
    }
    for status in [408, 425, 500, 502, 504, 520, 522, 524] {
        assert_eq!(class(status, "oops"), Some(FaultClass::Upstream), "{status}");
    }
    let refused = judge("{}", Head::default(), b"", End::Broken);
    assert_eq!((refused.class, refused.flags.to_string()), (Some(FaultClass::Upstream), String::new()));
    let late = judge("{}", Head::default(), b"", End::TimedOut(Limit::Headers));
    assert_eq!(late.class, Some(FaultClass::Upstream));
}

#[test]
fn quota_does_not_pass_by_itself() {
    let quota = whole("{}", r#"{"error":{"message":"quota exceeded","type":"insufficient_quota"}}"#);
    assert!(quota.lasting && quota.class == Some(FaultClass::Backpressure));
    let busy = whole("{}", r#"{"error":{"message":"busy","code":429,"retry_after":2}}"#);
    assert!(!busy.lasting && busy.retry_after_ms == Some(2000));
}

#[test]
fn counts_that_cannot_be_are_told() {
    let with = |usage: &str| {
        whole(
            "{}",
            &format!(
                r#"{{"choices":[{{"message":{{"content":"Hello there."}},"finish_reason":"stop"}}],"usage":{usage}}}"#
            ),
        )
    };
    flags(&with("null"), "usage_missing");
    flags(&with("\"none\""), "usage_missing");
    flags(&with(r#"{"prompt_tokens":-1,"completion_tokens":2}"#), "usage_inconsistent");
    flags(&with(r#"{"prompt_tokens":1,"completion_tokens":2,"total_tokens":9}"#), "usage_inconsistent");
    flags(&with(r#"{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}"#), "usage_inconsistent");
    let estimated = with("null").usage;
    assert!(estimated.estimated && estimated.output == Some(3));
    assert_eq!(with(r#"{"prompt_tokens":-1,"completion_tokens":2}"#).usage.output, Some(2));
}

#[test]
fn bodies_of_any_declared_encoding_are_read_or_called_partial() {
    use std::io::Write as _;
    let plain = br#"{"choices":[{"message":{"content":"Hello."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
    let of = |encoding: &str, body: &[u8]| {
        let head = Head { content_encoding: Some(encoding.into()), ..head(200, JSON) };
        judge("{}", head, body, End::Complete)
    };
    let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    raw.write_all(plain).expect("written");
    for (encoding, body) in [
        ("gzip", gzip(plain)),
        ("deflate", zlib(plain)),
        ("deflate", raw.finish().expect("bytes")),
        ("br", encoding::tests::brotli(plain)),
        ("zstd", encoding::tests::zstd(plain)),
    ] {
        let verdict = of(encoding, &body);
        flags(&verdict, "");
        assert!(&*verdict.text == "Hello." && !verdict.partial);
    }
    let unread = of("lz4", b"\x8b\x02\x80");
    assert!(unread.partial && unread.class.is_none() && unread.flags.is_empty());
    for encoding in ["gzip", "br", "zstd", "deflate"] {
        flags(&of(encoding, plain), "non_json_body");
    }
    flags(&of("gzip", &gzip(b"<html>Bad gateway</html>")), "non_json_body");
    let cut = |mut body: Vec<u8>| {
        body.truncate(body.len() - 20);
        body
    };
    for (encoding, body) in [("gzip", cut(gzip(plain))), ("zstd", cut(encoding::tests::zstd(plain)))] {
        let verdict = of(encoding, &body);
        assert!(verdict.flags.contains(Flag::BodyTruncated), "{encoding}: {}", verdict.flags);
        assert_eq!(verdict.class, Some(FaultClass::Upstream), "{encoding}");
    }
}

#[test]
fn an_encoding_that_nobody_declared_is_told_and_not_undone() {
    let plain = br#"{"choices":[{"message":{"content":"Hello."},"finish_reason":"stop"}]}"#;
    for body in [gzip(plain), zlib(plain), encoding::tests::zstd(plain), encoding::tests::brotli(plain)] {
        let verdict = judge("{}", head(200, JSON), &body, End::Complete);
        flags(&verdict, "non_json_body");
        assert_eq!((verdict.class, &*verdict.text), (Some(FaultClass::Upstream), ""));
    }
}

#[test]
fn a_body_that_inflates_without_end_is_given_up() {
    use std::io::Write as _;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![b' '; 1 << 20];
    (0..80).for_each(|_| gzip.write_all(&zeros).expect("written"));
    let head = Head { content_encoding: Some("gzip".into()), ..head(200, JSON) };
    assert!(judge("{}", head, &gzip.finish().expect("bytes"), End::Complete).partial);
}

#[test]
fn asked_logprobs_that_do_not_come_are_missed() {
    let asked = r#"{"logprobs":true,"top_logprobs":2}"#;
    let none = text(asked, "Hello.", "stop");
    flags(&none, "logprobs_missing");
    assert_eq!(none.signals.entropy_unavailable, Some(crate::verdict::Unavailable::EngineDropped));
    for odd in ["0.5", "1e999", "-1e999", "null", "-1e31", "-9999.0"] {
        let choice = format!(
            r#""message":{{"content":"Hi"}},"finish_reason":"stop","logprobs":{{"content":[{{"token":"Hi","logprob":{odd},
            "top_logprobs":[{{"token":"Hi","logprob":{odd}}}]}}]}}"#
        );
        let verdict = answer(asked, &choice);
        flags(&verdict, "logprobs_invalid");
        assert_eq!((verdict.signals.entropy_mean, verdict.class), (None, None), "{odd}");
    }
}

fn near_wire() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"data: ".to_vec()),
        Just(b"\n\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"data: [DONE]\n\n".to_vec()),
        Just(b"event: error\n".to_vec()),
        Just(delta(r#"{"content":"Hi \ud83d"}"#).into_bytes()),
        Just(delta(r#"{"tool_calls":[{"index":1,"function":{"name":"f","arguments":"{"}}]}"#).into_bytes()),
        Just(br#"{"choices":[{"index":-1,"logprobs":{"content":[{"token":"a","logprob":NaN}]},"message":{"content":["#.to_vec()),
        Just(br#"{"error":{"code":429}}"#.to_vec()),
        Just(br#"{"usage":{"prompt_tokens":-1e99}}"#.to_vec()),
        Just(ended("length").into_bytes()),
        prop::collection::vec(any::<u8>(), 0..12),
        "[\\[\\]{}\",:a-z0-9 \\\\]{0,12}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

fn gzip(body: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(body).expect("written");
    gzip.finish().expect("bytes")
}

fn zlib(body: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(body).expect("written");
    zlib.finish().expect("bytes")
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_no_cut_changes_the_verdict(
        body in near_wire(),
        request in prop_oneof![Just("{}"), Just(r#"{"stream":true,"logprobs":true,"tools":[{"name":"f"}],"response_format":{"type":"json_object"}}"#), Just("")],
        status in prop_oneof![Just(200_u16), Just(0), Just(400), Just(429), Just(500)],
        kind in prop_oneof![Just(SSE), Just(JSON), Just("application/x-ndjson"), Just("")],
        encoding in prop_oneof![Just(None), Just(Some("gzip")), Just(Some("deflate")), Just(Some("br")), Just(Some("zstd")), Just(Some("lz4"))],
        end in prop_oneof![Just(End::Complete), Just(End::Broken), Just(End::ClientGone), Just(End::TimedOut(Limit::StreamIdle))],
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        wire in prop::sample::select(Wire::ALL.to_vec()),
        encoded: bool,
    ) {
        let body = match encoding {
            Some("gzip") if encoded => gzip(&body),
            Some("deflate") if encoded => zlib(&body),
            Some("br") if encoded => encoding::tests::brotli(&body),
            Some("zstd") if encoded => encoding::tests::zstd(&body),
            _ => body,
        };
        let head = Head { content_encoding: encoding.map(str::to_owned), ..head(status, kind) };
        let ask = Arc::new(Ask::parse(wire, request.as_bytes()));
        let mut at: Vec<usize> = cuts.iter().map(|c| c.index(body.len() + 1)).collect();
        at.extend([0, body.len()]);
        at.sort_unstable();
        let run = |at: &[usize]| {
            let mut judge = Judge::new(ask.clone(), head.clone());
            for w in at.windows(2) {
                let _ = judge.push(7, &body[w[0]..w[1]]);
            }
            format!("{:?}", judge.finish(7, end))
        };
        // How much of a corrupt encoding comes out before it breaks depends on the cuts.
        let corrupt = encoding.is_some_and(|e| e != "br") && !encoded;
        let (cut, whole) = (run(&at), run(&[0, body.len()]));
        prop_assert!(corrupt || cut == whole, "{}\n{}", cut, whole);
    }
}

fn embedding(request: &str, body: &str) -> Verdict {
    let ask = Arc::new(Ask::parse(Wire::Embeddings, request.as_bytes()));
    let mut judge = Judge::new(ask, head(200, JSON));
    let _ = judge.push(1, body.as_bytes());
    judge.finish(2, End::Complete)
}

#[test]
fn vectors_are_judged_one_by_one() {
    let of = |request: &str, data: &str| {
        let body = format!(r#"{{"data":{data},"usage":{{"prompt_tokens":1,"total_tokens":1}}}}"#);
        embedding(request, &body).flags.to_string()
    };
    assert_eq!(of("{}", r#"[{"embedding":[0.6,0.8]}]"#), "");
    assert_eq!(of("{}", r#"[{"embedding":[0,-0.0]}]"#), "embedding_zero");
    assert_eq!(of("{}", r#"[{"embedding":[]}]"#), "embedding_empty");
    assert_eq!(of("{}", "[]"), "embedding_empty");
    assert_eq!(of("{}", r#"[{"embedding":[1,null]}]"#), "embedding_nonfinite");
    assert_eq!(of("{}", r#"[{"embedding":[1,2]},{"embedding":[1]}]"#), "embedding_dim_mismatch");
    assert_eq!(of(r#"{"dimensions":3}"#, r#"[{"embedding":[1,2]}]"#), "embedding_dim_mismatch");
    assert_eq!(
        of(r#"{"encoding_format":"base64"}"#, r#"[{"embedding":[1,2]}]"#),
        "embedding_encoding_mismatch"
    );
    assert_eq!(of("{}", r#"[{"embedding":[1,NaN]}]"#), "malformed_json,embedding_nonfinite");
    let sound = embedding("{}", r#"{"data":[{"embedding":[3,4]},{"embedding":[1,1]}]}"#);
    assert_eq!((sound.signals.dim, sound.signals.items, sound.signals.norm), (Some(2), Some(2), Some(5.0)));
    assert_eq!(sound.embedding, Some(vec![3.0, 4.0]));
    assert_eq!(sound.usage.output, None);
}

#[test]
fn echoed_prompts_are_not_the_answer() {
    let ask =
        Arc::new(Ask::parse(Wire::Completions, br#"{"prompt":["a b","xyz"],"echo":true,"logprobs":1}"#));
    let body = r#"{"choices":[
        {"index":0,"text":"a b c","logprobs":{"tokens":["a"," b"," c"],"token_logprobs":[null,-1,-0.2],"top_logprobs":[null,{" b":-1},{" c":-0.2}]},"finish_reason":"length"},
        {"index":1,"text":"xyz!","logprobs":{"tokens":["xyz","!"],"token_logprobs":[null,-0.4],"top_logprobs":[null,{"!":-0.4}],"text_offset":[0,3]},"finish_reason":"stop"}],
        "usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}}"#;
    let mut judge = Judge::new(ask, head(200, JSON));
    let _ = judge.push(1, body.as_bytes());
    let verdict = judge.finish(2, End::Complete);
    flags(&verdict, "truncated");
    assert_eq!((&*verdict.text, verdict.logprob_positions), (" c", 2));
}

//! Streams, while they run and at their end.

use super::*;

#[test]
fn streamed_calls_come_together_by_index_or_id() {
    let asked = r#"{"tools":[{"function":{"name":"f"}},{"function":{"name":"g"}}]}"#;
    let calls = |events: &[&str]| {
        let mut all: Vec<String> =
            events.iter().map(|e| delta(&format!(r#"{{"tool_calls":[{e}]}}"#))).collect();
        all.extend([ended("tool_calls"), "[DONE]".into()]);
        let v = stream(asked, &all.iter().map(String::as_str).collect::<Vec<_>>(), End::Complete);
        (v.tool_calls.clone(), v.flags.to_string())
    };
    let two = vec![("f".to_owned(), "{\"a\":1}".to_owned()), ("g".to_owned(), "{}".to_owned())];
    let by_index = calls(&[
        r#"{"index":0,"id":"x","function":{"name":"f","arguments":""}}"#,
        r#"{"index":0,"function":{"arguments":"{\"a\""}}"#,
        r#"{"index":1,"id":"y","function":{"name":"g","arguments":"{}"}}"#,
        r#"{"index":0,"function":{"arguments":":1}"}}"#,
    ]);
    assert_eq!(by_index, (two.clone(), String::new()));
    let by_id = calls(&[
        r#"{"id":"x","function":{"name":"f","arguments":"{\"a\""}}"#,
        r#"{"function":{"arguments":":1}"}}"#,
        r#"{"id":"y","function":{"name":"g","arguments":"{}"}}"#,
    ]);
    assert_eq!(by_id, (two.clone(), String::new()));
    let same_index = calls(&[
        r#"{"index":0,"id":"x","function":{"name":"f","arguments":"{\"a\":1}"}}"#,
        r#"{"index":0,"id":"y","function":{"name":"g","arguments":"{}"}}"#,
    ]);
    assert_eq!(same_index, (two, "index_anomaly".into()));
    assert_eq!(
        calls(&[r#"{"index":5,"id":"x","function":{"name":"f","arguments":"{}"}}"#]).1,
        "index_anomaly"
    );
    assert_eq!(
        calls(&[r#"{"index":-1,"id":"x","function":{"name":"f","arguments":"{}"}}"#]).1,
        "index_anomaly"
    );
}

#[test]
fn the_end_of_a_stream_needs_a_sign() {
    let hello = delta(r#"{"content":"Hello."}"#);
    let stop = ended("stop");
    flags(&stream("{}", &[&hello, &stop, "[DONE]"], End::Complete), "");
    flags(&stream("{}", &[&hello, &stop], End::Complete), "");
    flags(&stream("{}", &[&hello, "[DONE]"], End::Complete), "finish_reason_missing");
    flags(&stream("{}", &[&hello], End::Complete), "stream_incomplete");
    flags(&stream("{}", &[&hello], End::Broken), "stream_incomplete");
    flags(&stream("{}", &[], End::Complete), "stream_incomplete,empty_body");
    flags(&stream("{}", &[&hello], End::ClientGone), "");
    assert_eq!(stream("{}", &[&hello], End::ClientGone).class, Some(FaultClass::Client));
    let stalled = stream("{}", &[&hello], End::TimedOut(Limit::StreamIdle));
    flags(&stalled, "stall");
    assert_eq!(stalled.class, Some(FaultClass::Slow));
    let slow = stream("{}", &[&hello], End::TimedOut(Limit::Total));
    assert_eq!((slow.flags.to_string(), slow.class), (String::new(), Some(FaultClass::Slow)));
}

#[test]
fn an_empty_stream_that_ends_well_is_empty() {
    let role = delta(r#"{"role":"assistant","content":""}"#);
    let verdict = stream("{}", &[&role, &ended("stop"), "[DONE]"], End::Complete);
    flags(&verdict, "empty_output");
    assert_eq!(verdict.ttft_ms, None);
}

#[test]
fn errors_in_a_stream_come_in_many_clothes() {
    let role = format!("data: {}\n\n", delta(r#"{"role":"assistant"}"#));
    for body in [
        "data: {\"error\":{\"message\":\"overloaded\",\"code\":529}}\n\n",
        "event: error\ndata: {\"message\":\"overloaded\",\"code\":529}\n\n",
        "error: {\"message\":\"overloaded\",\"code\":529}\n\n",
        "{\"error\":{\"message\":\"overloaded\",\"code\":529}}\n\n",
    ] {
        let verdict = judge("{}", head(200, SSE), format!("{role}{body}").as_bytes(), End::Complete);
        flags(&verdict, "stream_error_event,stream_incomplete,overloaded");
        assert_eq!(verdict.class, Some(FaultClass::Backpressure), "{body}");
    }
    let early = whole(r#"{"stream":true}"#, "{\"error\":\"engine died\"}");
    flags(&early, "upstream_error_in_200");
    assert_eq!(early.class, Some(FaultClass::Upstream));
}

#[test]
fn usage_is_missed_in_a_stream_only_if_asked_for() {
    let events = [delta(r#"{"content":"Hi."}"#), ended("stop"), "[DONE]".into()];
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    flags(&stream(r#"{"stream":true}"#, &events, End::Complete), "");
    let asked = r#"{"stream":true,"stream_options":{"include_usage":true}}"#;
    flags(&stream(asked, &events, End::Complete), "usage_missing");
}

#[test]
fn a_long_line_makes_the_analysis_partial_and_nothing_else() {
    let long = format!("{{\"x\":\"{}\"}}", "y".repeat(300 << 10));
    let verdict =
        stream("{}", &[&delta(r#"{"content":"Hello."}"#), &long, &ended("stop"), "[DONE]"], End::Complete);
    flags(&verdict, "");
    assert!(verdict.partial && &*verdict.text == "Hello.");
}

#[test]
fn an_unreadable_event_is_told_and_skipped() {
    let verdict =
        stream("{}", &[&delta(r#"{"content":"Hello."}"#), "{oops", &ended("stop"), "[DONE]"], End::Complete);
    flags(&verdict, "unparseable_event");
    assert_eq!((verdict.class, &*verdict.text), (None, "Hello."));
}

#[test]
fn loops_stand_while_the_stream_runs() {
    let mut judge = Judge::new(ask("{}"), head(200, SSE));
    let event = format!("data: {}\n\n", delta(r#"{"content":"!"}"#));
    let mut at = None;
    for i in 0..512 {
        let progress = judge.push(i, event.as_bytes());
        assert!(progress.progressed && progress.has_content);
        if progress.flags.contains(Flag::Repetition) {
            at = Some(i);
            break;
        }
    }
    assert!(at.is_some());
}

#[test]
fn keep_alives_are_not_progress() {
    let mut judge = Judge::new(ask("{}"), head(200, SSE));
    for bytes in
        [": ping\n\n".to_owned(), format!("data: {}\n\n", delta(r#"{"role":"assistant","content":""}"#))]
    {
        let progress = judge.push(1, bytes.as_bytes());
        assert!(!progress.progressed && !progress.has_content, "{bytes}");
    }
    let done =
        judge.push(9, format!("data: {}\n\ndata: [DONE]\n\n", delta(r#"{"reasoning":"x"}"#)).as_bytes());
    assert!(done.progressed && done.has_content && done.terminal);
    assert_eq!(judge.finish(9, End::Complete).ttft_ms, Some(9));
}

#[test]
fn state_of_a_stream_stays_small() {
    let mut judge = Judge::new(ask("{}"), head(200, SSE));
    let long = delta(&format!(r#"{{"content":"{}"}}"#, "word ".repeat(2000)));
    for i in 0..200 {
        let _ = judge.push(i, format!("data: {long}\n\n").as_bytes());
    }
    assert!(judge.answer.choices[0].text.len() <= 16 << 10);
    let verdict = judge.finish(200, End::ClientGone);
    assert!(verdict.text.len() <= 16 << 10);
    assert_eq!(verdict.signals.text_bytes, 200 * 10_000);
}

#[test]
fn messages_stream_to_their_own_stop() {
    let ask = Arc::new(Ask::parse(
        Wire::Messages,
        br#"{"stream":true,"tools":[{"name":"f","input_schema":{"type":"object","required":["a"]}}]}"#,
    ));
    let body = |arguments: &str, tail: &str| {
        let arguments = serde_json::to_string(arguments).expect("a string");
        format!(
            "event: message_start\ndata: {{\"type\":\"message_start\",\"message\":{{\"usage\":{{\"input_tokens\":9,\"output_tokens\":1}}}}}}\n\n\
             event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{{\"type\":\"text\",\"text\":\"\"}}}}\n\n\
             event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"Let me look.\"}}}}\n\n\
             event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":3,\"content_block\":{{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{{}}}}}}\n\n\
             event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":3,\"delta\":{{\"type\":\"input_json_delta\",\"partial_json\":{arguments}}}}}\n\n\
             event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"tool_use\"}},\"usage\":{{\"output_tokens\":20}}}}\n\n{tail}"
        )
    };
    let of = |arguments: &str, tail: &str| {
        let mut judge = Judge::new(ask.clone(), head(200, SSE));
        let _ = judge.push(1, body(arguments, tail).as_bytes());
        judge.finish(2, End::Complete)
    };
    let stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let sound = of(r#"{"a":1}"#, stop);
    flags(&sound, "");
    assert_eq!((sound.usage.input, sound.usage.output), (Some(9), Some(20)));
    assert_eq!(sound.signals.entropy_unavailable, Some(crate::verdict::Unavailable::NotOnThisWire));
    flags(&of("{", stop), "tool_call_invalid");
    flags(
        &of(
            r#"{"a":1}"#,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n",
        ),
        "stream_error_event,overloaded",
    );
}

#[test]
fn json_under_the_name_of_a_stream_is_read_as_what_it_is() {
    let of = |body: &str| judge("{}", head(200, SSE), body.as_bytes(), End::Complete).flags.to_string();
    assert_eq!(of("{\"error\":{\"code\":500}}"), "upstream_error_in_200");
    assert_eq!(of("{\"error\":{\"code\":500}}\n"), "upstream_error_in_200");
    assert_eq!(of("{\n  \"error\": {\"code\": 500}\n}\n"), "upstream_error_in_200");
    assert_eq!(of("[{\"error\":{\"code\":500}}]"), "upstream_error_in_200");
    let answer = r#"{"choices":[{"message":{"content":"Hi."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
    assert_eq!(of(answer), "");
    assert_eq!(of(&format!("{answer}\n")), "");
}

#[test]
fn other_events_of_a_stream_are_no_errors() {
    let hello = delta(r#"{"content":"Hello."}"#);
    let verdict = stream(
        "{}",
        &[r#"{"status":"queued","message":"place 3"}"#, "null", &hello, &ended("stop"), "\"[done]\""],
        End::Complete,
    );
    flags(&verdict, "");
}

#[test]
fn no_text_is_unread_when_the_last_sign_comes() {
    let address = "https://example.org/a/very/long/path/to/something ";
    let text = include_str!("../../../tests/fixtures/traces/corrupt-10pct.answers.jsonl");
    let answers =
        text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an answer"));
    let salad: String = answers.map(|a| a["text"].as_str().expect("a text").to_owned() + " ").collect();
    for sign in [ended("stop"), "[DONE]".to_owned()] {
        let mut waited = false;
        for tokens in 30..90 {
            let asked = br#"{"stream":true,"messages":[{"role":"user","content":"Name a primary colour."}]}"#;
            let ask = Arc::new(Ask::parse(Wire::Chat, asked));
            let mut judge = Judge::new(ask, Head { status: 200, ..Head::default() });
            let mut push = |data: &str| judge.push(0, format!("data: {data}\n\n").as_bytes()).flags;
            for token in std::iter::once(address).chain(salad.split_inclusive(' ')).take(tokens) {
                push(&delta(&serde_json::json!({ "content": token }).to_string()));
            }
            let before = push(&delta("{}"));
            let with_sign = push(&sign);
            assert_eq!(with_sign, judge.catch_up().flags, "{tokens} tokens");
            waited |= before != with_sign;
        }
        assert!(waited, "some number of tokens ends inside of what is gathered");
    }
}

use super::super::tests::{all_events, events};
use super::super::{Form, Wire};

fn whole(text: &str) -> Vec<String> {
    events(Wire::Responses, text, true)
}

fn stream(documents: &[&str]) -> Vec<String> {
    let all: Vec<_> = documents.iter().map(|d| (Form::Event(b""), *d)).collect();
    all_events(Wire::Responses, &all)
}

#[test]
fn a_whole_response_has_all_channels() {
    let text = r#"{"id":"resp_1","object":"response","status":"completed","error":null,"incomplete_details":null,
        "model":"m","output":[
        {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"plan"}],"content":[{"type":"reasoning_text","text":"hm"}]},
        {"type":"web_search_call","id":"ws_1","status":"completed"},
        {"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[
            {"type":"output_text","text":"Hi","annotations":[],"logprobs":[{"token":"Hi","logprob":-0.5,"bytes":[72,105],"top_logprobs":[]}]},
            {"type":"refusal","refusal":"no"}]},
        {"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{\"a\":1}","status":"completed"}],
        "usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":8},"output_tokens":87,
            "output_tokens_details":{"reasoning_tokens":64},"total_tokens":123}}"#;
    let wanted = [
        "model m",
        "0 Reasoning plan",
        "0 Reasoning hm",
        r#"0 "Hi"=-0.5"#,
        "0 Text Hi",
        "0 Refusal no",
        r#"0 tool Some(3) - f {"a":1}"#,
        "0 finish completed",
        "usage Some(36) Some(87) Some(64) Some(8)",
    ];
    assert_eq!(whole(text), wanted);
}

#[test]
fn what_is_told_in_pieces_and_again_in_whole_counts_once() {
    let told = stream(&[
        r#"{"type":"response.created","response":{"id":"r","model":"m","status":"in_progress","output":[],"error":null},"sequence_number":0}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","content":[]}}"#,
        r#"{"type":"response.content_part.added","item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":""}}"#,
        r#"{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hel","logprobs":[{"token":"Hel","logprob":-1,"top_logprobs":[]}]}"#,
        r#"{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"lo","logprobs":[]}"#,
        r#"{"type":"response.output_text.done","item_id":"msg_1","output_index":0,"content_index":0,"text":"Hello","logprobs":[{"token":"Hel","logprob":-1}]}"#,
        r#"{"type":"response.content_part.done","item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"Hello"}}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Hello"}]}}"#,
        r#"{"type":"response.completed","response":{"model":"m","status":"completed","output":[{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Hello"}]}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}}"#,
    ]);
    let wanted = [
        "model m",
        r#"0 "Hel"=-1"#,
        "0 Text Hel",
        "0 Text lo",
        "model m",
        "0 finish completed",
        "usage Some(1) Some(2) None None",
        "end",
    ];
    assert_eq!(told, wanted);
}

#[test]
fn servers_that_tell_only_at_the_end_are_heard() {
    let item = r#"{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Hello"}]}"#;
    let done = format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{item}}}"#);
    let bare = r#"{"type":"response.completed","response":{"id":"r","status":"completed"}}"#;
    assert_eq!(stream(&[&done, bare]), ["0 Text Hello", "0 finish completed", "end"]);
    let full =
        format!(r#"{{"type":"response.completed","response":{{"status":"completed","output":[{item}]}}}}"#);
    assert_eq!(stream(&[&full]), ["0 Text Hello", "0 finish completed", "end"]);
    assert_eq!(stream(&[&done, &full]), ["0 Text Hello", "0 finish completed", "end"]);
    let handy = r#"{"object":"response","status":"completed","output_text":"Hello"}"#;
    assert_eq!(whole(handy), ["0 Text Hello", "0 finish completed"]);
}

#[test]
fn a_call_comes_together_whatever_its_ids() {
    let added = r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"fc_1","call_id":"call_1","type":"function_call","name":"f","arguments":""}}"#;
    let piece = r#"{"type":"response.function_call_arguments.delta","output_index":1,"item_id":"fc_2","delta":"{\"a\":"}"#;
    let last =
        r#"{"type":"response.function_call_arguments.delta","output_index":1,"item_id":"fc_3","delta":"1}"}"#;
    let all = r#"{"type":"response.function_call_arguments.done","output_index":1,"item_id":"fc_4","name":"f","arguments":"{\"a\":1}"}"#;
    let done = r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"fc_5","type":"function_call","name":"f","arguments":"{\"a\":1}"}}"#;
    let told = ["0 tool Some(1) - f ", r#"0 tool Some(1) - - {"a":"#, "0 tool Some(1) - - 1}"];
    assert_eq!(stream(&[added, piece, last, all, done]), told);
    assert_eq!(stream(&[added, all, done]), ["0 tool Some(1) - f ", r#"0 tool Some(1) - - {"a":1}"#]);
    assert_eq!(stream(&[done]), [r#"0 tool Some(1) - f {"a":1}"#]);
    let custom = r#"{"type":"response.custom_tool_call_input.delta","output_index":0,"delta":"ls"}"#;
    assert_eq!(stream(&[custom]), ["0 tool Some(0) - - ls"]);
}

#[test]
fn reasoning_and_commentary_are_not_the_answer() {
    let added =
        |item: &str| format!(r#"{{"type":"response.output_item.added","output_index":0,"item":{item}}}"#);
    let delta = r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"x"}"#;
    for item in
        [r#"{"type":"reasoning","id":"a"}"#, r#"{"type":"message","phase":"commentary","content":[]}"#]
    {
        assert_eq!(stream(&[&added(item), delta]), ["0 Reasoning x"], "{item}");
    }
    for kind in ["reasoning_text", "reasoning", "reasoning_summary_text", "reasoning_summary"] {
        for delta in [r#""x""#, r#"{"text":"x"}"#] {
            let event = format!(r#"{{"type":"response.{kind}.delta","output_index":0,"delta":{delta}}}"#);
            assert_eq!(stream(&[&event]), ["0 Reasoning x"], "{event}");
        }
    }
    let hidden = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}}"#;
    assert_eq!(stream(&[hidden]), ["0 Reasoning \u{2026}"]);
}

#[test]
fn the_type_may_stand_in_the_events_name_alone() {
    let pieces = [
        (Form::Event(b"response.output_text.delta"), r#"{"delta":"Hi"}"#),
        (Form::Event(b"response.completed"), r#"{"response":{"status":"completed","output":[]}}"#),
    ];
    assert_eq!(all_events(Wire::Responses, &pieces), ["0 Text Hi", "0 finish completed", "end"]);
}

#[test]
fn why_it_ended_is_told_by_status_and_details() {
    let last = |kind: &str, rest: &str| {
        stream(&[&format!(
            r#"{{"type":"response.{kind}","response":{{"status":"{kind}",{rest}"output":[]}}}}"#
        )])
    };
    assert_eq!(
        last("incomplete", r#""incomplete_details":{"reason":"max_output_tokens"},"#),
        ["0 finish max_output_tokens", "end"]
    );
    assert_eq!(
        last("failed", r#""error":{"code":"rate_limit_exceeded","message":"slow down"},"#),
        ["error RateLimited slow down", "0 finish failed", "end"]
    );
    assert_eq!(last("failed", "")[0].split(' ').take(2).collect::<Vec<_>>(), ["error", "Server"]);
    assert_eq!(
        whole(r#"{"object":"response","status":"queued","output":[]}"#),
        ["0 other", "0 finish queued"]
    );
}

#[test]
fn errors_come_in_several_shapes() {
    for (text, wanted) in [
        (r#"{"type":"error","code":"server_error","message":"boom","param":null}"#, "error Server boom"),
        (r#"{"type":"error","error":{"type":"server_error","message":"boom"}}"#, "error Server boom"),
        (
            r#"{"type":"response.error","error":{"code":"rate_limit_exceeded","message":"slow"}}"#,
            "error RateLimited slow",
        ),
        (r#"{"error":{"message":"boom","type":"server_error","code":null}}"#, "error Server boom"),
        (r#"{"detail":"Not Found"}"#, "error Client Not Found"),
    ] {
        assert_eq!(stream(&[text]), [wanted], "{text}");
        assert_eq!(whole(text), [wanted], "{text}");
    }
    assert_eq!(
        whole(r#"{"object":"response","status":"failed","error":{"code":"invalid_prompt","message":"no"}}"#),
        ["error Client no"]
    );
    let filtered =
        r#"{"object":"response","status":"completed","output":[],"content_filters":[{"blocked":true}]}"#;
    assert_eq!(whole(filtered), ["filtered", "0 finish completed"]);
}

#[test]
fn nothing_is_mandatory() {
    for text in [
        "{}",
        "[]",
        "null",
        r#"{"type":"response.completed"}"#,
        r#"{"type":"response.output_text.delta"}"#,
        r#"{"type":"response.output_text.delta","delta":{}}"#,
        r#"{"type":"response.output_item.done","item":[]}"#,
        r#"{"type":"response.function_call_arguments.delta","delta":7}"#,
        r#"{"type":"response.something_new.delta","delta":"x"}"#,
        r#"{"object":"response","output":[3,null,{"type":"function_call"},{"type":"message","content":[{}]}]}"#,
    ] {
        for told in [stream(&[text]), whole(text)] {
            assert!(told.iter().all(|e| e == "end"), "{text} {told:?}");
        }
    }
}

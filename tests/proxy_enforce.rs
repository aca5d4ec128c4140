//! In enforce mode another try is free until an answer has begun well, and nothing is taken back after.

mod common;

use std::time::Duration;

use common::upstream::{Act, Upstream, chunk, end, json, sse, sse_head, whole};
use common::{ASK, ASK_STREAM, Served, chat_json, chat_stream, event, eventually, tiers};
use touchstone::verdict::{BreakerState, FaultClass, Flag, Reason};

const FAST: &str = "[retry]\nbackoff_first=\"5ms\"\nbackoff_max=\"20ms\"\n";

fn enforce(upstreams: &[&Upstream], more: &str) -> Served {
    Served::start(&tiers("enforce", upstreams, &format!("{FAST}{more}")))
}

fn sound() -> Upstream {
    Upstream::start(|seen, _| {
        if seen.text().contains("\"stream\":true") {
            sse(&chat_stream())
        } else {
            json(200, &chat_json("Red."))
        }
    })
}

fn error(status: u16) -> Vec<Act> {
    json(status, "{\"error\":{\"message\":\"down\",\"type\":\"server_error\"}}")
}

#[test]
fn a_sound_answer_is_delivered_as_it_is_with_its_verdict() {
    let upstream = sound();
    let served = enforce(&[&upstream], "");
    let answer = served.chat(&[], ASK);
    assert_eq!(answer.text(), chat_json("Red."));
    assert_eq!(answer.header("x-touchstone-verdict"), Some("ok"));
    assert_eq!(answer.header("x-touchstone-attempts"), Some("1"));
    let answer = served.chat(&[], ASK_STREAM);
    assert_eq!(answer.text(), chat_stream().concat());
    assert_eq!(answer.header("x-touchstone-verdict"), None, "not known before the headers left");
    assert_eq!(served.reports_of(2).outcomes.len(), 2);
}

#[test]
fn a_failing_tier_gives_way_to_the_next_with_the_callers_own_request() {
    for failing in
        [error(500), vec![Act::Close], vec![Act::Reset], json(200, "{\"error\":{\"message\":\"x\"}}")]
    {
        let first = Upstream::always(failing.clone());
        let second = sound();
        let served = enforce(&[&first, &second], "");
        let answer =
            served.chat(&[("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")], ASK);
        assert_eq!(answer.text(), chat_json("Red."), "{failing:?}");
        assert_eq!(answer.header("x-touchstone-tier"), Some("1"));
        assert_eq!(answer.header("x-touchstone-target"), Some("t1"));
        assert_eq!(answer.header("x-touchstone-degraded"), Some("upstream_error"), "{failing:?}");
        assert_eq!(answer.header("x-touchstone-attempts"), Some("3"), "one more try, then the next tier");
        let seen = &second.seen()[0];
        assert_eq!(seen.text(), ASK.replace("assistant", "model-1"));
        assert_eq!(
            seen.header("traceparent"),
            Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        );
        let reports = served.reports_of(1);
        assert_eq!(reports.done[0].reason, Some(Reason::UpstreamError));
        assert_eq!(reports.exchanges[0].attempts.len(), 3);
        assert_eq!(reports.outcomes.iter().filter(|o| o.class == Some(FaultClass::Upstream)).count(), 2);
    }
}

#[test]
fn a_refused_connection_gives_way_too() {
    let gone = Upstream::always(vec![]).url();
    let second = sound();
    let text = tiers("enforce", &[&second, &second], FAST).replacen(&second.url(), &gone, 1);
    let answer = Served::start(&text).chat(&[], ASK);
    assert_eq!(answer.text(), chat_json("Red."));
    assert_eq!(answer.header("x-touchstone-tier"), Some("1"));
}

#[test]
fn an_open_breaker_is_not_called_and_all_open_is_a_typed_error() {
    let (first, second) = (sound(), sound());
    let served = enforce(&[&first, &second], "");
    served.publish("t0", BreakerState::Open);
    let answer = served.chat(&[], ASK);
    assert_eq!(answer.header("x-touchstone-degraded"), Some("breaker_open"));
    assert_eq!(answer.header("x-touchstone-breaker"), Some("open"));
    assert_eq!(answer.header("x-touchstone-attempts"), Some("1"));
    let kept = served.chat(&[("x-touchstone-no-fallback", "1")], ASK);
    assert_eq!(kept.status, 503, "stays on its tier");
    served.publish("t1", BreakerState::Open);
    let answer = served.chat(&[], ASK);
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (503, Some("breaker_open")));
    assert_eq!(answer.header("retry-after"), Some("10"));
    assert_eq!(answer.header("x-touchstone-tier"), None);
    assert_eq!((first.calls(), second.calls()), (0, 1));
}

#[test]
fn an_unusable_answer_is_tried_once_more_and_then_elsewhere() {
    let first = Upstream::always(json(200, &chat_json("")));
    let second = sound();
    let served = enforce(&[&first, &second], "");
    let answer = served.chat(&[], ASK);
    assert_eq!(answer.text(), chat_json("Red."));
    assert_eq!(answer.header("x-touchstone-degraded"), Some("quality:empty_output"));
    assert_eq!((first.calls(), second.calls()), (2, 1));
    assert_eq!(answer.header("x-touchstone-attempts"), Some("3"));
    let reports = served.reports_of(1);
    assert_eq!(reports.outcomes[0].class, Some(FaultClass::QualityHard));
    assert!(reports.exchanges[0].attempts[0].flags.contains(Flag::EmptyOutput));
}

#[test]
fn when_every_answer_is_bad_the_last_is_delivered_unchanged_and_says_so() {
    let bad = Upstream::always(json(200, &chat_json("")));
    let answer = enforce(&[&bad], "").chat(&[], ASK);
    assert_eq!((answer.status, answer.text()), (200, chat_json("")));
    assert_eq!(answer.header("x-touchstone-degraded"), Some("quality:empty_output"));
    assert!(answer.header("x-touchstone-verdict").is_some_and(|v| v.contains("empty_output")));
    assert_eq!(bad.calls(), 2);
    let down = Upstream::always(error(500));
    let served = enforce(&[&bad, &down], "");
    let answer = served.chat(&[], ASK);
    assert_eq!((answer.status, answer.text()), (200, chat_json("")), "better than an error");
    assert_eq!(answer.header("x-touchstone-target"), Some("t0"));
}

#[test]
fn the_upstreams_own_error_is_delivered_when_nothing_else_is_left() {
    let down = Upstream::always(error(503));
    let served = enforce(&[&down], "[limits]\ntotal=\"10s\"");
    let answer = served.chat(&[("x-touchstone-no-retry", "true")], ASK);
    assert_eq!(answer.status, 503);
    assert_eq!(answer.text(), "{\"error\":{\"message\":\"down\",\"type\":\"server_error\"}}");
    assert_eq!(down.calls(), 1);
}

#[test]
fn the_callers_fault_and_a_filter_are_delivered_at_once() {
    let bodies = [
        (400, "{\"error\":{\"message\":\"bad temperature\",\"type\":\"invalid_request_error\"}}"),
        (422, "{\"error\":{\"message\":\"no\"}}"),
    ];
    for (status, body) in bodies {
        let first = Upstream::always(json(status, body));
        let second = sound();
        let answer = enforce(&[&first, &second], "").chat(&[], ASK);
        assert_eq!((answer.status, answer.text().as_str()), (status, body));
        assert_eq!((first.calls(), second.calls()), (1, 0));
    }
    let filtered = chat_json("").replace("\"stop\"", "\"content_filter\"");
    let first = Upstream::always(json(200, &filtered));
    let second = sound();
    let answer = enforce(&[&first, &second], "").chat(&[], ASK);
    assert_eq!((answer.status, answer.text()), (200, filtered));
    assert_eq!((first.calls(), second.calls()), (1, 0));
}

#[test]
fn a_wrong_key_or_path_of_a_target_sends_the_request_elsewhere() {
    let first = Upstream::always(error(404));
    let second = sound();
    let answer = enforce(&[&first, &second], "").chat(&[], ASK);
    assert_eq!((answer.status, answer.header("x-touchstone-tier")), (200, Some("1")));
    assert_eq!(first.calls(), 1);
}

#[test]
fn a_prompt_too_long_goes_only_to_a_larger_context() {
    let full = json(
        400,
        "{\"error\":{\"message\":\"This model's maximum context length is 4096 tokens.\",\"code\":\"context_length_exceeded\"}}",
    );
    let first = Upstream::always(full);
    let (small, large) = (sound(), sound());
    let text = tiers("enforce", &[&first, &small, &large], FAST)
        .replace("model = \"model-0\"", "model = \"model-0\"\nmax_context_tokens = 4096")
        .replace("model = \"model-1\"", "model = \"model-1\"\nmax_context_tokens = 2048")
        .replace("model = \"model-2\"", "model = \"model-2\"\nmax_context_tokens = 32768");
    let answer = Served::start(&text).chat(&[], ASK);
    assert_eq!(answer.header("x-touchstone-target"), Some("t2"));
    assert_eq!(answer.header("x-touchstone-degraded"), Some("context_too_long"));
    assert_eq!((first.calls(), small.calls(), large.calls()), (1, 0, 1));
}

#[test]
fn a_short_retry_after_is_waited_for_exactly() {
    let upstream = Upstream::start(|_, n| {
        if n == 0 {
            whole(429, "retry-after: 0.3\r\ncontent-type: application/json\r\n", "{\"error\":{}}")
        } else {
            json(200, &chat_json("Red."))
        }
    });
    let served = enforce(&[&upstream], "");
    let answer = served.chat(&[], ASK);
    assert_eq!((answer.status, answer.header("x-touchstone-attempts")), (200, Some("2")));
    assert!(
        answer.took >= Duration::from_millis(300) && answer.took < Duration::from_secs(2),
        "{:?}",
        answer.took
    );
    let reports = served.reports_of(1);
    assert_eq!(reports.outcomes[0].class, Some(FaultClass::Backpressure));
    assert_eq!(reports.outcomes[0].retry_after_ms, Some(300));
}

#[test]
fn a_silent_target_costs_one_limit_and_is_not_asked_again() {
    for silent in [vec![Act::Hang], vec![sse_head(), chunk(": keep-alive\n\n"), Act::Hang]] {
        let first = Upstream::always(silent);
        let second = sound();
        let limits = "[limits]\nheaders=\"200ms\"\nfirst_text=\"200ms\"";
        let answer = enforce(&[&first, &second], limits).chat(&[], ASK_STREAM);
        assert_eq!(answer.text(), chat_stream().concat());
        assert_eq!(answer.header("x-touchstone-degraded"), Some("slow"));
        assert!(answer.took < Duration::from_secs(2), "{:?}", answer.took);
        assert_eq!(first.calls(), 1);
        eventually("the silent call is ended", || first.left() == 1);
    }
}

#[test]
fn a_stream_that_fails_before_its_first_content_is_rescued_whole() {
    let role = event("{\"role\":\"assistant\",\"content\":\"\"}", None);
    let fault = "data: {\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\"}}\n\n";
    let failing = [
        vec![sse_head(), chunk(&role), chunk(fault), end()],
        vec![sse_head(), chunk(&role), Act::Wait(20), Act::Close],
        sse(&[role.clone(), event("{}", Some("stop")), "data: [DONE]\n\n".to_owned()]),
    ];
    for acts in failing {
        let first = Upstream::always(acts);
        let second = sound();
        let answer = enforce(&[&first, &second], "").chat(&[], ASK_STREAM);
        assert!(answer.whole);
        assert_eq!(answer.text(), chat_stream().concat(), "not a byte of the failed one");
        assert_eq!(answer.header("x-touchstone-tier"), Some("1"));
    }
}

#[test]
fn after_the_first_content_there_is_only_an_honest_break() {
    let begun = event("{\"content\":\"Red \"}", None);
    let first = Upstream::always(vec![sse_head(), chunk(&begun), Act::Wait(30), Act::Close]);
    let second = sound();
    let served = enforce(&[&first, &second], "");
    let answer = served.chat(&[], ASK_STREAM);
    assert!(!answer.whole);
    assert_eq!(answer.text(), begun);
    assert_eq!(second.calls(), 0);
    let stalled =
        Upstream::always(vec![sse_head(), chunk(&begun), Act::Wait(20), chunk(": ping\n\n"), Act::Hang]);
    let served = enforce(&[&stalled, &second], "[limits]\nstream_idle=\"150ms\"");
    let answer = served.chat(&[], ASK_STREAM);
    assert!(!answer.whole, "keep-alives are no progress");
    let reports = served.reports_of(1);
    assert_eq!(reports.outcomes[0].class, Some(FaultClass::Slow));
    assert!(reports.outcomes[0].flags.contains(Flag::Stall));
    assert!(reports.exchanges[0].partial);
}

#[test]
fn the_cache_answers_when_no_target_can() {
    let upstream = sound();
    let text =
        tiers("enforce", &[&upstream], FAST).replace("tiers = [[\"t0\"]]", "tiers = [[\"t0\"], [\"cache\"]]");
    let served = Served::start(&text);
    served.chat(&[], ASK);
    served.chat(&[], ASK_STREAM);
    eventually("both are kept", || served.proxy.cache().size().0 == 2);
    served.publish("t0", BreakerState::Open);
    let answer = served.chat(&[], &ASK.replace("\"messages\"", "\"user\":\"u-1\",\"messages\""));
    assert_eq!(answer.text(), chat_json("Red."));
    assert_eq!(answer.header("x-touchstone-tier"), Some("cache"));
    assert_eq!(answer.header("x-touchstone-degraded"), Some("breaker_open"));
    assert_eq!(answer.header("x-touchstone-attempts"), Some("0"));
    assert_eq!(answer.header("age"), Some("0"));
    assert!(answer.header("x-touchstone-cached-at").is_some_and(|at| at.ends_with('Z')));
    let answer = served.chat(&[], ASK_STREAM);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.text(), chat_stream().concat());
    assert_eq!(served.chat(&[("x-touchstone-no-cache", "1")], ASK).status, 503);
    assert_eq!(served.chat(&[], &ASK.replace("colour", "number")).status, 503, "another question");
    assert_eq!(upstream.calls(), 2);
    assert_eq!(&*served.reports_of(4).done[2].tier, "cache");
}

#[test]
fn bad_answers_are_never_kept() {
    let bodies = [
        chat_json(""),
        chat_json("Red.").replace("\"stop\"", "\"length\""),
        chat_json("Red.").replace("\"stop\"", "\"content_filter\""),
        "{\"choices\":[]}".to_owned(),
    ];
    for body in bodies {
        let upstream = Upstream::always(json(200, &body));
        let text = tiers("enforce", &[&upstream], FAST).replace("[[\"t0\"]]", "[[\"t0\"], [\"cache\"]]");
        let served = Served::start(&text);
        served.chat(&[], ASK);
        drop(served.reports_of(1));
        assert_eq!(served.proxy.cache().size(), (0, 0), "{body}");
    }
}

#[test]
fn a_request_without_tokens_ends_with_the_upstreams_status() {
    let upstream = Upstream::always(error(500));
    let served = enforce(&[&upstream, &sound()], "tokens_per_request = 0");
    let answer = served.chat(&[], ASK);
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (500, Some("retry_budget_exhausted"))
    );
    assert_eq!(upstream.calls(), 1);
}

#[test]
fn a_deadline_ends_all_tries() {
    let upstream = Upstream::always(vec![Act::Hang]);
    let answer = enforce(&[&upstream, &upstream], "").chat(&[("x-touchstone-deadline-ms", "150")], ASK);
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (504, Some("upstream_timeout")));
    assert!(answer.took < Duration::from_secs(1));
    assert_eq!(upstream.calls(), 1);
}

#[test]
fn a_caller_that_leaves_while_the_answer_is_held_ends_the_call() {
    let upstream = Upstream::always(vec![sse_head(), chunk(": wait\n\n"), Act::Hang]);
    let served = enforce(&[&upstream], "");
    let port = served.port;
    let ask = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{ASK_STREAM}",
        ASK_STREAM.len()
    );
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connects");
    std::io::Write::write_all(&mut stream, ask.as_bytes()).expect("sends");
    eventually("the call is under way", || upstream.calls() == 1);
    drop(stream);
    eventually("the call is ended", || upstream.left() == 1);
    let reports = served.reports_of(1);
    assert_eq!((reports.done[0].client_status, reports.outcomes.len()), (499, 1));
}

#[test]
fn a_monitor_that_stands_still_is_not_believed_and_that_is_told() {
    let upstream = sound();
    let served = enforce(&[&upstream], "");
    served.publish("t0", BreakerState::Open);
    served.gate.beat(touchstone::clock::Clock::system().now().minus_ms(4_000));
    assert_eq!((served.chat(&[], ASK).status, served.proxy.is_gate_stale()), (503, false));
    served.gate.beat(touchstone::clock::Clock::system().now().minus_ms(6_000));
    assert_eq!((served.chat(&[], ASK).status, served.proxy.is_gate_stale()), (200, true), "all are admitted");
}

#[test]
fn the_last_target_is_admitted_though_suspect_and_says_so() {
    let upstream = sound();
    let served = enforce(&[&upstream], "");
    let mut published = touchstone::gate::Published::default();
    (published.admission.share, published.admission.cause) = (0.2, Reason::LastTarget.as_str());
    served.gate.publish("t0", published);
    for _ in 0..20 {
        let answer = served.chat(&[], ASK);
        assert_eq!((answer.status, answer.header("x-touchstone-degraded")), (200, Some("last_target")));
        assert_eq!(answer.header("x-touchstone-tier"), Some("0"));
    }
}

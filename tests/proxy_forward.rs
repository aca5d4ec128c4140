//! What passes through the proxy is what was sent, in both directions, and ends as it ended.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::upstream::{Act, Upstream, chunk, end, json, sse, sse_head, whole};
use common::{ASK, ASK_STREAM, Served, chat_json, chat_stream, event, eventually, http, tiers};
use touchstone::clock::Stopwatch;
use touchstone::verdict::{BreakerState, FaultClass, Flag};

fn shadow(upstream: &Upstream) -> Served {
    Served::start(&tiers("shadow", &[upstream], ""))
}

#[test]
fn a_json_answer_is_the_upstreams_byte_for_byte() {
    let body = chat_json("Red is a primary colour.");
    let upstream =
        Upstream::always(whole(200, "content-type: application/json\r\nx-odd: 1\r\nx-odd: 2\r\n", &body));
    let served = shadow(&upstream);
    let answer = served.chat(&[], ASK);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.text(), body);
    assert_eq!(answer.headers.iter().filter(|(n, _)| n == "x-odd").count(), 2);
    assert_eq!(answer.header("x-touchstone-target"), Some("t0"));
    assert_eq!(answer.header("x-touchstone-tier"), Some("0"));
    assert_eq!(answer.header("x-touchstone-attempts"), Some("1"));
    assert_eq!(answer.header("x-touchstone-breaker"), Some("closed"));
    assert_eq!(answer.header("x-touchstone-degraded"), None);
    let id = answer.header("x-touchstone-request-id").expect("an id").to_owned();

    let reports = served.reports_of(1);
    assert_eq!(&*reports.exchanges[0].id, id);
    assert_eq!(reports.exchanges[0].client_status, 200);
    assert_eq!(reports.done[0].attempts, 1);
    let sample = &reports.samples[0];
    assert_eq!((sample.class, sample.usage.output), (None, Some(4)));
    assert_eq!(sample.answer_text.as_deref(), Some("Red is a primary colour."));
    assert_eq!(sample.prompt_text.as_deref(), Some("Name a primary colour."));
}

#[test]
fn a_stream_is_the_upstreams_byte_for_byte_and_is_judged() {
    let pieces: Vec<String> = chat_stream();
    let whole: String = pieces.concat();
    let split: Vec<String> =
        whole.as_bytes().chunks(7).map(|c| String::from_utf8_lossy(c).into_owned()).collect();
    let upstream = Upstream::always(sse(&split));
    let served = shadow(&upstream);
    let answer = served.chat(&[], ASK_STREAM);
    assert!(answer.whole);
    assert_eq!(answer.text(), whole);
    let reports = served.reports_of(1);
    assert_eq!(reports.samples[0].answer_text.as_deref(), Some("Red is a primary colour."));
    assert_eq!(reports.outcomes[0].class, None);
    assert!(reports.outcomes[0].streaming && reports.outcomes[0].timing.ttft_ms.is_some());
}

#[test]
fn only_the_models_bytes_of_a_request_change() {
    let upstream = Upstream::always(json(200, &chat_json("Red.")));
    let served = shadow(&upstream);
    let odd = "{ \"n\" : 1.50e0 ,\t\"model\" :\"assistant\", \"messages\":[{\"role\":\"user\",\"content\":\"\\u0041\"}]}";
    served.chat(&[], odd);
    assert_eq!(upstream.seen()[0].text(), odd.replace("\"assistant\"", "\"model-0\""));
}

#[test]
fn headers_of_the_connection_and_of_the_daemon_stay_behind() {
    let headers = "content-type: application/json\r\nkeep-alive: timeout=5\r\nx-secret-hop: 1\r\nconnection: keep-alive, x-secret-hop\r\n";
    let upstream = Upstream::always(whole(200, headers, &chat_json("Red.")));
    let served = shadow(&upstream);
    let answer = served.chat(
        &[
            ("authorization", "Bearer callers-own"),
            ("te", "trailers"),
            ("x-touchstone-workflow", "run-1"),
            ("x-mine", "stays"),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ],
        ASK,
    );
    assert_eq!(answer.header("keep-alive"), None);
    assert_eq!(answer.header("x-secret-hop"), None);
    let seen = &upstream.seen()[0];
    for gone in ["te", "authorization", "x-touchstone-workflow", "connection"] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
    assert_eq!(seen.header("x-mine"), Some("stays"));
    assert_eq!(seen.header("host"), Some(&*format!("127.0.0.1:{}", upstream.port())));
    assert_eq!(seen.header("traceparent"), Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
    let reports = served.reports_of(1);
    assert_eq!(&*reports.exchanges[0].trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(reports.exchanges[0].workflow.as_deref(), Some("run-1"));
}

#[test]
fn a_trace_is_made_where_there_is_none_and_credentials_travel_where_allowed() {
    let upstream = Upstream::always(json(200, &chat_json("Red.")));
    let text = format!(
        "mode=\"shadow\"\n[[target]]\nname=\"a\"\nurl=\"{}\"\nforward_auth=true\n[[route]]\nname=\"r\"\ntiers=[[\"a\"]]",
        upstream.url()
    );
    let served = Served::start(&text);
    served.chat(&[("authorization", "Bearer mine"), ("traceparent", "nonsense")], ASK);
    let seen = &upstream.seen()[0];
    let parent = seen.header("traceparent").expect("made");
    assert_eq!((parent.len(), &parent[..3]), (55, "00-"));
    assert_eq!(seen.header("authorization"), Some("Bearer mine"));
    assert_eq!(seen.text(), ASK, "without a model of its own the target gets the caller's");
}

/// A caller that reads `bytes` of the answer and leaves.
fn leave_after(port: u16, bytes: usize) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connects");
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        ASK_STREAM.len()
    );
    stream.write_all(head.as_bytes()).expect("sends");
    stream.write_all(ASK_STREAM.as_bytes()).expect("sends");
    if bytes > 0 {
        stream.read_exact(&mut vec![0; bytes]).expect("reads");
    } else {
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_caller_that_leaves_ends_the_upstreams_call_at_once() {
    for (acts, bytes) in [
        (vec![sse_head(), chunk(&event("{\"content\":\"Red \"}", None)), Act::Hang], 40),
        (vec![Act::Hang], 0), // before the headers
    ] {
        let upstream = Upstream::always(acts);
        let served = shadow(&upstream);
        leave_after(served.port, bytes);
        let watch = Stopwatch::start();
        eventually("the upstream's connection is closed", || upstream.left() == 1);
        assert!(watch.elapsed() < Duration::from_secs(1), "{:?}", watch.elapsed());
        let reports = served.reports_of(1);
        assert_eq!(reports.done[0].client_status, 499);
        assert_eq!(reports.outcomes[0].class, Some(FaultClass::Client));
        assert!(reports.exchanges[0].partial);
    }
}

#[test]
fn a_cut_answer_never_ends_cleanly() {
    let first = event("{\"content\":\"Red \"}", None);
    let head = |framing: &str| {
        Act::Send(format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{framing}\r\n").into_bytes())
    };
    let cuts = [
        ("chunked, closed", vec![sse_head(), chunk(&first), Act::Wait(30), Act::Close]),
        ("chunked, reset", vec![sse_head(), chunk(&first), Act::Wait(30), Act::Reset]),
        (
            "shorter than declared",
            vec![head("content-length: 9999\r\n"), Act::Send(first.clone().into()), Act::Close],
        ),
        (
            "only the connection's end",
            vec![head(""), Act::Send(first.clone().into()), Act::Wait(30), Act::Close],
        ),
    ];
    for (what, acts) in cuts {
        let upstream = Upstream::always(acts);
        let served = shadow(&upstream);
        let answer = served.chat(&[], ASK_STREAM);
        assert!(!answer.whole, "{what}");
        assert_eq!(answer.text(), first, "{what}: what came is delivered");
        let reports = served.reports_of(1);
        assert_eq!(reports.outcomes[0].class, Some(FaultClass::Upstream), "{what}");
        assert!(reports.outcomes[0].flags.contains(Flag::StreamIncomplete), "{what}");
    }
}

#[test]
fn a_stream_that_only_the_connections_end_ends_is_whole_with_its_terminal_sign() {
    let body = chat_stream().concat();
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n".to_vec();
    let upstream = Upstream::always(vec![Act::Send(head), Act::Send(body.clone().into()), Act::Close]);
    let served = shadow(&upstream);
    let answer = served.chat(&[], ASK_STREAM);
    assert!(answer.whole);
    assert_eq!(answer.text(), body);
}

#[test]
fn shadow_mode_holds_changes_and_repeats_nothing() {
    let bad = chat_json("");
    let first = Upstream::start({
        let bad = bad.clone();
        move |_, n| if n == 0 { json(200, &bad) } else { json(500, "{\"error\":{\"message\":\"down\"}}") }
    });
    let second = Upstream::always(json(200, &chat_json("Red.")));
    let served =
        Served::start(&tiers("shadow", &[&first, &second], "[limits]\nheaders=\"20ms\"\ntotal=\"20ms\""));
    served.publish("t0", BreakerState::Open);
    let answer = served.chat(&[], ASK);
    assert_eq!((answer.status, answer.text()), (200, bad), "an empty answer is delivered as it is");
    assert_eq!(answer.header("x-touchstone-breaker"), Some("open"), "what it would be");
    assert_eq!(answer.header("x-touchstone-degraded"), None);
    let answer = served.chat(&[], ASK);
    assert_eq!(answer.status, 500);
    assert_eq!(answer.text(), "{\"error\":{\"message\":\"down\"}}");
    assert_eq!((first.calls(), second.calls()), (2, 0));
    let reports = served.reports_of(2);
    assert_eq!(reports.outcomes[0].class, Some(FaultClass::QualityHard));
    assert_eq!(reports.outcomes[1].class, Some(FaultClass::Upstream));
}

#[test]
fn in_shadow_mode_a_limit_that_runs_out_is_noted_and_cuts_nothing() {
    let mut acts = vec![sse_head(), Act::Wait(150)];
    acts.extend(chat_stream().iter().map(|piece| chunk(piece)));
    acts.push(end());
    let upstream = Upstream::always(acts);
    let served = Served::start(&tiers("shadow", &[&upstream], "[limits]\nfirst_text=\"50ms\""));
    let answer = served.chat(&[], ASK_STREAM);
    assert_eq!(answer.text(), chat_stream().concat());
    let reports = served.reports_of(1);
    assert_eq!(reports.outcomes[0].class, Some(FaultClass::Slow));
    assert!(reports.outcomes[0].flags.contains(Flag::Stall));
}

#[test]
fn nobody_there_and_no_answer_are_typed_errors() {
    let gone = {
        let upstream = Upstream::always(vec![]);
        upstream.port()
    };
    let text = format!(
        "mode=\"shadow\"\n[[target]]\nname=\"a\"\nurl=\"http://127.0.0.1:{gone}\"\n[[route]]\nname=\"r\"\ntiers=[[\"a\"]]"
    );
    let served = Served::start(&text);
    let answer = served.chat(&[], ASK);
    assert_eq!(answer.status, 502);
    assert_eq!(answer.json()["error"]["code"], "upstream_unreachable");
    assert_eq!(answer.json()["error"]["type"], "touchstone_error");
    assert!(answer.json()["error"]["param"].is_null());
    assert_eq!(served.reports_of(1).outcomes[0].class, Some(FaultClass::Upstream));

    let silent = Upstream::always(vec![Act::Hang]);
    let served = shadow(&silent);
    let answer = served.chat(&[("x-touchstone-deadline-ms", "120")], ASK);
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (504, Some("upstream_timeout")));
    eventually("the upstream's connection is closed", || silent.left() == 1);
}

#[test]
fn what_cannot_be_routed_or_is_too_large_is_refused_in_the_wires_own_shape() {
    let upstream = Upstream::always(json(200, &chat_json("Red.")));
    let text = format!(
        "mode=\"shadow\"\n[limits]\nmax_request_bytes=\"1KiB\"\n[[target]]\nname=\"a\"\nurl=\"{}\"\n\
         [[route]]\nname=\"r\"\nmodels=[\"assistant\"]\ntiers=[[\"a\"]]\n\
         [[route]]\nname=\"s\"\nmodels=[\"other\"]\ntiers=[[\"a\"]]",
        upstream.url()
    );
    let served = Served::start(&text);
    let answer = served.chat(&[], r#"{"model":"nobody"}"#);
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (400, Some("bad_request")));
    let answer = served.chat(&[], "not json");
    assert_eq!(answer.status, 400);
    let answer = served.chat(&[("x-touchstone-route", "s")], "not json");
    assert_eq!(answer.status, 200, "a body that merely looks odd goes to the upstream");
    assert_eq!(upstream.seen()[0].text(), "not json");
    let answer = served.chat(&[("x-touchstone-route", "nowhere")], ASK);
    assert_eq!(answer.status, 400);
    let answer = served.post("/v1/messages", &[], &"x".repeat(300_000));
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (413, Some("request_too_large")));
    assert_eq!(answer.json()["type"], "error");
    let long = "x".repeat(80_000);
    let answer = http::request(served.port, "POST", "/v1/chat/completions", &[("x-long", &long)], b"{}");
    assert_eq!(answer.expect("an answer").status, 431);
    assert_eq!(upstream.calls(), 1);
}

#[test]
fn http2_with_prior_knowledge_is_served_and_a_cut_resets_its_stream() {
    let body = chat_stream().concat();
    let upstream = Upstream::start(move |_, n| {
        if n == 0 {
            sse(&chat_stream())
        } else {
            vec![sse_head(), chunk(&chat_stream()[1]), Act::Wait(30), Act::Close]
        }
    });
    let served = shadow(&upstream);
    let client = reqwest::Client::builder().http2_prior_knowledge().no_proxy().build().expect("a client");
    let url = format!("http://127.0.0.1:{}/v1/chat/completions", served.port);
    let ask = || client.post(&url).body(ASK_STREAM).send();
    let answer = served.block_on(async { ask().await.expect("an answer").bytes().await });
    assert_eq!(answer.expect("whole"), body);
    let cut = served.block_on(async { ask().await.expect("an answer").bytes().await });
    assert!(cut.is_err(), "a cut stream never ends cleanly");
    assert_eq!(served.reports_of(2).done[1].client_status, 200);
}

#[test]
fn a_drain_delivers_what_is_under_way_and_takes_no_more() {
    let mut acts = vec![sse_head(), chunk(&chat_stream()[1]), Act::Wait(1_000)];
    acts.extend(chat_stream()[2..].iter().map(|piece| chunk(piece)));
    acts.push(end());
    let upstream = Upstream::always(acts);
    let mut served = shadow(&upstream);
    let port = served.port;
    let under_way = std::thread::spawn(move || {
        http::request(port, "POST", "/v1/chat/completions", &[], ASK_STREAM.as_bytes()).expect("an answer")
    });
    eventually("the call is under way", || upstream.calls() == 1);
    served.stop();
    assert!(!served.has_ended());
    // Its port is free at once, and may be another test's for a while.
    eventually("no new caller is taken", || TcpStream::connect(("127.0.0.1", port)).is_err());
    let answer = under_way.join().expect("no panic");
    assert!(answer.whole && answer.text().ends_with("[DONE]\n\n"));
    eventually("the drain ends", || served.has_ended());
}

#[test]
fn a_large_json_answer_passes_whole_and_is_judged_apart() {
    let body = chat_json(&"Red is a primary colour, and so are blue and yellow in paint. ".repeat(2_000));
    let upstream = Upstream::always(json(200, &body));
    let served = shadow(&upstream);
    let answer = served.chat(&[], ASK);
    assert_eq!(answer.text(), body);
    assert_eq!(served.reports_of(1).samples.len(), 1);
}

#[test]
fn without_processor_time_texts_are_read_lightly_in_shadow_mode_and_in_full_in_enforce_mode() {
    let answers = include_str!("fixtures/traces/corrupt-10pct.answers.jsonl");
    let salad: String = answers
        .lines()
        .take(4)
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .map(|answer| format!("{} ", answer["text"].as_str().expect("a text")))
        .collect();
    let body = serde_json::json!({"choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": salad}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 128, "total_tokens": 137}});
    let upstream = Upstream::always(json(200, &body.to_string()));
    let seen = |mode: &str, share: f64| {
        let more = format!("[proxy]\nmax_analysis_cpu_share={share}\n");
        let served = Served::start(&tiers(mode, &[&upstream], &more));
        served.chat(&[("x-touchstone-no-retry", "1")], ASK);
        let reports = served.reports_of(1);
        let (outcome, exchange) = (&reports.outcomes[0], &reports.exchanges[0]);
        assert_eq!(outcome.light, exchange.light);
        (outcome.flags.contains(Flag::Gibberish), outcome.light, exchange.signals.compression.is_some())
    };
    assert_eq!(seen("shadow", 0.0), (false, true, false));
    assert_eq!(seen("shadow", 0.1), (true, false, true));
    assert_eq!(seen("enforce", 0.0), (true, false, true));
}

/// `inject = "live"` in front of this upstream.
fn injecting(mode: &str, upstream: &Upstream, more: &str) -> Served {
    let text = tiers(mode, &[upstream], more);
    Served::start(&text.replace("model = \"model-0\"", "model = \"model-0\"\ninject = \"live\""))
}

fn asks_more(seen: &common::upstream::Seen) -> bool {
    seen.text().contains("\"logprobs\":true,\"top_logprobs\":5")
}

/// The choice's logprobs, as servers write them before its end.
const LOGPROBS: &str = "\"logprobs\":{\"content\":[{\"token\":\"Red\",\"logprob\":-0.25,\"bytes\":null,\"top_logprobs\":[\
     {\"token\":\"Red\",\"logprob\":-0.25},{\"token\":\"Blue\",\"logprob\":-1.75}]}]},";

#[test]
fn what_is_injected_is_judged_and_cut_out_of_a_json_answer_again() {
    let plain = chat_json("Red");
    let with = plain.replace("\"finish_reason\"", &format!("{LOGPROBS}\"finish_reason\""));
    let (a, b) = (plain.clone(), with.clone());
    let upstream = Upstream::start(move |seen, _| {
        json(200, if seen.text().contains("\"logprobs\":true") { &b } else { &a })
    });
    for mode in ["shadow", "enforce"] {
        let served = injecting(mode, &upstream, "");
        let answer = served.chat(&[("accept-encoding", "gzip")], ASK);
        assert_eq!((answer.status, answer.text(), answer.whole), (200, plain.clone(), true), "{mode}");
        assert_eq!(answer.header("x-touchstone-injected"), Some("logprobs"));
        let seen = upstream.seen().pop().expect("a call");
        assert!(asks_more(&seen) && seen.header("accept-encoding") == Some("identity"), "{seen:?}");
        // Who asks for them gets them.
        let own = ASK.replace("{\"model\"", "{\"logprobs\":true,\"top_logprobs\":1,\"model\"");
        let answer = served.chat(&[("accept-encoding", "gzip")], &own);
        assert_eq!((answer.text(), answer.header("x-touchstone-injected")), (with.clone(), None), "{mode}");
        let seen = upstream.seen().pop().expect("a call");
        assert!(!asks_more(&seen) && seen.header("accept-encoding") == Some("gzip"));
        // And who says no is not asked for.
        let answer = served.chat(&[], &ASK.replace("{\"model\"", "{\"logprobs\":false,\"model\""));
        assert_eq!((answer.text(), answer.header("x-touchstone-injected")), (plain.clone(), None), "{mode}");
        let reports = served.reports_of(3);
        let entropy: Vec<bool> = reports.samples.iter().map(|s| s.signals.entropy_mean.is_some()).collect();
        assert_eq!(entropy, [true, true, false], "{mode}: seen by the judge all the same");
    }
    let served = shadow(&upstream);
    assert_eq!(served.chat(&[], ASK).text(), plain);
    assert!(!asks_more(&upstream.seen().pop().expect("a call")), "not unless it was said");
}

#[test]
fn what_is_injected_is_cut_out_of_a_stream_again_and_the_rest_comes_at_once() {
    let plain = chat_stream();
    let mut with = plain.clone();
    with[1] = with[1].replace("\"finish_reason\"", &format!("{LOGPROBS}\"finish_reason\""));
    with[3] = with[3].replace("\"choices\"", "\"usage\":null,\"choices\"");
    with.insert(
        4,
        "data: {\"id\":\"c-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":6,\"total_tokens\":15}}\n\n"
            .to_owned(),
    );
    let upstream = Upstream::start(move |seen, n| {
        assert!(asks_more(seen) && seen.text().contains("\"stream_options\":{\"include_usage\":true}"));
        let mut acts = sse(&with);
        if n == 2 {
            acts.truncate(3);
            acts.push(Act::Close); // in the middle
        }
        acts
    });
    for mode in ["shadow", "enforce"] {
        let served = injecting(mode, &upstream, "");
        let answer = served.chat(&[], ASK_STREAM);
        assert_eq!((answer.text(), answer.whole), (plain.concat(), true), "{mode}");
        assert_eq!(answer.header("x-touchstone-injected"), Some("logprobs, usage"));
        let reports = served.reports_of(1);
        let sample = &reports.samples[0];
        assert!(sample.signals.entropy_mean.is_some());
        assert_eq!(
            (sample.usage.output, sample.usage.estimated),
            (Some(6), false),
            "{mode}: counted, not guessed"
        );
    }
    let served = injecting("shadow", &upstream, "");
    let answer = served.chat(&[], ASK_STREAM);
    assert!(!answer.whole, "a stream that is cut never ends well");
    assert_eq!(answer.text(), plain[..2].concat());
}

#[test]
fn what_a_target_refuses_is_withdrawn_and_not_asked_again() {
    let plain = chat_json("Red.");
    let said = plain.clone();
    let upstream = Upstream::start(move |seen, _| {
        if asks_more(seen) {
            whole(500, "content-type: text/plain\r\n", "Internal Server Error")
        } else {
            json(200, &said)
        }
    });
    for mode in ["shadow", "enforce"] {
        let before = upstream.calls();
        let served = injecting(mode, &upstream, "");
        for n in 0..3 {
            let answer = served.chat(&[], ASK);
            assert_eq!((answer.status, answer.text()), (200, plain.clone()), "{mode}");
            assert_eq!(answer.header("x-touchstone-injected"), None);
            assert_eq!(answer.header("x-touchstone-attempts"), Some("1"), "no try of the caller's");
            assert_eq!(upstream.calls() - before, 2 + n, "{mode}: asked twice once");
        }
        let reports = served.reports_of(3);
        assert!(
            reports.outcomes.iter().all(|o| o.class.is_none()),
            "the questions were at fault, not the target"
        );
    }
    // A target that packs what cannot be cut then.
    let packed = whole(200, "content-type: application/json\r\ncontent-encoding: gzip\r\n", "?");
    let said = plain.clone();
    let upstream =
        Upstream::start(move |seen, _| if asks_more(seen) { packed.clone() } else { json(200, &said) });
    let served = injecting("shadow", &upstream, "");
    assert_eq!(served.chat(&[], ASK).text(), plain);
    assert_eq!((served.chat(&[], ASK).text(), upstream.calls()), (plain, 3));
}

#[test]
fn a_target_that_fails_anyhow_is_not_asked_everything_twice() {
    for (status, calls) in [(500, [2, 1, 1]), (400, [2, 2, 2]), (429, [1, 1, 1]), (503, [1, 1, 1])] {
        let upstream = Upstream::always(json(status, "{\"error\":{\"message\":\"no\"}}"));
        let served = injecting("shadow", &upstream, "");
        let mut before = 0;
        for wanted in calls {
            assert_eq!(served.chat(&[], ASK).status, status);
            assert_eq!(upstream.calls() - before, wanted, "{status}");
            before = upstream.calls();
        }
    }
}

#[test]
fn what_is_kept_of_an_answer_is_what_its_caller_got() {
    let plain = chat_json("Red is a primary colour.");
    let with = plain.replace("\"finish_reason\"", &format!("{LOGPROBS}\"finish_reason\""));
    let upstream = Upstream::always(json(200, &with));
    let served = injecting("enforce", &upstream, "[cache]\nserve_first = true\n");
    let ask = ASK.replace("{\"model\"", "{\"temperature\":0,\"model\"");
    assert_eq!(served.chat(&[], &ask).text(), plain);
    eventually("it is kept", || served.proxy.cache().size().0 == 1);
    let answer = served.chat(&[], &ask);
    assert_eq!((answer.header("x-touchstone-tier"), answer.text()), (Some("cache"), plain));
}

/// A listener that takes up no connection until told to: its backlog is full.
fn full_listener(runtime: &tokio::runtime::Runtime) -> (tokio::net::TcpListener, Vec<tokio::net::TcpStream>) {
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let listener = socket.listen(1).expect("listens");
        let address = listener.local_addr().expect("an address");
        let mut waiting = Vec::new();
        let connect =
            || tokio::time::timeout(Duration::from_millis(300), tokio::net::TcpStream::connect(address));
        while let Ok(Ok(stream)) = connect().await {
            waiting.push(stream);
        }
        (listener, waiting)
    })
}

#[test]
fn shadow_mode_waits_for_a_connection_as_long_as_it_takes_and_enforce_mode_does_not() {
    let runtime = common::runtime();
    for (mode, served_at_last) in [("shadow", true), ("enforce", false)] {
        let (listener, waiting) = full_listener(&runtime);
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let text = format!(
            "mode = \"{mode}\"\n[limits]\nconnect = \"200ms\"\n[[target]]\nname = \"t0\"\n\
             url = \"{url}\"\n[[route]]\nname = \"r\"\ntiers = [[\"t0\"]]\n"
        );
        let served = Served::start(&text);
        let accepting = runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(600)).await; // three times the limit
            drop(waiting);
            loop {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                tokio::spawn(async move {
                    use tokio::io::{AsyncReadExt, AsyncWriteExt};
                    let mut bytes = [0; 4_096];
                    if stream.read(&mut bytes).await.is_ok_and(|n| n > 0) {
                        let body = chat_json("Red.");
                        let head = format!(
                            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                            body.len()
                        );
                        let _ = stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await;
                    }
                });
            }
        });
        let answer = served.chat(&[("x-touchstone-no-retry", "1")], ASK);
        accepting.abort();
        assert_eq!(answer.status == 200, served_at_last, "{mode}: {} {}", answer.status, answer.text());
    }
}

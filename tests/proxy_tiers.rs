//! What answers when the first choice cannot: a step left out, another service, a share of a smaller model; and
//! streams that are held longer, broken off late, or cut because they crawl.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::upstream::{Act, Upstream, chunk, end, json, sse, sse_head};
use common::{ASK, ASK_STREAM, Served, chat_json, chat_stream, event, eventually, tiers};
use touchstone::embed::{self, EmbedHandle};
use touchstone::gate::Published;
use touchstone::judge::Ask;
use touchstone::proxy::Parts;
use touchstone::text::{Context, Watch};
use touchstone::verdict::{BreakerState, FaultClass, Flag, Wire};

const FAST: &str = "[retry]\nbackoff_first=\"1ms\"\nbackoff_max=\"5ms\"\n";

fn sound(text: &'static str) -> Upstream {
    Upstream::start(move |seen, _| {
        if seen.text().contains("\"stream\":true") {
            sse(&chat_stream())
        } else {
            json(200, &chat_json(text))
        }
    })
}

/// One target and a last tier by this word.
fn then(upstream: &Upstream, word: &str, more: &str) -> String {
    tiers("enforce", &[upstream], &format!("{FAST}{more}"))
        .replace("[[\"t0\"]]", &format!("[[\"t0\"], [{word:?}]]"))
}

#[test]
fn a_rerank_step_is_left_out_in_the_order_given() {
    let down = Upstream::always(json(500, "{}"));
    let served = Served::start(&then(&down, "passthrough", ""));
    let ask = r#"{"model":"rr","query":"q","documents":["a","b","c","d"],"top_n":3}"#;
    let answer = served.post("/v1/rerank", &[], ask);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-touchstone-tier"), Some("passthrough"));
    assert_eq!(answer.header("x-touchstone-degraded"), Some("step_omitted"));
    let results = answer.json()["results"].as_array().cloned().expect("a ranking");
    assert_eq!(results.iter().map(|r| r["index"].as_u64().unwrap_or(99)).collect::<Vec<_>>(), [0, 1, 2]);
    let chat = served.chat(&[], ASK);
    assert_eq!(chat.status, 500, "a conversation cannot be left out: the upstream's own error");
}

#[test]
fn an_embeddings_step_goes_to_the_model_inside_where_the_dimension_fits() {
    let down = Upstream::always(json(500, "{}"));
    let embedder = EmbedHandle::start(&embed::Params::default()).expect("the model inside");
    let dim = embedder.embed_now("x").expect("a vector").vector.len();
    let parts = Parts { embedder: Some(embedder), ..Parts::default() };
    let served = Served::start_with(&then(&down, "passthrough", ""), parts);
    let answer = served.post("/v1/embeddings", &[], r#"{"model":"e","input":["one","two"]}"#);
    assert_eq!((answer.status, answer.header("x-touchstone-tier")), (200, Some("passthrough")));
    let body = answer.json();
    assert_eq!(body["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(body["data"][1]["embedding"].as_array().map(Vec::len), Some(dim));
    let other = served.post("/v1/embeddings", &[], r#"{"model":"e","input":"one","dimensions":1536}"#);
    assert_eq!(other.status, 500, "a vector of another length would be worse than none");
    let ollama = served.post("/api/embed", &[], r#"{"model":"e","input":"one"}"#);
    assert_eq!(ollama.json()["embeddings"][0].as_array().map(Vec::len), Some(dim));
}

#[test]
fn any_other_service_of_the_same_shape_may_be_a_tier() {
    let down = Upstream::always(json(500, "{}"));
    let other = sound("From the search index.");
    let served = Served::start(&then(&down, &other.url(), ""));
    let answer = served.chat(&[("authorization", "Bearer secret")], ASK);
    assert_eq!(answer.text(), chat_json("From the search index."));
    assert_eq!(
        (answer.header("x-touchstone-tier"), answer.header("x-touchstone-target")),
        (Some("1"), Some(&*other.url()))
    );
    assert_eq!(other.seen()[0].header("authorization"), None);
}

#[test]
fn requests_start_where_the_routes_rules_say() {
    let (strong, cheap) = (sound("Strong."), sound("Cheap."));
    let text = tiers("enforce", &[&strong, &cheap], FAST)
        + "pick = [{ tier = 0, keywords = [\"prove\", \"theorem\"] }, { tier = 1, max_input_tokens = 50 }]\n";
    let served = Served::start(&text);
    let answer = served.chat(&[], ASK);
    assert_eq!((answer.text(), answer.header("x-touchstone-degraded")), (chat_json("Cheap."), None));
    let hard = served.chat(&[], &ASK.replace("Name a primary colour.", "Prove the theorem."));
    assert_eq!(hard.text(), chat_json("Strong."));
    let long = served.chat(&[], &ASK.replace("colour.", &"colour ".repeat(60)));
    assert_eq!(long.text(), chat_json("Strong."));
    served.publish("t1", BreakerState::Open);
    let up = served.chat(&[], ASK);
    assert_eq!(up.text(), chat_json("Strong."), "what lies above is asked last");
    assert_eq!(up.header("x-touchstone-degraded"), Some("breaker_open"));
}

#[test]
fn a_fallback_takes_its_share_and_is_not_trampled() {
    let (large, small) = (sound("Large."), sound("Small."));
    let served =
        Served::start(&tiers("enforce", &[&large, &small], &format!("{FAST}[fallback]\nmax_share = 0.4\n")));
    served.publish("t0", BreakerState::Open);
    let answers: Vec<_> = (0..50).map(|_| served.chat(&[], ASK)).collect();
    let taken = answers.iter().filter(|a| a.status == 200).count();
    assert_eq!(taken, 20, "40 % of 50");
    let refused = answers.iter().find(|a| a.status != 200).expect("some are refused");
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (429, Some("overloaded")));
}

#[test]
fn a_target_degraded_in_capacity_takes_small_requests_only() {
    let (large, small) = (sound("Large."), sound("Small."));
    let degrade = |served: &Served| {
        let mut published = Published::default();
        published.admission.small_only = Some((100, 2));
        served.gate.publish("t0", published);
    };
    let long = ASK.replace("colour.", &"colour ".repeat(100));
    let served = Served::start(&tiers("enforce", &[&large, &small], FAST));
    degrade(&served);
    assert_eq!(served.chat(&[], ASK).text(), chat_json("Large."));
    let elsewhere = served.chat(&[], &long);
    assert_eq!(
        (elsewhere.text(), elsewhere.header("x-touchstone-degraded")),
        (chat_json("Small."), Some("overloaded"))
    );
    let served = Served::start(&tiers("enforce", &[&large], FAST));
    degrade(&served);
    let refused = served.chat(&[], &long);
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (413, Some("batch_too_large")));
    let batch = served.post("/v1/embeddings", &[], r#"{"model":"e","input":["a","b","c"]}"#);
    assert_eq!((batch.status, batch.json()["error"]["code"].as_str()), (413, Some("batch_too_large")));
}

/// A stream that says so many words and then does what `after` says.
fn words(n: usize, after: Vec<Act>) -> Vec<Act> {
    let mut acts = vec![sse_head()];
    acts.extend((0..n).map(|i| chunk(&event(&format!("{{\"content\":\"word{i} \"}}"), None))));
    acts.extend(after);
    acts
}

#[test]
fn a_longer_hold_rescues_streams_that_break_after_their_first_words() {
    let cut = || Upstream::always(words(5, vec![Act::Wait(20), Act::Close]));
    let stalled = || Upstream::always(words(5, vec![Act::Hang]));
    for (until, make) in [
        ("tokens:48", &cut as &dyn Fn() -> Upstream),
        ("tokens:48", &stalled),
        ("end", &cut),
        ("end", &stalled),
    ] {
        let (first, second) = (make(), sound("x"));
        let more = format!("{FAST}[hold]\nuntil = {until:?}\n[limits]\nstream_idle = \"200ms\"\n");
        let answer = Served::start(&tiers("enforce", &[&first, &second], &more)).chat(&[], ASK_STREAM);
        assert!(answer.whole, "{until}");
        assert_eq!(answer.text(), chat_stream().concat(), "{until}: not a word of the broken one");
        assert_eq!(answer.header("x-touchstone-tier"), Some("1"));
    }
    let first = Upstream::always(words(60, vec![Act::Wait(20), Act::Close]));
    let answer = Served::start(&tiers(
        "enforce",
        &[&first, &sound("x")],
        &format!("{FAST}[hold]\nuntil = \"tokens:48\"\n"),
    ))
    .chat(&[], ASK_STREAM);
    assert!(!answer.whole && answer.text().contains("word0 "), "beyond the window it is committed to");
}

#[test]
fn a_fault_in_the_last_token_of_the_hold_is_seen_before_anything_is_passed_on() {
    const DAMAGED: &str = include_str!("fixtures/traces/corrupt-10pct.answers.jsonl");
    let texts =
        DAMAGED.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an answer"));
    let text: String = texts.map(|answer| format!("{} ", answer["text"].as_str().expect("a text"))).collect();
    // An address is no part of what is judged together, so that this does not end where text is read anyway.
    let address = "https://example.org/a/very/long/path/to/something ";
    let tokens: Vec<&str> = std::iter::once(address).chain(text.split_inclusive(' ')).take(200).collect();
    let asked = Ask::parse(Wire::Chat, ASK_STREAM.as_bytes());
    let mut watch = Watch::new(&Context { prompt: Arc::clone(&asked.prompt), ..Context::default() });
    let last = tokens.iter().position(|token| {
        watch.push(token);
        watch.catch_up();
        watch.flags_now().contains(Flag::Gibberish)
    });
    let held = last.expect("gibberish") + 1;
    let mut acts = vec![sse_head()];
    let delta = |token: &&str| event(&serde_json::json!({ "content": token }).to_string(), None);
    acts.extend(tokens.iter().map(|token| chunk(&delta(token))));
    acts.extend([chunk("data: [DONE]\n\n"), end()]);
    let first = Upstream::always(acts);
    let ask = |held| {
        let more = format!("{FAST}[hold]\nuntil = \"tokens:{held}\"\n");
        Served::start(&tiers("enforce", &[&first, &sound("x")], &more)).chat(&[], ASK_STREAM)
    };
    let answer = ask(held);
    assert_eq!(answer.text(), chat_stream().concat());
    assert_eq!(answer.header("x-touchstone-degraded"), Some("quality:gibberish"));
    assert!(ask(held - 1).text().contains("[DONE]"), "one token less is not known to be any");
}

#[test]
fn a_loop_is_rescued_within_the_hold_and_broken_off_after_it() {
    let looping = || {
        let mut acts = vec![sse_head(), chunk(&event("{\"content\":\"Well: \"}", None))];
        for _ in 0..120 {
            acts.push(chunk(&event("{\"content\":\"and so on and so on and so on \"}", None)));
            acts.push(Act::Wait(2));
        }
        acts.extend([chunk(&event("{}", Some("stop"))), chunk("data: [DONE]\n\n"), end()]);
        acts
    };
    let second = sound("x");
    let held = format!("{FAST}[hold]\nuntil = \"end\"\n");
    let answer = Served::start(&tiers("enforce", &[&Upstream::always(looping()), &second], &held))
        .chat(&[], ASK_STREAM);
    assert_eq!(answer.text(), chat_stream().concat());
    assert_eq!(answer.header("x-touchstone-degraded"), Some("quality:repetition"));
    let first = Upstream::always(looping());
    let late = format!("{FAST}[hold]\non_late_fault = \"break\"\n");
    let served = Served::start(&tiers("enforce", &[&first, &second], &late));
    let answer = served.chat(&[], ASK_STREAM);
    assert!(!answer.whole, "no clean end to what is no answer");
    let last = answer.text();
    assert!(
        last.contains("\"type\":\"touchstone_error\"") && last.contains("\"code\":\"repetition\""),
        "{last}"
    );
    assert!(!last.contains("[DONE]") && last.matches("and so on").count() < 300);
    eventually("no more tokens are paid for", || first.left() == 1);
    let reports = served.reports_of(1);
    assert_eq!(reports.outcomes[0].class, Some(FaultClass::QualityHard));
    assert!(reports.outcomes[0].flags.contains(Flag::Repetition) && reports.exchanges[0].partial);
    drop(reports);
    let flagged =
        Served::start(&tiers("enforce", &[&Upstream::always(looping())], FAST)).chat(&[], ASK_STREAM);
    assert!(flagged.whole && flagged.text().contains("[DONE]"), "by default it is only recorded");
}

#[test]
fn a_stream_that_crawls_is_cut_and_counts_as_slow() {
    let crawling = Upstream::start(|_, _| {
        let mut acts = vec![sse_head()];
        for _ in 0..40 {
            acts.push(chunk(&event("{\"content\":\"w \"}", None)));
            acts.push(Act::Wait(700));
        }
        acts
    });
    let served = Served::start(&tiers("enforce", &[&crawling], "[limits]\nmin_tokens_per_second = 20\n"));
    let answer = served.chat(&[], ASK_STREAM);
    assert!(!answer.whole && answer.took < Duration::from_secs(20));
    let reports = served.reports_of(1);
    assert_eq!(reports.outcomes[0].class, Some(FaultClass::Slow));
    assert_eq!(&*reports.outcomes[0].target, "t0");
}

#[test]
fn chaos_stands_in_front_of_a_target_and_spoils_what_passes() {
    let upstream = sound("The capital of France is Paris.");
    let with = |faults: &str| format!("{FAST}[chaos]\nseed = 5\nfaults = {{ t0 = {faults:?} }}\n");
    let ask =
        |mode: &str, faults: &str| Served::start(&tiers(mode, &[&upstream], &with(faults))).chat(&[], ASK);
    assert_eq!(ask("shadow", "status=503").status, 503);
    assert_eq!(ask("shadow", "storm429=7").header("retry-after"), Some("7"));
    assert_eq!(ask("shadow", "reset").json()["error"]["code"], "upstream_unreachable");
    assert!(ask("shadow", "latency=300ms").took >= Duration::from_millis(300));
    let empty = ask("shadow", "empty");
    assert_eq!(empty.json()["choices"][0]["message"]["content"], "");
    let noise = ask("enforce", "loop");
    assert!(
        noise.header("x-touchstone-verdict").is_some_and(|v| v.contains("repetition")),
        "{:?}",
        noise.headers
    );
    let served = Served::start(&tiers("shadow", &[&upstream], &with("cut=2")));
    let cut = served.chat(&[], ASK_STREAM);
    assert!(!cut.whole && cut.text().matches("data:").count() <= 2);
    assert_eq!(ask("enforce", "empty:0.000001").text(), chat_json("The capital of France is Paris."));
}

#[test]
fn a_request_at_temperature_zero_may_be_answered_from_memory_first() {
    let upstream = sound("Red.");
    let served =
        Served::start(&tiers("enforce", &[&upstream], &format!("{FAST}[cache]\nserve_first = true\n")));
    let ask = ASK.replace("\"messages\"", "\"temperature\":0,\"messages\"");
    served.chat(&[], &ask);
    eventually("it is kept", || served.proxy.cache().size().0 == 1);
    let again = served.chat(&[], &ask);
    assert_eq!((again.text(), again.header("x-touchstone-tier")), (chat_json("Red."), Some("cache")));
    assert_eq!(again.header("x-touchstone-degraded"), None, "it is as good as a fresh one");
    assert_eq!(upstream.calls(), 1);
    served.chat(&[("x-touchstone-no-cache", "1")], &ask);
    served.chat(&[], ASK);
    assert_eq!(upstream.calls(), 3);
}

#[test]
fn the_oldest_turns_are_cut_only_where_that_is_allowed_and_nobody_else_can_answer() {
    let turn = |role: &str, n: usize| {
        format!("{{\"role\":\"{role}\",\"content\":\"turn {n}: {}\"}}", "colour ".repeat(40))
    };
    let turns: Vec<String> = (0..9).map(|n| turn(if n % 2 == 0 { "user" } else { "assistant" }, n)).collect();
    let ask =
        format!("{{\"model\":\"assistant\",\"messages\":[{},{}]}}", turn("system", 99), turns.join(","));
    for (trims, wide) in [(false, false), (true, false), (true, true)] {
        let (large, small, last) = (sound("Large."), sound("Small."), sound("Last."));
        let more = format!("{FAST}[fallback]\ntrim_oldest = {trims}\n");
        let text = tiers("enforce", &[&large, &small, &last], &more)
            .replace("\"model-1\"", "\"model-1\"\nmax_context_tokens = 300")
            .replace(
                "[[\"t0\"], [\"t1\"], [\"t2\"]]",
                if wide { "[[\"t0\"], [\"t1\"], [\"t2\"]]" } else { "[[\"t0\"], [\"t1\"]]" },
            );
        let served = Served::start(&text);
        assert_eq!(served.chat(&[], &ask).text(), chat_json("Large."));
        assert!(large.seen()[0].text().contains("turn 0"), "the first tier gets it whole");
        served.publish("t0", BreakerState::Open);
        let answer = served.chat(&[], &ask);
        let degraded = answer.header("x-touchstone-degraded");
        match (trims, wide) {
            (false, _) => assert_eq!((answer.status, small.calls()), (503, 0), "nothing is changed unasked"),
            (true, true) => assert_eq!((answer.text(), degraded), (chat_json("Last."), Some("breaker_open"))),
            (true, false) => {
                assert_eq!((answer.text(), degraded), (chat_json("Small."), Some("trimmed")));
                let seen = small.seen()[0].text();
                assert!(
                    seen.contains("turn 99") && seen.contains("turn 8") && !seen.contains("turn 0:"),
                    "{seen}"
                );
                assert!(seen.len() < 1_400, "{}", seen.len());
            }
        }
    }
}

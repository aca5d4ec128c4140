//! Permits, money and keys at the edge: what is refused, what waits, what it is told, and that nothing leaks.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::upstream::{Act, Upstream, json, sse};
use common::{ASK, ASK_STREAM, Served, chat_json, chat_stream, eventually, tiers};
use touchstone::proxy::FlowView;
use touchstone::spend::{Account, Nano, Span};

const PRICE: &str = "price = { input_usd_per_mtok = 1.0, output_usd_per_mtok = 1000.0 }";

/// One target with these keys.
fn one(mode: &str, upstream: &Upstream, target: &str, more: &str) -> String {
    tiers(mode, &[upstream], more).replace("model = \"model-0\"", &format!("model = \"model-0\"\n{target}"))
}

fn flow(served: &Served, name: &str) -> FlowView {
    served.proxy.flows().into_iter().find(|f| &*f.target == name).expect("a flow")
}

fn account(served: &Served, scope: &str) -> Account {
    let all = served.proxy.accounts();
    all.into_iter().find(|a| &*a.scope == scope && a.span == Span::Hour).expect("an account")
}

/// Answers after a while, and counts how many calls are under way at once.
fn slow(ms: u64) -> (Upstream, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let upstream = Upstream::start(move |_, _| {
        seen.fetch_add(1, Ordering::SeqCst);
        let mut acts = vec![Act::Wait(ms)];
        acts.extend(json(200, &chat_json("Red.")));
        acts
    });
    (upstream, calls)
}

#[test]
fn a_fourth_call_waits_for_a_card_that_holds_three() {
    let (upstream, calls) = slow(1_000);
    let served = Served::start(&one(
        "enforce",
        &upstream,
        "vram = { total_gb = 24, per_request_gb = 6, margin_gb = 2 }",
        "",
    ));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4).map(|_| scope.spawn(|| served.chat(&[], ASK).status)).collect();
        eventually("three are under way and one waits", || {
            let flow = flow(&served, "t0");
            (flow.permits_in_use, flow.queue_depth) == (3, 1)
        });
        eventually("three have reached the card", || calls.load(Ordering::SeqCst) >= 3);
        assert_eq!(calls.load(Ordering::SeqCst), 3, "the card is never asked for more than it holds");
        assert_eq!(flow(&served, "t0").permits_limit, Some(3));
        callers.into_iter().map(|c| c.join().expect("an answer")).collect()
    });
    assert_eq!(statuses, [200; 4]);
    eventually("all permits are back", || flow(&served, "t0").permits_in_use == 0);
}

#[test]
fn more_requests_than_permits_are_queued_or_refused_and_never_left_waiting() {
    let (upstream, _) = slow(150);
    let served = Served::start(&one("enforce", &upstream, "max_concurrency = 2", "[queue]\nsize = 4\n"));
    let answers: Vec<_> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..20).map(|_| scope.spawn(|| served.chat(&[], ASK))).collect();
        callers.into_iter().map(|c| c.join().expect("an answer")).collect()
    });
    let served_well = answers.iter().filter(|a| a.status == 200).count();
    let refused: Vec<_> = answers.iter().filter(|a| a.status == 429).collect();
    println!("20 at once on 2 permits and a queue of 4: {served_well} answered, {} refused", refused.len());
    assert_eq!(served_well + refused.len(), 20);
    assert!((6..20).contains(&served_well), "{served_well}");
    for answer in refused {
        assert_eq!(answer.json()["error"]["code"], "overloaded");
        assert!(answer.header("retry-after").is_some());
        assert_eq!(answer.header("x-touchstone-attempts"), Some("0"));
    }
    eventually("nothing is left behind", || {
        let flow = flow(&served, "t0");
        flow.permits_in_use == 0 && flow.queue_depth == 0
    });
    assert!(flow(&served, "t0").shed.iter().any(|(why, n)| *why == "queue_full" && *n > 0));
}

#[test]
fn a_request_that_could_not_start_before_its_deadline_is_refused_at_once() {
    let (upstream, _) = slow(600);
    let served = Served::start(&one("enforce", &upstream, "max_concurrency = 1", ""));
    served.chat(&[], ASK); // from here on it is known how long a call takes
    std::thread::scope(|scope| {
        scope.spawn(|| served.chat(&[], ASK));
        eventually("the permit is taken", || flow(&served, "t0").permits_in_use == 1);
        let answer = served.chat(&[("x-touchstone-deadline-ms", "100")], ASK);
        assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (429, Some("overloaded")));
    });
    assert!(flow(&served, "t0").shed.contains(&("deadline", 1)));
}

#[test]
fn a_full_tier_gives_way_to_the_next() {
    let (first, _) = slow(500);
    let second = Upstream::always(json(200, &chat_json("Blue.")));
    let text = tiers("enforce", &[&first, &second], "[queue]\nsize = 0\n")
        .replace("model = \"model-0\"", "model = \"model-0\"\nmax_concurrency = 1");
    let served = Served::start(&text);
    std::thread::scope(|scope| {
        scope.spawn(|| served.chat(&[], ASK));
        eventually("the permit is taken", || flow(&served, "t0").permits_in_use == 1);
        let answer = served.chat(&[], ASK);
        assert_eq!(answer.text(), chat_json("Blue."));
        assert_eq!(answer.header("x-touchstone-degraded"), Some("overloaded"));
        assert_eq!(answer.header("x-touchstone-attempts"), Some("1"));
    });
}

#[test]
fn no_permit_leaks_when_callers_leave_or_upstreams_break() {
    let upstream = Upstream::start(|seen, n| match n % 4 {
        _ if seen.text().contains("\"stream\":true") => sse(&chat_stream()),
        0 => vec![Act::Reset],
        1 => vec![Act::Wait(300), Act::Close],
        2 => json(500, "{}"),
        _ => json(200, &chat_json("Red.")),
    });
    let text = one(
        "enforce",
        &upstream,
        "max_concurrency = 2",
        "[retry]\nbackoff_first=\"1ms\"\nbackoff_max=\"2ms\"\n",
    );
    let served = Served::start(&text);
    std::thread::scope(|scope| {
        for i in 0..24 {
            let served = &served;
            scope.spawn(move || {
                if i % 3 == 0 {
                    // leaves long before any answer
                    let head = format!(
                        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{ASK}",
                        ASK.len()
                    );
                    let mut socket =
                        std::net::TcpStream::connect(("127.0.0.1", served.port)).expect("connects");
                    std::io::Write::write_all(&mut socket, head.as_bytes()).expect("writes");
                    std::thread::sleep(Duration::from_millis(20));
                } else {
                    served.chat(&[], if i % 2 == 0 { ASK } else { ASK_STREAM });
                }
            });
        }
    });
    eventually("all permits are back", || {
        let flow = flow(&served, "t0");
        (flow.permits_in_use, flow.in_flight, flow.queue_depth) == (0, 0, 0)
    });
    assert_eq!(served.chat(&[], ASK_STREAM).status, 200);
}

#[test]
fn shadow_counts_permits_and_money_and_refuses_nothing() {
    let (upstream, _) = slow(200);
    let target = format!("max_concurrency = 1\n{PRICE}");
    let served = Served::start(&one(
        "shadow",
        &upstream,
        &target,
        "[queue]\nsize = 0\n[cost]\nper_hour_usd = 0.001\n",
    ));
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4).map(|_| scope.spawn(|| served.chat(&[], ASK).status)).collect();
        for caller in callers {
            assert_eq!(caller.join().expect("an answer"), 200);
        }
    });
    let shed = flow(&served, "t0").shed;
    assert!(shed.iter().any(|(why, _)| *why == "would_queue_full"), "{shed:?}");
    assert!(shed.iter().any(|(why, _)| *why == "would_money"), "{shed:?}");
    assert!(!shed.iter().any(|(why, _)| !why.starts_with("would")), "{shed:?}");
    eventually("money is counted", || account(&served, "global").spent.usd() > 0.01);
}

#[test]
fn every_attempt_is_charged_and_a_spent_budget_refuses() {
    // 9 tokens in, 4 out: 0.000009 + 0.004 USD an answer
    let upstream =
        Upstream::start(|_, n| if n == 0 { json(500, "{}") } else { json(200, &chat_json("Red.")) });
    let more = "[cost]\nper_hour_usd = 0.05\n[retry]\nbackoff_first=\"1ms\"\nbackoff_max=\"2ms\"\n";
    let served = Served::start(&one("enforce", &upstream, PRICE, more));
    let ask = ASK.replace("\"messages\"", "\"max_tokens\":10,\"messages\"");
    assert_eq!(served.chat(&[], &ask).status, 200);
    let spent = account(&served, "global").spent.usd();
    assert!(spent > 0.004_009, "the failed attempt is estimated and never nothing: {spent}");
    let cost = served.reports_of(1).exchanges[0].cost_usd.expect("a cost");
    assert!((cost - spent).abs() < 1e-9);
    assert!((account(&served, "route/r").spent.usd() - spent).abs() < 1e-12);
    let mut answered = 1;
    let refused = loop {
        let answer = served.chat(&[], &ask);
        if answer.status != 200 {
            break answer;
        }
        answered += 1;
        assert!(answered < 20);
    };
    assert_eq!(
        (refused.status, refused.json()["error"]["code"].as_str()),
        (429, Some("cost_budget_exhausted"))
    );
    assert!(refused.header("retry-after").is_some_and(|s| s.parse::<u64>().is_ok_and(|s| s > 60)));
    assert!(account(&served, "global").spent.usd() <= 0.05);
    let large = served.chat(&[], &ask.replace("\"max_tokens\":10", "\"max_tokens\":1"));
    assert_eq!(large.status, 200, "a smaller one still fits: {}", large.text());
    assert_eq!(account(&served, "global").reserved, Nano::ZERO);
}

#[test]
fn requests_at_once_cannot_pass_a_spent_budget_together() {
    let (upstream, calls) = slow(200);
    let served = Served::start(&one("enforce", &upstream, PRICE, "[cost]\nper_hour_usd = 0.05\n"));
    let ask = ASK.replace("\"messages\"", "\"max_tokens\":10,\"messages\"");
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..20).map(|_| scope.spawn(|| served.chat(&[], &ask).status)).collect();
        callers.into_iter().map(|c| c.join().expect("an answer")).collect()
    });
    let answered = statuses.iter().filter(|s| **s == 200).count();
    println!("20 requests of up to 0.01 USD at once on 0.05 USD: {answered} admitted");
    assert_eq!((answered, calls.load(Ordering::SeqCst)), (4, 4), "0.01 each and the prompts");
    assert!(account(&served, "global").spent.usd() <= 0.05);
}

#[test]
fn a_request_that_could_cost_too_much_is_refused_and_a_cheaper_tier_may_take_it() {
    let (dear, cheap) =
        (Upstream::always(json(200, &chat_json("Red."))), Upstream::always(json(200, &chat_json("Blue."))));
    let served = Served::start(&one("enforce", &dear, PRICE, "[cost]\nper_request_usd = 0.5\n"));
    let answer = served.chat(&[], ASK);
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (400, Some("request_too_expensive"))
    );
    assert_eq!(dear.calls(), 0);
    let text = tiers("enforce", &[&dear, &cheap], "[cost]\nper_request_usd = 0.5\n")
        .replace("model = \"model-0\"", &format!("model = \"model-0\"\n{PRICE}"));
    let answer = Served::start(&text).chat(&[], ASK);
    assert_eq!(answer.text(), chat_json("Blue."));
    assert_eq!(answer.header("x-touchstone-degraded"), Some("cost_budget"));
}

#[test]
fn who_has_no_key_is_refused_in_the_wires_own_shape_and_a_key_never_travels() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("key");
    std::fs::write(&file, "s3cret\n").expect("writes");
    let upstream = Upstream::always(json(200, &chat_json("Red.")));
    let keys = format!(
        "[proxy]\nkey = [{{ name = \"team\", key_file = {file:?} }}]\n[cost]\nper_hour_usd = 9.0\n\
         budget = [{{ key = \"team\", name = \"eval\", per_hour_usd = 0.5 }}]\n"
    );
    for mode in ["shadow", "enforce"] {
        let served = Served::start(&one(mode, &upstream, &format!("forward_auth = true\n{PRICE}"), &keys));
        let before = upstream.calls();
        for wrong in [vec![], vec![("x-touchstone-key", "guess")], vec![("authorization", "Bearer guess")]] {
            let answer = served.chat(&wrong, ASK);
            assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (401, Some("unauthorized")));
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
        let anthropic = served.post("/v1/messages", &[], "{}");
        assert_eq!((anthropic.status, anthropic.json()["type"].as_str()), (401, Some("error")));
        assert_eq!(
            common::http::request(served.port, "GET", "/v1/models", &[], b"").expect("an answer").status,
            401
        );
        assert_eq!(upstream.calls(), before);
        let answer = served.chat(&[("authorization", "Bearer s3cret")], ASK);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(upstream.seen()[before].header("authorization"), None);
        let both = [
            ("x-touchstone-key", "s3cret"),
            ("authorization", "Bearer sk-up"),
            ("x-touchstone-budget", "eval"),
        ];
        served.chat(&both, ASK);
        if mode == "shadow" {
            let seen = &upstream.seen()[before + 1];
            assert_eq!(seen.header("authorization"), Some("Bearer sk-up"), "the caller's own goes on");
            assert!(seen.headers.iter().all(|(name, _)| !name.starts_with("x-touchstone")));
        } else {
            assert_eq!(upstream.calls(), before + 1, "its sub-budget does not hold 1024 tokens");
        }
        eventually("the key is charged", || account(&served, "key/team").spent.usd() > 0.0);
    }
}

#[test]
fn one_callers_limit_does_not_bench_another() {
    let upstream = Upstream::start(|seen, _| {
        if seen.header("authorization") == Some("Bearer greedy") {
            common::upstream::whole(
                429,
                "retry-after: 30\r\ncontent-type: application/json\r\n",
                "{\"error\":{}}",
            )
        } else {
            json(200, &chat_json("Red."))
        }
    });
    let second = Upstream::always(json(200, &chat_json("Blue.")));
    let text = tiers("enforce", &[&upstream, &second], "")
        .replace("model = \"model-0\"", "model = \"model-0\"\nforward_auth = true");
    let served = Served::start(&text);
    for _ in 0..3 {
        let answer = served.chat(&[("authorization", "Bearer greedy")], ASK);
        assert_eq!(
            (answer.text(), answer.header("x-touchstone-degraded")),
            (chat_json("Blue."), Some("cooling_down"))
        );
    }
    assert_eq!(upstream.calls(), 1, "it rests for that caller");
    let answer = served.chat(&[("authorization", "Bearer modest")], ASK);
    assert_eq!((answer.text(), answer.header("x-touchstone-tier")), (chat_json("Red."), Some("0")));
    assert!(served.reports_of(4).outcomes.iter().any(|o| o.keyed));
}

#[test]
fn a_workflow_shares_its_tokens_and_then_fails_without_end() {
    let upstream = Upstream::always(json(500, "{\"error\":{\"message\":\"down\"}}"));
    let more = "[retry]\nbackoff_first=\"1ms\"\nbackoff_max=\"2ms\"\n";
    let served = Served::start(&tiers("enforce", &[&upstream], more));
    for _ in 0..10 {
        served.chat(&[("x-touchstone-workflow", "run-1")], ASK);
    }
    assert_eq!(upstream.calls(), 13, "ten first tries and three more of the whole run");
    let answer = served.chat(&[("x-touchstone-workflow", "run-1")], ASK);
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (500, Some("retry_budget_exhausted"))
    );
}

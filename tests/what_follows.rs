//! The table of what follows what, row by row: a fault before anything was committed to the caller, and for a target
//! that is alone, one with a neighbour in its tier and one with a tier below: who is asked again and how often, what
//! the caller sees, what the retry bucket is charged, and whether the breaker counts it.

mod common;

use common::upstream::{Act, Upstream, chunk, end, json, sse, sse_head, whole};
use common::{ASK, ASK_STREAM, Served, chat_json, chat_stream, event};
use touchstone::breaker::{Breaker, Params};
use touchstone::verdict::{BreakerState, FaultClass};

/// Waits long enough to be told apart from none, short enough for a hundred rows.
const FAST: &str = "mode = \"enforce\"\n[retry]\nbackoff_first = \"1ms\"\nbackoff_max = \"3ms\"\nmax_wait = \"200ms\"\n\
     refill_per_second = 0.001\n[limits]\nheaders = \"120ms\"\nfirst_text = \"120ms\"\nstream_idle = \"120ms\"\n\
     [fallback]\ncool_down = \"0s\"\n";

/// What one row says.
struct Row {
    fault: &'static str,
    acts: Vec<Act>,
    stream: bool,
    /// Calls of the target where it is alone, and what the caller gets then.
    alone: (usize, u16),
    /// Calls of the target and of its neighbour.
    neighbour: (usize, usize),
    /// Calls of the target and of the tier below.
    below: (usize, usize),
    /// Word for having left the tier.
    reason: &'static str,
    class: Option<FaultClass>,
}

fn error(status: u16, headers: &str, code: &str) -> Vec<Act> {
    let body = format!("{{\"error\":{{\"message\":\"{code}\",\"type\":\"{code}\",\"code\":\"{code}\"}}}}");
    whole(status, &format!("content-type: application/json\r\n{headers}"), &body)
}

fn begun(more: Vec<Act>) -> Vec<Act> {
    let role = event("{\"role\":\"assistant\",\"content\":\"\"}", None);
    [vec![sse_head(), chunk(&role)], more].concat()
}

fn withheld(status: u16) -> Vec<Act> {
    if status == 400 {
        return error(400, "", "content_policy_violation");
    }
    let body = chat_json("").replace("\"finish_reason\":\"stop\"", "\"finish_reason\":\"content_filter\"");
    json(200, &body)
}

fn rows() -> Vec<Row> {
    use FaultClass::{Backpressure, Client, QualityHard, Slow, Upstream};
    let row = |fault, acts, alone, neighbour, below, reason, class| Row {
        fault,
        acts,
        stream: false,
        alone,
        neighbour,
        below,
        reason,
        class: Some(class),
    };
    let stream = |row: Row| Row { stream: true, ..row };
    let mut rows = Vec::new();
    for status in [429, 503, 529] {
        let short = error(status, "retry-after-ms: 40\r\n", "busy");
        rows.push(row("refused, soon", short, (2, status), (1, 1), (2, 1), "cooling_down", Backpressure));
        let none = error(status, "", "busy");
        rows.push(row("refused", none, (4, status), (1, 1), (1, 1), "cooling_down", Backpressure));
        let long = error(status, "retry-after: 30\r\n", "busy");
        rows.push(row("refused, later", long, (1, status), (1, 1), (1, 1), "cooling_down", Backpressure));
    }
    rows.push(row("closed", vec![Act::Close], (2, 502), (1, 1), (2, 1), "upstream_error", Upstream));
    rows.push(row("reset", vec![Act::Reset], (2, 502), (1, 1), (2, 1), "upstream_error", Upstream));
    for status in [500, 502, 504, 520, 522, 524, 408, 425] {
        let acts = error(status, "", "server_error");
        rows.push(row("failing", acts, (2, status), (1, 1), (2, 1), "upstream_error", Upstream));
    }
    rows.push(row("silent", vec![Act::Hang], (1, 504), (1, 1), (1, 1), "slow", Slow));
    rows.push(stream(row("silent stream", vec![Act::Hang], (1, 504), (1, 1), (1, 1), "slow", Slow)));
    let no_text = begun(vec![Act::Hang]);
    rows.push(stream(row("no first text", no_text, (1, 504), (1, 1), (1, 1), "slow", Slow)));
    let cut = begun(vec![Act::Close]);
    rows.push(stream(row("cut", cut, (2, 502), (1, 1), (2, 1), "upstream_error", Upstream)));
    let event_of_error = chunk("data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\"}}\n\n");
    let told = begun(vec![event_of_error, end()]);
    rows.push(stream(row("error event", told, (2, 502), (1, 1), (2, 1), "upstream_error", Upstream)));
    let empty = json(200, &chat_json(""));
    rows.push(row("unusable", empty, (2, 200), (2, 1), (2, 1), "quality:empty_output", QualityHard));
    let long = error(400, "", "context_length_exceeded");
    rows.push(row("too long", long, (1, 400), (1, 0), (1, 0), "", Client));
    for (status, fault, class) in [(400, "policy", Some(FaultClass::Info)), (200, "filter", None)] {
        let row = row(fault, withheld(status), (1, status), (1, 0), (1, 0), "", FaultClass::Info);
        rows.push(Row { class, ..row }); // information, and no fault
    }
    for status in [401, 403, 404] {
        let acts = error(status, "", "refused");
        rows.push(row("misconfigured", acts, (1, status), (1, 1), (1, 1), "upstream_error", Client));
    }
    for status in [400, 405, 409, 413, 422] {
        rows.push(row("the caller's", error(status, "", "invalid"), (1, status), (1, 0), (1, 0), "", Client));
    }
    rows
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

fn served(tiers: &str, upstreams: &[&Upstream], more: &str) -> Served {
    let mut text = format!("{FAST}{more}");
    for (i, upstream) in upstreams.iter().enumerate() {
        text.push_str(&format!("[[target]]\nname = \"t{i}\"\nurl = \"{}\"\n", upstream.url()));
    }
    Served::start(&format!("{text}[[route]]\nname = \"r\"\ntiers = {tiers}\n"))
}

/// What a breaker makes of so many such attempts.
fn counted(served: &Served) -> BreakerState {
    let reports = served.reports_of(1);
    let mut breaker = Breaker::new(Params::default(), 1);
    let failed: Vec<_> = reports.outcomes.iter().filter(|o| &*o.target == "t0").collect();
    for outcome in std::iter::repeat_n(&failed, 6).flatten() {
        let mut outcome = (*outcome).clone();
        outcome.generation = breaker.generation();
        let _ = breaker.on_outcome(&outcome);
    }
    breaker.state()
}

fn charged(served: &Served) -> usize {
    (30.0 - served.proxy.retry_tokens()).round() as usize
}

#[test]
fn every_row_of_the_table_holds_for_the_caller_the_upstreams_the_bucket_and_the_breaker() {
    let rows = rows();
    for row in &rows {
        let what = format!("{} {:?}", row.fault, row.alone);
        let ask = if row.stream { ASK_STREAM } else { ASK };
        // alone
        let bad = Upstream::always(row.acts.clone());
        let alone = served("[[\"t0\"]]", &[&bad], "");
        let answer = alone.chat(&[], ask);
        assert_eq!((bad.calls(), answer.status), row.alone, "{what}: alone {}", answer.text());
        assert_eq!(answer.header("x-touchstone-attempts"), Some(&*row.alone.0.to_string()), "{what}");
        assert_eq!(charged(&alone), row.alone.0 - 1, "{what}: each repetition draws from the bucket");
        let state = counted(&alone);
        let counts = matches!(row.class, Some(FaultClass::Upstream | FaultClass::Slow));
        assert_eq!(state == BreakerState::Open, counts, "{what}: {state}");
        assert!(alone.reports_of(1).outcomes.iter().all(|o| o.class == row.class), "{what}: {:?}", {
            alone.reports_of(1).outcomes.iter().map(|o| o.class).collect::<Vec<_>>()
        });
        // with a neighbour, and with a tier below
        for (tiers, expected, shared) in [
            ("[[\"t0\", \"t1\"]]", row.neighbour, row.neighbour.0 - 1 + row.neighbour.1),
            ("[[\"t0\"], [\"t1\"]]", row.below, row.below.0 - 1),
        ] {
            let (bad, good) = (Upstream::always(row.acts.clone()), sound());
            let both = served(tiers, &[&bad, &good], "");
            let answer = both.chat(&[], ask);
            assert_eq!((bad.calls(), good.calls()), expected, "{what}: {tiers}");
            assert_eq!(charged(&both), shared, "{what}: {tiers}: the first step down draws from no bucket");
            let rescued = expected.1 > 0;
            assert_eq!(answer.status, if rescued { 200 } else { row.alone.1 }, "{what}: {tiers}");
            if rescued {
                assert!(answer.text().contains("Red"), "{what}: {tiers}: {}", answer.text());
            }
            let down = rescued && tiers.contains("], [");
            let word = down.then_some(row.reason);
            assert_eq!(answer.header("x-touchstone-degraded"), word, "{what}: {tiers}");
            let attempts = (expected.0 + expected.1).to_string();
            assert_eq!(answer.header("x-touchstone-attempts"), Some(&*attempts), "{what}: {tiers}");
        }
    }
    println!("{} rows of what follows what, three places each", rows.len());
}

#[test]
fn a_refused_connection_follows_the_row_of_broken_ones() {
    let gone = Upstream::always(vec![]);
    let url = gone.url();
    drop(gone);
    for (tiers, attempts) in [("[[\"t0\"]]", "2"), ("[[\"t0\", \"t1\"]]", "2"), ("[[\"t0\"], [\"t1\"]]", "3")]
    {
        let good = sound();
        let text = format!(
            "{FAST}[[target]]\nname = \"t0\"\nurl = \"{url}\"\n[[target]]\nname = \"t1\"\nurl = \"{}\"\n\
             [[route]]\nname = \"r\"\ntiers = {tiers}\n",
            good.url()
        );
        let served = Served::start(&text);
        let answer = served.chat(&[], ASK);
        assert_eq!(answer.header("x-touchstone-attempts"), Some(attempts), "{tiers}");
        assert_eq!(counted(&served), BreakerState::Open, "{tiers}");
        assert_eq!(answer.status, if tiers.contains("t1") { 200 } else { 502 });
    }
}

#[test]
fn a_stall_within_the_hold_is_asked_once_more_and_counts_as_slow() {
    let acts = begun(vec![chunk(&event("{\"content\":\"Red \"}", None)), Act::Hang]);
    let hold = "[hold]\nuntil = \"tokens:64\"\n";
    let bad = Upstream::always(acts.clone());
    let alone = served("[[\"t0\"]]", &[&bad], hold);
    assert_eq!((alone.chat(&[], ASK_STREAM).status, bad.calls()), (504, 2));
    assert!(alone.reports_of(1).outcomes.iter().all(|o| o.class == Some(FaultClass::Slow)));
    let (bad, good) = (Upstream::always(acts), sound());
    let answer = served("[[\"t0\"], [\"t1\"]]", &[&bad, &good], hold).chat(&[], ASK_STREAM);
    assert_eq!((answer.text(), bad.calls(), good.calls()), (chat_stream().concat(), 2, 1));
}

#[test]
fn a_prompt_too_long_goes_only_to_a_larger_context_and_withheld_answers_only_where_that_is_allowed() {
    let (bad, good) = (Upstream::always(error(400, "", "context_length_exceeded")), sound());
    let text = format!(
        "{FAST}[[target]]\nname = \"t0\"\nurl = \"{}\"\nmax_context_tokens = 1000\n[[target]]\nname = \"t1\"\nurl = \"{}\"\n\
         max_context_tokens = 9000\n[[route]]\nname = \"r\"\ntiers = [[\"t0\"], [\"t1\"]]\n",
        bad.url(),
        good.url()
    );
    let answer = Served::start(&text).chat(&[], ASK);
    assert_eq!((answer.status, answer.header("x-touchstone-degraded")), (200, Some("context_too_long")));
    for status in [200, 400] {
        let (bad, good) = (Upstream::always(withheld(status)), sound());
        let more = FAST.replace("cool_down", "on_content_filter = true\ncool_down");
        let text = format!(
            "{more}[[target]]\nname = \"t0\"\nurl = \"{}\"\n[[target]]\nname = \"t1\"\nurl = \"{}\"\n\
             [[route]]\nname = \"r\"\ntiers = [[\"t0\"], [\"t1\"]]\n",
            bad.url(),
            good.url()
        );
        let answer = Served::start(&text).chat(&[], ASK);
        assert_eq!((answer.text(), bad.calls(), good.calls()), (chat_json("Red."), 1, 1), "{status}");
        assert_eq!(answer.header("x-touchstone-degraded"), Some("quality:content_filtered"), "{status}");
    }
}

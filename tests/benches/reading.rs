//! What reading a stream costs: `cargo bench --bench reading`.
//!
//! A chat stream with twenty alternatives a token, an event a token, is read by the judge as the proxy feeds it: event
//! by event, in full depth. Printed are microseconds of processor time a token, for other shapes too, and what a stream
//! under way holds. No sockets; one thread; about a quarter of a minute. `-- --shape N` measures one shape alone, for profilers.
#![allow(clippy::print_stdout)] // a bench prints what it measured

use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use touchstone::clock::Stopwatch;
use touchstone::judge::{Ask, Depth, End, Head, Judge};
use touchstone::verdict::Wire;

/// Microseconds a token, and bytes a stream under way, at most.
const GOAL_US: f64 = 2.0;
const GOAL_BYTES: f64 = 64.0 * 1024.0;
/// Tokens of one stream.
const TOKENS: usize = 400;
/// Streams that are held at once for their memory.
const HELD: usize = 1_000;
/// A measurement is repeated so often, and the best counts: others only had to share the machine.
const ROUNDS: usize = 100;
const STREAMS_A_ROUND: usize = 12;

/// A stream's request and its events.
struct Stream {
    ask: Arc<Ask>,
    events: Vec<Vec<u8>>,
}

impl Stream {
    /// `top` alternatives a token (none: no logprobs), in so many choices, from this place of the text on.
    fn new(top: usize, choices: usize, from: usize) -> Self {
        const TEXT: &str = include_str!("../../README.md");
        let words: Vec<&str> = TEXT.split_inclusive(' ').filter(|w| w.is_ascii() && w.len() < 14).collect();
        let event = |i: usize| {
            let token = words[(from + i) % words.len()];
            let mut choice =
                json!({"index": i % choices, "delta": {"content": token}, "finish_reason": null});
            if top > 0 {
                choice["logprobs"] = json!({"content": [position(i, token, top, &words)]});
            }
            let event = json!({"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk",
                "created": 1_760_000_000, "model": "bench", "choices": [choice]});
            format!("data: {event}\n\n").into_bytes()
        };
        let mut request = json!({"model": "bench", "stream": true, "n": choices,
            "messages": [{"role": "user", "content": "What does this project do, and how is it run?"}]});
        if top > 0 {
            request["logprobs"] = json!(true);
            request["top_logprobs"] = json!(top);
        }
        let ask = Arc::new(Ask::parse(Wire::Chat, request.to_string().as_bytes()));
        Self { ask, events: (0..TOKENS).map(event).collect() }
    }

    fn begin(&self, depth: Depth) -> Judge {
        let head = Head { status: 200, content_type: Some("text/event-stream".into()), ..Head::default() };
        Judge::with_depth(Arc::clone(&self.ask), head, depth)
    }
}

fn position(i: usize, token: &str, top: usize, words: &[&str]) -> Value {
    let alternative = |k: usize| {
        let text = if k == 0 { token } else { words[(i * 31 + k * 17) % words.len()] };
        let logprob = -0.137_451_2 - (k as f64) * 0.637_8 - ((i * 7 + k) % 5) as f64 * 0.081_3;
        json!({"token": text, "logprob": logprob, "bytes": text.as_bytes()})
    };
    let mut this = alternative(0);
    this["top_logprobs"] = (0..top).map(alternative).collect();
    this
}

/// Microseconds a token while the stream passes, and microseconds of its end.
fn cost(streams: &[Stream], depth: Depth) -> (f64, f64) {
    let (mut token, mut end) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        let mut judges: Vec<Judge> = (0..STREAMS_A_ROUND).map(|_| streams[0].begin(depth)).collect();
        let begin = cpu_us();
        for (judge, stream) in judges.iter_mut().zip(streams.iter().cycle()) {
            for (at, event) in stream.events.iter().enumerate() {
                black_box(judge.push(at as u64, event));
            }
        }
        let passed = cpu_us();
        let watch = Stopwatch::start(); // ends are shorter than the ticks of processor time
        for judge in judges {
            black_box(judge.finish(TOKENS as u64, End::Complete));
        }
        let (passing, ending) = (passed - begin, watch.elapsed().as_secs_f64() * 1e6);
        token = f64::min(token, passing / (STREAMS_A_ROUND * TOKENS) as f64);
        end = f64::min(end, ending / STREAMS_A_ROUND as f64);
    }
    (token, end)
}

/// Processor time of this thread, microseconds: what others take of the machine does not count.
fn cpu_us() -> f64 {
    // It is brought up to date when a thread leaves the processor, or else at the next tick.
    std::thread::sleep(Duration::from_micros(1));
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("a Linux machine tells its times");
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect("a number") / 1e3
}

/// Bytes that a stream under way holds: what the process grows by, for each of many.
fn held(streams: &[Stream]) -> f64 {
    for stream in streams {
        black_box(stream.begin(Depth::Full).push(0, &stream.events[0])); // tables are loaded once
    }
    let mut judges = Vec::with_capacity(HELD);
    let before = resident();
    for i in 0..HELD {
        let stream = &streams[i % streams.len()];
        let mut judge = stream.begin(Depth::Full);
        for (at, event) in stream.events.iter().enumerate() {
            black_box(judge.push(at as u64, event));
        }
        judges.push(judge);
    }
    resident().saturating_sub(before) as f64 / black_box(judges).len() as f64
}

/// The same, measured by a process of its own: memory that was used before would not show.
fn held_alone(shape: usize) -> f64 {
    let me = std::env::current_exe().expect("a program has a path");
    let said = Command::new(me).args(["--held", &shape.to_string()]).output().expect("it starts again");
    String::from_utf8_lossy(&said.stdout).trim().parse().expect("a number of bytes")
}

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse().ok())
        .expect("a Linux machine tells its memory");
    pages * 4096
}

fn main() {
    let streams =
        |top, choices| -> Vec<Stream> { (0..6).map(|i| Stream::new(top, choices, i * 211)).collect() };
    let shapes = [
        ("20 alternatives, in full", (20, 1), Depth::Full),
        ("20 alternatives, lightly", (20, 1), Depth::Light),
        ("20 alternatives, 4 choices", (20, 4), Depth::Full),
        ("5 alternatives, in full", (5, 1), Depth::Full),
        ("no logprobs, in full", (0, 1), Depth::Full),
        ("no logprobs, lightly", (0, 1), Depth::Light),
    ];
    let mut arguments = std::env::args().skip(1);
    let (wanted, number) = (arguments.next(), arguments.next().and_then(|n| n.parse::<usize>().ok()));
    match (wanted.as_deref(), number.and_then(|n| shapes.get(n))) {
        (Some("--shape"), Some((name, (top, choices), depth))) => {
            return println!("{name}: {:.3} µs a token", cost(&streams(*top, *choices), *depth).0);
        }
        (Some("--held"), Some((_, (top, choices), _))) => {
            return println!("{}", held(&streams(*top, *choices)));
        }
        _ => {}
    }
    println!(
        "{TOKENS} tokens a stream, an event each; the best of {ROUNDS} rounds of {STREAMS_A_ROUND} streams"
    );
    println!("{:<30}{:>12}{:>12}{:>12}", "", "bytes/event", "µs/token", "µs at end");
    let mut first = f64::NAN;
    for (name, (top, choices), depth) in shapes {
        let streams = streams(top, choices);
        let bytes: usize = streams[0].events.iter().map(Vec::len).sum();
        let (token, end) = cost(&streams, depth);
        println!("{name:<30}{:>12}{token:>12.2}{end:>12.0}", bytes / TOKENS);
        if first.is_nan() {
            first = token;
        }
    }
    println!();
    goal("a token with 20 alternatives", first <= GOAL_US, &format!("{first:.2} µs, goal {GOAL_US} µs"));
    for (name, at) in [("one choice", 0), ("4 choices", 2)] {
        let bytes = held_alone(at);
        let said = format!("{:.0} kB, goal {:.0} kB", bytes / 1024.0, GOAL_BYTES / 1024.0);
        goal(&format!("a stream under way, {name}"), bytes <= GOAL_BYTES, &said);
    }
}

fn goal(what: &str, met: bool, figures: &str) {
    println!("{} {what}: {figures}", if met { "met   " } else { "MISSED" });
}

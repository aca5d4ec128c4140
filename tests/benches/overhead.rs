//! What Touchstone costs: `cargo bench --bench overhead`, after `bash tests/run` has fetched nginx.
//!
//! Paired in one run: the same client asks the same upstream directly, through nginx as a plain proxy,
//! and through Touchstone with analysis on. Rounds alternate between the three, so that whatever else the
//! machine does meets all alike. Each proxy has one worker thread. Shadow mode, no canaries: what is
//! measured is the request path, and the daemon's other threads are listed beside it.
//!
//! Each answer is read to its end and compared in length; a wrong one ends the bench. It is bounded in
//! time (about a minute and a half) and in requests, and talks to 127.0.0.1 only.
#![allow(clippy::print_stdout, clippy::disallowed_methods)] // a bench measures time and prints it

#[path = "overhead/load.rs"]
mod load;
#[path = "overhead/proxies.rs"]
mod proxies;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use load::{Answers, Run, Shape};
use proxies::{Nginx, Touchstone, Usage};

/// One measurement: long enough for thousands of requests, short enough to alternate often.
const SECONDS: f64 = 2.0;
/// How often the three take turns.
const ROUNDS: usize = 3;
/// No measurement sends more than this.
const MOST_REQUESTS: u64 = 200_000;
const WARM_UP: Duration = Duration::from_millis(400);

/// What is sent, and over how many connections.
const CELLS: [(Shape, usize); 4] =
    [(Shape::Small, 1), (Shape::Small, 32), (Shape::Logprobs, 1), (Shape::Logprobs, 32)];

/// One path's figures in one cell, over all rounds.
#[derive(Default)]
struct Figures {
    latencies_us: Vec<u32>,
    requests: u64,
    seconds: f64,
    cpu_seconds: f64,
}

impl Figures {
    fn add(&mut self, run: Run, cpu_seconds: f64) {
        self.requests += run.latencies_us.len() as u64;
        self.latencies_us.extend(run.latencies_us);
        self.seconds += run.seconds;
        self.cpu_seconds += cpu_seconds;
    }

    fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    fn quantile_ms(&mut self, q: f64) -> f64 {
        self.latencies_us.sort_unstable();
        let last = self.latencies_us.len() - 1;
        f64::from(self.latencies_us[(last as f64 * q).round() as usize]) / 1_000.0
    }

    fn cpu_us(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.requests as f64
    }
}

fn main() {
    let seconds = seconds_from_arguments();
    let answers = Answers::new();
    let upstream = load::serve(answers.clone());
    let nginx = Nginx::start(upstream);
    let touchstone = Touchstone::start(upstream);
    let paths = [
        ("direct", upstream, None),
        ("nginx", nginx.port, Some(nginx.pid())),
        ("touchstone", touchstone.port(), Some(touchstone.pid())),
    ];

    println!(
        "paired: {ROUNDS} rounds of {seconds} s for each; 1 worker thread each; answers of {} and {} bytes",
        answers.bytes(Shape::Small),
        answers.bytes(Shape::Logprobs)
    );
    let mut summary = Vec::new();
    for (shape, connections) in CELLS {
        let mut figures: [Figures; 3] = Default::default();
        for (_, port, _) in &paths {
            let _ = load::run(*port, &answers, shape, connections, WARM_UP, MOST_REQUESTS);
        }
        for _ in 0..ROUNDS {
            for ((_, port, pid), figures) in paths.iter().zip(&mut figures) {
                let before = pid.map(Usage::of);
                let limit = Duration::from_secs_f64(seconds);
                let run = load::run(*port, &answers, shape, connections, limit, MOST_REQUESTS);
                let cpu =
                    pid.map_or(0.0, |pid| Usage::of(pid).cpu_seconds - before.map_or(0.0, |b| b.cpu_seconds));
                figures.add(run, cpu);
            }
        }
        print_cell(shape, connections, &paths.map(|(name, ..)| name), &mut figures);
        summary.push((shape, connections, figures));
    }
    print_daemon(&touchstone, &nginx);
    print_goals(&mut summary, &touchstone);
}

fn seconds_from_arguments() -> f64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--seconds").skip(1);
    let wanted = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    wanted.clamp(0.2, 3.0)
}

fn print_cell(shape: Shape, connections: usize, names: &[&str; 3], figures: &mut [Figures; 3]) {
    println!("\n{shape}, {connections} connection{}", if connections == 1 { "" } else { "s" });
    println!("  {:<12}{:>10}{:>10}{:>10}{:>14}", "", "req/s", "p50 ms", "p99 ms", "CPU µs/req");
    for (name, figures) in names.iter().zip(figures.iter_mut()) {
        let cpu = if *name == "direct" { String::from("–") } else { format!("{:.1}", figures.cpu_us()) };
        let (p50, p99) = (figures.quantile_ms(0.5), figures.quantile_ms(0.99));
        println!("  {name:<12}{:>10.0}{p50:>10.3}{p99:>10.3}{cpu:>14}", figures.rate());
    }
    let [direct, nginx, touchstone] = figures;
    println!(
        "  touchstone ÷ nginx: req/s {:.2}, p50 {:.2}, p99 {:.2}, CPU {:.2}; added p50 {:+.3} ms (nginx {:+.3} ms)",
        touchstone.rate() / nginx.rate(),
        touchstone.quantile_ms(0.5) / nginx.quantile_ms(0.5),
        touchstone.quantile_ms(0.99) / nginx.quantile_ms(0.99),
        touchstone.cpu_us() / nginx.cpu_us(),
        touchstone.quantile_ms(0.5) - direct.quantile_ms(0.5),
        nginx.quantile_ms(0.5) - direct.quantile_ms(0.5),
    );
}

fn print_daemon(touchstone: &Touchstone, nginx: &Nginx) {
    println!("\nthe daemon after all this");
    let usage = Usage::of(touchstone.pid());
    println!(
        "  resident {:.0} MB, peak {:.0} MB (nginx {:.0} MB)",
        usage.rss_mb,
        usage.peak_mb,
        Usage::of(nginx.pid()).rss_mb
    );
    let seen = touchstone.seen();
    println!("  {:.0} requests; skipped under load (counted, never waited for):", seen.requests);
    for line in seen.dropped {
        println!("    {line}");
    }
    println!("  CPU by thread:");
    for (thread, seconds) in proxies::threads(touchstone.pid()) {
        println!("    {thread:<18}{seconds:>8.2} s");
    }
}

fn print_goals(summary: &mut [(Shape, usize, Figures3)], touchstone: &Touchstone) {
    println!("\ngoals");
    for (shape, connections, [direct, nginx, ours]) in summary {
        if *shape != Shape::Small {
            continue;
        }
        if *connections == 1 {
            let added = ours.quantile_ms(0.5) - direct.quantile_ms(0.5);
            goal("added p50 at one connection, 1 KB", added <= 0.1, &format!("{added:.3} ms, goal 0.1 ms"));
        } else {
            let ratio = ours.cpu_us() / nginx.cpu_us();
            goal(
                "CPU per request at 32 connections, 1 KB",
                ratio <= 3.0,
                &format!("{ratio:.2} × nginx, goal 3 ×"),
            );
        }
    }
    let rss = Usage::of(touchstone.pid()).rss_mb;
    goal("resident memory with the embedder loaded", rss <= 200.0, &format!("{rss:.0} MB, goal 200 MB"));
}

type Figures3 = [Figures; 3];

fn goal(what: &str, met: bool, figures: &str) {
    println!("  {} {what}: {figures}", if met { "met   " } else { "MISSED" });
}

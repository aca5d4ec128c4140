//! Several daemons over one Redis: one bucket, one purse, a trip known to all, and a Redis that dies and comes back.

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use support::daemon::Daemon;
use support::process::Process;
use support::{Stops, free_port, http, tool, wait_for};
use touchstone::clock::{Clock, Stopwatch};
use touchstone::shared::{Params, Reserved, Scope, Shared};
use touchstone::sim::{Sim, SimHandle};

fn redis(port: u16, dir: &Path) -> Process {
    let mut command = Command::new(tool("redis-server"));
    command
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
        ])
        .arg(dir);
    let mut process = Process::spawn("redis-server", &mut command);
    process.line_with("Ready to accept connections", Duration::from_secs(20));
    process
}

fn params(port: u16, more: &str) -> Params {
    toml::from_str(&format!("url = \"redis://127.0.0.1:{port}/0\"\n{more}")).expect("reads")
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Stopwatch::start();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn three_instances_draw_on_one_bucket_one_purse_and_one_lease() {
    let dir = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let _redis = redis(port, dir.path());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let start = || Shared::start(&params(port, "timeout_ms = 5000"), ["t".into()], Clock::system()).expect("starts");
        let (all, _states): (Vec<Shared>, Vec<_>) = (0..3).map(|_| start()).unzip();
        until("all are up and see each other", || all.iter().all(|s| s.is_up() && s.instances() == 3)).await;

        let (taken, began) = (AtomicUsize::new(0), Stopwatch::start());
        let tries = (0..1_000).map(|i| {
            let (shared, taken) = (&all[i % 3], &taken);
            async move {
                if shared.take_retry(10.0, 30.0).await == Some(true) {
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        futures_util::future::join_all(tries).await;
        let (taken, took) = (taken.into_inner(), began.elapsed());
        println!("1000 parallel retries on three instances in {took:?}: {taken} taken of 30 and ten a second");
        assert!((30..=30 + (10.0 * took.as_secs_f64()).ceil() as usize).contains(&taken), "{taken}");

        let scopes = [Scope { name: "global".into(), hour: 1_000, day: 0 }];
        let set_aside = AtomicUsize::new(0);
        let tries = (0..300).map(|i| {
            let (shared, scopes, set_aside) = (&all[i % 3], &scopes, &set_aside);
            async move {
                if let Some(Reserved::At(at)) = shared.reserve(scopes, 10).await {
                    set_aside.fetch_add(1, Ordering::Relaxed);
                    shared.settle(&["global".into()], Some(at), -5); // each cost half of what was expected
                }
            }
        });
        futures_util::future::join_all(tries).await;
        let first = set_aside.into_inner();
        assert!((100..=200).contains(&first), "never past the limit, whatever was given back meanwhile: {first}");
        let mut again = 0;
        until("what was given back can be spent", || true).await;
        tokio::time::sleep(Duration::from_millis(600)).await; // settlements go with the beats
        while let Some(Reserved::At(_)) = all[again % 3].reserve(&scopes, 10).await {
            again += 1;
        }
        println!("1000 billionths an hour on three instances: {first} reservations of 10 settled at 5, then {again} more");
        assert_eq!(first * 5 + again * 10, 1_000 - (1_000 - first * 5) % 10);

        let settled = (first * 5 + again * 10) as u64;
        until("each tells what all have spent", || {
            all.iter().all(|s| s.spent(&"global".into()).is_some_and(|s| s.hour == settled && s.day == settled))
        })
        .await;
        let told = all[0].spent(&"global".into()).expect("told");
        println!("common account: {told:?}");

        until("one of them probes", || all.iter().filter(|s| s.may_probe("t")).count() == 1).await;
        let owner = all.iter().position(|s| s.may_probe("t")).expect("one");
        let others: Vec<Shared> = all.iter().enumerate().filter(|(i, _)| *i != owner).map(|(_, s)| s.clone()).collect();
        drop(all); // the owner ends
        until("another takes over", || others.iter().filter(|s| s.may_probe("t")).count() == 1).await;
    });
}

fn config(redis: u16, first: &SimHandle, second: &SimHandle) -> String {
    format!(
        "mode = \"enforce\"\n[quality.canary]\nevery = \"off\"\n[quality.burst]\nevery = \"off\"\non_suspicion = false\n\
         [shared]\nurl = \"redis://127.0.0.1:{redis}/0\"\n[retry]\nbackoff_first = \"1ms\"\nbackoff_max = \"5ms\"\n\
         [[target]]\nname = \"first\"\nurl = \"{}\"\n[[target]]\nname = \"second\"\nurl = \"{}\"\n\
         [[target]]\nname = \"third\"\nurl = \"{}\"\n[[route]]\nname = \"q\"\nmodels = [\"q\"]\ntiers = [[\"third\"]]\n\
         [[route]]\nname = \"r\"\ntiers = [[\"first\"], [\"second\"]]\n",
        first.url(),
        second.url(),
        first.url()
    )
}

fn ask() -> Value {
    json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 8 })
}

#[test]
fn a_trip_is_known_to_all_within_a_second_and_a_redis_that_dies_loses_no_request() {
    let dir = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let mut server = redis(port, dir.path());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let sim = || {
        runtime
            .block_on(Sim::start(([127, 0, 0, 1], 0).into(), touchstone::sim::Params::default()))
            .expect("a sim")
    };
    let (first, second) = (sim(), sim());
    let text = config(port, &first, &second);
    let daemons: Vec<Daemon> = (0..3).map(|_| Daemon::serve(&text)).collect();
    let state = |d: &Daemon| d.ask("/v1/health")["shared_state"].clone();
    for daemon in &daemons {
        wait_for("all instances see each other", Duration::from_secs(20), || {
            let state = state(daemon);
            (state["state"] == "up" && state["instances"] == 3).then_some(())
        });
    }

    first.set_fault("status=500").expect("a fault");
    while daemons[0].breaker("first") != "open" {
        daemons[0].chat(&ask());
    }
    let tripped = Stopwatch::start();
    wait_for("the trip to be known to all", Duration::from_secs(10), || {
        daemons[1..].iter().all(|d| d.breaker("first") == "open").then_some(())
    });
    println!("a trip seen by one of three was known to all after at most {:?}", tripped.elapsed());
    let seen = first.stats().requests;
    for daemon in &daemons {
        let answer = daemon.chat(&ask());
        assert_eq!((answer.status, answer.header("x-touchstone-degraded")), (200, Some("breaker_open")));
    }
    assert_eq!(first.stats().requests, seen, "nobody has to find out for himself");

    let (stop, asked, lost) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _stops = Stops(&stop); // also where an expectation fails
        for daemon in &daemons {
            let (stop, asked, lost) = (&stop, &asked, &lost);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    asked.fetch_add(1, Ordering::Relaxed);
                    lost.fetch_add(usize::from(daemon.chat(&ask()).status != 200), Ordering::Relaxed);
                }
            });
        }
        server.kill();
        for daemon in &daemons {
            wait_for("each to go on alone", Duration::from_secs(10), || {
                (state(daemon)["state"] == "lost").then_some(())
            });
            wait_for("the metric to say so", Duration::from_secs(10), || {
                http::get(daemon.admin, "/metrics")
                    .text()
                    .contains("touchstone_shared_state_up 0")
                    .then_some(())
            });
        }
        // What one of them learns alone meanwhile is known to all once they are together again.
        let third = || daemons.iter().map(|d| d.breaker("third")).collect::<Vec<_>>();
        let mut other = ask();
        other["model"] = json!("q");
        wait_for("the third to trip on one alone", Duration::from_secs(10), || {
            daemons[0].chat(&other);
            (daemons[0].breaker("third") == "open").then_some(())
        });
        assert_eq!(third(), ["open", "closed", "closed"]);
        server = redis(port, dir.path());
        let returned = Stopwatch::start();
        for daemon in &daemons {
            wait_for("each to be back without a restart", Duration::from_secs(10), || {
                (state(daemon)["state"] == "up").then_some(())
            });
        }
        wait_for("all to agree on the third", Duration::from_secs(10), || {
            third().iter().all(|state| state == "open").then_some(())
        });
        println!("all three agree again {:?} after Redis came back (goal 5 s)", returned.elapsed());
    });
    println!(
        "Redis killed and started again under load: {} requests, {} lost",
        asked.load(Ordering::Relaxed),
        lost.load(Ordering::Relaxed)
    );
    assert_eq!(lost.into_inner(), 0);
    assert!(asked.into_inner() > 30);
}

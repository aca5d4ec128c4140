//! The openai SDK gets through the daemon what it gets without it: chat, streaming chat with logprobs,
//! completions, and the server's own errors, in front of a real llama.cpp server at temperature 0.

mod support;

use std::process::Command;

use support::daemon::Daemon;
use support::llama::{self, Llama};
use support::{free_port, python, root};

#[test]
fn the_openai_sdk_does_not_notice_the_daemon() {
    let llama = Llama::serve(&llama::sound(), free_port());
    // Without canaries, which would share batches with the compared requests.
    let daemon = Daemon::serve(&format!(
        "mode = \"enforce\"
        [[target]]
        name = \"llama\"
        url = \"http://127.0.0.1:{}\"
        [[route]]
        name = \"all\"
        paths = [\"/v1/*\"]
        tiers = [[\"llama\"]]
        [quality.canary]
        every = \"off\"
        [quality.burst]
        every = \"off\"
        on_suspicion = false
        ",
        llama.port
    ));
    let compared = Command::new(python())
        .arg(root().join("tests/support/sdk_equal.py"))
        .args([format!("http://127.0.0.1:{}/v1", llama.port), format!("http://127.0.0.1:{}/v1", daemon.port)])
        .arg(llama::MODEL)
        .output()
        .expect("python runs");
    let said = String::from_utf8_lossy(&compared.stdout).into_owned();
    let complained = String::from_utf8_lossy(&compared.stderr).into_owned();
    assert!(compared.status.success(), "{said}\n{complained}");
    assert_eq!(said.matches("EQUAL ").count(), 6, "{said}");
    println!("{said}");

    let metrics = String::from_utf8_lossy(&support::http::get(daemon.admin, "/metrics").body).into_owned();
    let seen: f64 = metrics
        .lines()
        .filter(|line| line.starts_with("touchstone_requests_total{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert!(seen >= 6.0, "the daemon saw only {seen} of the requests:\n{metrics}");
}

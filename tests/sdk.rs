//! The official SDKs get through the daemon what they get without it. OpenAI's for Python in front of a real
//! llama.cpp server at temperature 0: chat, streaming chat with logprobs, completions, and the server's own
//! errors. The other wires, and OpenAI's for Node, Anthropic's and Ollama's, in front of the simulated upstream.

mod support;

use std::process::Command;
use std::time::Duration;

use support::daemon::{self, Daemon};
use support::llama::{self, Llama};
use support::process::Process;
use support::{free_port, http, node, python, root, wait_for};

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

    let metrics = String::from_utf8_lossy(&http::get(daemon.admin, "/metrics").body).into_owned();
    let seen: f64 = metrics
        .lines()
        .filter(|line| line.starts_with("touchstone_requests_total{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert!(seen >= 6.0, "the daemon saw only {seen} of the requests:\n{metrics}");
}

/// The simulated upstream, and a daemon before it.
fn simulated(mode: &str) -> (Process, String, Daemon) {
    let port = free_port();
    let mut sim =
        Process::spawn("sim", daemon::command().args(["sim", "--listen", &format!("127.0.0.1:{port}")]));
    wait_for("the simulated upstream", Duration::from_secs(60), || {
        sim.assert_alive();
        http::try_get(port, "/health").filter(|answer| answer.status == 200)
    });
    let url = format!("http://127.0.0.1:{port}");
    let daemon = Daemon::serve(&format!(
        "mode = \"{mode}\"\n[[target]]\nname = \"sim\"\nurl = \"{url}\"\n[[route]]\nname = \"all\"\ntiers = [[\"sim\"]]\n\
         [quality.canary]\nevery = \"off\"\n[quality.burst]\nevery = \"off\"\non_suspicion = false\n"
    ));
    (sim, url, daemon)
}

fn compare(command: &mut Command, direct: &str, daemon: &Daemon) -> String {
    let through = format!("http://127.0.0.1:{}", daemon.port);
    let compared = command.args([direct, &through]).output().expect("runs");
    let said = String::from_utf8_lossy(&compared.stdout).into_owned();
    assert!(compared.status.success(), "{said}\n{}", String::from_utf8_lossy(&compared.stderr));
    said
}

#[test]
fn the_sdks_of_every_wire_do_not_notice_the_daemon() {
    for mode in ["shadow", "enforce"] {
        let (_sim, url, daemon) = simulated(mode);
        let script = root().join("tests/support/sdk_wires.py");
        let said = compare(Command::new(python()).arg(script), &url, &daemon);
        assert_eq!(said.matches("EQUAL ").count(), 21, "{said}");
        println!("{said}");
    }
}

#[test]
fn the_openai_sdk_for_node_does_not_notice_the_daemon() {
    let (_sim, url, daemon) = simulated("enforce");
    let (node, folder) = node();
    let said = compare(Command::new(node).arg(folder.join("equal.mjs")), &url, &daemon);
    assert_eq!(said.matches("EQUAL ").count(), 6, "{said}");
    println!("{said}");
}

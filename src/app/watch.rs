//! Hot reload: on SIGHUP and when the file changes. A faulty file keeps the old configuration and says so.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::Running;
use crate::config::Config;

/// A changed file is noticed within this time.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A configuration file as it stood before it was read, so that no later change is missed.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    seen: Option<(SystemTime, u64)>,
}

impl ConfigFile {
    /// To be made before the file is read.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), seen: stamp(path) }
    }
}

/// Reloads `running` from what `read` gives, whenever the file changes or the process is told to. Never ends.
pub async fn reload_on_change(
    running: &Running,
    file: ConfigFile,
    read: impl Fn() -> anyhow::Result<Config>,
) {
    let ConfigFile { path, mut seen } = file;
    let mut hangup = Hangup::new();
    loop {
        let told = tokio::select! {
            () = hangup.recv() => true,
            () = tokio::time::sleep(LOOK_EVERY) => false,
        };
        let now = stamp(&path);
        if !told && (now == seen || now.is_none()) {
            continue; // an editor may take a file away for a moment
        }
        seen = now;
        let done = match read() {
            Ok(config) => running.reload(config).await.map_err(anyhow::Error::from),
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => running.tell_reload("reloaded", "the configuration was reloaded".to_owned()),
            Err(error) => {
                tracing::error!(error = %format!("{error:#}"), "the configuration is refused, the old one stays");
                running.tell_reload("refused", format!("the old configuration stays: {error:#}"));
            }
        }
    }
}

fn stamp(file: &Path) -> Option<(SystemTime, u64)> {
    let about = std::fs::metadata(file).ok()?;
    Some((about.modified().ok()?, about.len()))
}

#[cfg(unix)]
struct Hangup(Option<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Hangup {
    fn new() -> Self {
        Self(tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok())
    }

    async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                let _ = signal.recv().await; // None only when the runtime ends
            }
            None => std::future::pending().await,
        }
    }
}

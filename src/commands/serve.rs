//! `touchstone serve`: the daemon.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{out, runtime};
use crate::app::{self, ConfigFile};
use crate::cli::{DONE, USAGE};
use crate::clock::Clock;
use crate::config::{Config, ConfigError};
use crate::verdict::Mode;

/// Runs the daemon: proxy, measurement, breakers, health API.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = "Examples:\n  touchstone serve --upstream http://127.0.0.1:8000\n  \
                        touchstone serve --config touchstone.toml --mode enforce")]
pub struct Args {
    /// The configuration; `touchstone config` prints one to begin with
    #[arg(long, value_name = "F", conflicts_with = "upstream", required_unless_present = "upstream")]
    pub config: Option<PathBuf>,
    /// Base URL of an inference server; alone it needs no configuration. May be given several times
    #[arg(long, value_name = "URL")]
    pub upstream: Vec<String>,
    /// Address of the proxy [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Address of the health API [default: 127.0.0.1:7071]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
    /// Record decisions only, or apply them [default: shadow]
    #[arg(long, value_name = "shadow|enforce", value_parser = mode)]
    pub mode: Option<Mode>,
    /// Put the faults of `[chaos]` in front of targets; never where anyone depends on the answers
    #[arg(long)]
    pub allow_chaos: bool,
    /// Where database, baselines and admin token are kept
    #[arg(long, value_name = "D")]
    pub data_dir: Option<PathBuf>,
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::parse(text).ok_or_else(|| "write shadow or enforce".to_owned())
}

impl Args {
    /// The file or the upstreams, with what the other arguments say laid over.
    ///
    /// # Errors
    /// Every fault, with its field's path.
    pub fn configuration(&self) -> Result<Config, ConfigError> {
        let mut config = match &self.config {
            Some(file) => Config::load(file)?,
            None => Config::single(&self.upstream)?,
        };
        if let Some(mode) = self.mode {
            config.mode = mode;
        }
        if let Some(dir) = &self.data_dir {
            let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
            config.data_dir = Some(dir); // from where the command stands, not the file
        }
        config.chaos_allowed(self.allow_chaos)?;
        config.listen_at(self.listen, self.admin)?;
        Ok(config)
    }
}

/// Runs until it is told to stop: SIGTERM or Ctrl-C drains, a second one ends at once.
///
/// # Errors
/// A faulty configuration, or what keeps the daemon from starting.
pub fn run(args: &Args) -> anyhow::Result<u8> {
    let file = args.config.as_deref().map(ConfigFile::new);
    let config = args.configuration()?;
    config.sections.log.start();
    for warning in config.warnings() {
        tracing::warn!(%warning, "configuration");
    }
    runtime()?.block_on(serve(args, config, file))
}

async fn serve(args: &Args, config: Config, file: Option<ConfigFile>) -> anyhow::Result<u8> {
    let mut stop = Stop::new()?;
    let introduced = config.clone();
    let running = match app::start(config, Clock::system()).await {
        Ok(running) => running,
        Err(error) if error.is_configuration() => {
            let _ = writeln!(std::io::stderr(), "touchstone: {error}");
            return Ok(USAGE);
        }
        Err(error) => return Err(error.into()),
    };
    out(format_args!("{}", running.greeting));
    let introduction = async {
        for line in app::introduce(&introduced).await {
            out(format_args!("{line}"));
        }
        std::future::pending::<()>().await;
    };
    let reload = async {
        match file {
            Some(file) => app::reload_on_change(&running, file, || Ok(args.configuration()?)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = stop.recv() => {}
        () = introduction => {}
        () = reload => {}
    }
    out(format_args!(
        "stopping: answers under way have {} s to end; once more to stop at once",
        app::DRAIN.as_secs()
    ));
    tokio::select! {
        () = running.drain(app::DRAIN) => out(format_args!("stopped")),
        () = stop.recv() => out(format_args!("stopped at once")),
    }
    Ok(DONE)
}

/// SIGTERM and SIGINT.
struct Stop {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            terminate: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?,
        })
    }

    async fn recv(&mut self) {
        #[cfg(unix)]
        let told = self.terminate.recv();
        #[cfg(not(unix))]
        let told = std::future::pending::<Option<()>>();
        tokio::select! {
            _ = told => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream() -> Args {
        Args { upstream: vec!["http://127.0.0.1:8000".to_owned()], ..Args::default() }
    }

    #[test]
    fn arguments_win_over_the_configuration() {
        let args = Args {
            mode: Some(Mode::Enforce),
            data_dir: Some("/tmp/there".into()),
            admin: Some(([127, 0, 0, 1], 9_001).into()),
            ..upstream()
        };
        let config = args.configuration().expect("loads");
        assert_eq!(config.mode, Mode::Enforce);
        assert_eq!(config.data_dir(), PathBuf::from("/tmp/there"));
        assert_eq!(config.sections.admin.listen().port(), 9_001);
    }

    #[test]
    fn an_open_admin_address_needs_a_token() {
        let args = Args { admin: Some(([0, 0, 0, 0], 9_001).into()), ..upstream() };
        let said = args.configuration().expect_err("refused").to_string();
        assert!(said.starts_with("--admin: "), "{said}");
    }
}

//! `touchstone demo`: the whole story on one machine, with nothing installed.
//!
//! Two simulated upstreams with real token distributions, the daemon in front of them, steady traffic.
//! The first model is damaged while its server goes on saying 200; what follows is the daemon's own doing
//! and is read from its health API and from what callers get. Nothing here tells it what to do.

mod story;
mod traffic;
mod witness;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::{out, runtime};
use crate::app;
use crate::cli::{DONE, NOT_MET};
use crate::clock::Clock;
use crate::config::Config;
use crate::sim::{Faults, Params, Sim, SimHandle, Size};
use story::{Patience, Scene, Story, Unmet};

/// What degrades the first model: one tenth of its weights.
const DAMAGE: &str = "damage=0.1";
/// A whole story takes about a minute; a machine four times as slow still gets to its end.
const WHOLE_STORY: Duration = Duration::from_secs(230);
/// Pace of the simulated models, tokens a second.
const TOKENS_PER_SECOND: f64 = 600.0;
/// Ended by Ctrl-C.
const INTERRUPTED: &str = "interrupted";
/// Time for the daemon to end what it was doing.
const DRAIN: Duration = Duration::from_secs(3);

/// Shows the whole story on this machine: a model that silently degrades, the breaker, fallback, recovery.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  touchstone demo\n  touchstone demo --once")]
pub struct Args {
    /// End after the story: exit 0 if every chapter happened, else 2
    #[arg(long)]
    pub once: bool,
    /// End after so many seconds at the latest
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// Leave the model healthy: the story must then fail
    #[arg(long, hide = true)]
    pub no_degradation: bool,
    /// The fault that degrades the model
    #[arg(long, value_name = "SPEC", hide = true, default_value = DAMAGE)]
    pub fault: Faults,
}

/// Tells the story.
///
/// # Errors
/// The daemon or an upstream cannot start, or nobody reads what is told.
pub fn run(args: &Args) -> anyhow::Result<u8> {
    runtime()?.block_on(async {
        let stage = Stage::set().await?;
        let code = stage.play(args).await;
        stage.clear().await;
        code
    })
}

/// Upstreams and daemon.
struct Stage {
    primary: SimHandle,
    fallback: SimHandle,
    daemon: app::Running,
    folder: std::path::PathBuf,
}

impl Stage {
    async fn set() -> anyhow::Result<Self> {
        let sim = |model: &str, size| {
            let params = Params {
                model: model.to_owned(),
                size,
                tokens_per_second: TOKENS_PER_SECOND,
                ..Params::default()
            };
            Sim::start(ANY_PORT, params)
        };
        let (primary, fallback) = (sim("large", Size::Large).await?, sim("small", Size::Small).await?);
        let folder = std::env::temp_dir().join(format!("touchstone-demo-{}", std::process::id()));
        let mut config = Config::from_toml(&configuration(&primary.url(), &fallback.url(), &folder))?;
        config.listen_at(Some(ANY_PORT), Some(ANY_PORT))?;
        config.sections.log.start();
        let daemon = app::start(config, Clock::system()).await?;
        Ok(Self { primary, fallback, daemon, folder })
    }

    async fn play(&self, args: &Args) -> anyhow::Result<u8> {
        let (proxy, admin) = (base(self.daemon.proxy_addr), base(self.daemon.admin_addr));
        out(format_args!(
            "dashboard   {admin}/\nproxy       {proxy}/v1\nupstreams   {} ({PRIMARY}), {} (small), simulated",
            self.primary.url(),
            self.fallback.url()
        ));
        let scene = Scene {
            proxy,
            admin: admin.clone(),
            primary_url: self.primary.url(),
            primary: PRIMARY.to_owned(),
            fault: if args.no_degradation { "none".to_owned() } else { args.fault.to_string() },
        };
        let limit = args.seconds.map(Duration::from_secs);
        let end = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(end);
        let patience = if args.no_degradation { Patience::short() } else { Patience::default() };
        let mut story = Story::new(client()?, scene, patience);
        // What ends from outside does not stay up afterwards.
        let (told, ended) = tokio::select! {
            told = tokio::time::timeout(WHOLE_STORY, story.tell()) => (told.ok(), None),
            () = &mut end => (None, Some("time was over before the story was")),
            _ = tokio::signal::ctrl_c() => (None, Some(INTERRUPTED)),
        };
        let unmet = match (told, ended) {
            (Some(Ok(())), _) => None,
            (Some(Err(Unmet::Output(error))), _) => return Err(error.into()),
            (Some(Err(unmet)), _) => Some(unmet.to_string()),
            (None, Some(ended)) => Some(ended.to_owned()),
            (None, None) => Some(format!("it took more than {} s", WHOLE_STORY.as_secs())),
        };
        match &unmet {
            None => out(format_args!("\nEvery chapter happened.")),
            Some(why) => out(format_args!("\nThe story was not met: {why}.")),
        }
        if !args.once && ended.is_none() {
            out(format_args!("All of it stays up: {admin}/ shows it. Ctrl-C ends it."));
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                () = &mut end => {}
            }
        }
        let left = !args.once && ended == Some(INTERRUPTED); // who has seen enough leaves, and that is well
        Ok(if unmet.is_none() || left { DONE } else { NOT_MET })
    }

    async fn clear(self) {
        self.daemon.drain(DRAIN).await;
        self.primary.shutdown().await;
        self.fallback.shutdown().await;
        let _ = std::fs::remove_dir_all(&self.folder); // what is left in the temporary folder harms nobody
    }
}

/// The first target's name.
const PRIMARY: &str = "large";
/// The healthy model's mean is a tenth of this; what lies above is a reason for a golden burst, no more.
const SUSPECT_ENTROPY_NATS: f64 = 0.8;
/// Loopback, any free port.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// An answer of the demo never takes so long.
const CALL_LIMIT: Duration = Duration::from_secs(15);

fn base(addr: SocketAddr) -> String {
    format!("http://{addr}")
}

fn client() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder().no_proxy().timeout(CALL_LIMIT).build()
}

/// The daemon's configuration: what an operator would write, with the waits shortened so that a minute
/// shows what otherwise takes an hour.
fn configuration(primary: &str, fallback: &str, folder: &Path) -> String {
    let folder = Value::from(folder.to_string_lossy().as_ref());
    format!(
        r#"
mode = "enforce"
data_dir = {folder}
[[target]]
name = "{PRIMARY}"
url = "{primary}"
[[target]]
name = "small"
url = "{fallback}"
[[route]]
name = "assistant"
paths = ["/v1/chat/completions"]
tiers = [["{PRIMARY}"], ["small"]]
[breaker]
open = "6s"
open_max = "8s"
[breaker.ramp]
step = "2s"
[quality.calibration]
burst_prompts = 40
burst_runs = 3
pace = "1ms"
[quality.canary]
every = "2s"
max_calls_per_day = 100000
[quality.burst]
every = "off"
items = 40
max_per_hour = 60
[[rule]]
name = "entropy far above this model's health"
signal = "entropy_mean"
window = "5s"
above = {SUSPECT_ENTROPY_NATS}
for = "1s"
min_samples = 10
action = "suspect"
targets = ["{PRIMARY}"]
[log]
filter = "error"
"#
    )
}

//! The two proxies, each with one worker thread, and what they used.

use std::collections::BTreeMap;

use crate::load;
use crate::support::daemon::Daemon;
pub(crate) use crate::support::nginx::Nginx;

/// The daemon with analysis on.
pub(crate) struct Touchstone(Daemon);

/// What the daemon says it saw.
pub(crate) struct Seen {
    pub(crate) requests: f64,
    /// The counters of what was skipped under load, by stage.
    pub(crate) dropped: Vec<String>,
}

impl Touchstone {
    pub(crate) fn start(upstream: u16) -> Self {
        let config = format!(
            "mode = \"shadow\"
            [[target]]
            name = \"bench\"
            url = \"http://127.0.0.1:{upstream}\"
            [[route]]
            name = \"bench\"
            paths = [\"/v1/*\"]
            tiers = [[\"bench\"]]
            [quality.canary]
            every = \"off\"
            [quality.burst]
            every = \"off\"
            on_suspicion = false
            "
        );
        // Tokio's own variable: as many worker threads as nginx has.
        Self(Daemon::serve_with(&config, &[("TOKIO_WORKER_THREADS", "1"), ("TOUCHSTONE_LOG", "warn")]))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.process.pid()
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.port
    }

    pub(crate) fn seen(&self) -> Seen {
        let page = load::page(self.0.admin, "/metrics");
        let series = |name: &'static str| {
            page.lines()
                .filter(move |line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
        };
        let requests = series("touchstone_requests_total")
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum();
        Seen { requests, dropped: series("touchstone_samples_dropped_total").map(str::to_owned).collect() }
    }
}

/// What a process used so far.
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) rss_mb: f64,
    pub(crate) peak_mb: f64,
}

/// Ticks of /proc's CPU times; Linux shows them to every program in this unit.
const TICKS_PER_SECOND: f64 = 100.0;

impl Usage {
    pub(crate) fn of(pid: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
        let mb = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            line.split_whitespace().next().and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(0.0) / 1_024.0
        };
        Self { cpu_seconds: cpu(&format!("/proc/{pid}/stat")).1, rss_mb: mb("VmRSS:"), peak_mb: mb("VmHWM:") }
    }
}

/// CPU seconds by thread name, the largest first.
pub(crate) fn threads(pid: u32) -> Vec<(String, f64)> {
    let mut by_name = BTreeMap::<String, f64>::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives").flatten() {
        let (name, seconds) = cpu(&task.path().join("stat").display().to_string());
        *by_name.entry(name).or_default() += seconds;
    }
    let mut all: Vec<_> = by_name.into_iter().filter(|(_, seconds)| *seconds > 0.0).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

/// Name, and user and system time in seconds, of a `stat` file.
fn cpu(path: &str) -> (String, f64) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let Some((name, fields)) = text.rsplit_once(')') else { return (String::new(), 0.0) };
    let name = name.split_once('(').map_or("", |(_, name)| name).to_owned();
    let ticks: f64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    (name, ticks / TICKS_PER_SECOND)
}

//! The probers of all targets: which golden set each is asked, where its baseline is kept, and their tasks.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::StartError;
use crate::baseline::Baseline;
use crate::clock::Clock;
use crate::config::Config;
use crate::embed::EmbedHandle;
use crate::golden::{Baselines, GoldenSet};
use crate::monitor::MonitorHandle;
use crate::monitor::orders::Report;
use crate::monitor::run::Start;
use crate::monitor::target::Setup;
use crate::prober::{Common, Prober, Subject, watch_load};
use crate::proxy::Live;
use crate::schedule::Schedule;
use crate::shared::Shared;
use crate::upstream::{TargetParams, Upstream};

/// Orders that wait for one prober.
const ORDERS: usize = 16;

/// The golden side of one target.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) golden: Arc<GoldenSet>,
    pub(super) baselines: Option<Baselines>,
    pub(super) baseline: Option<Arc<Baseline>>,
}

/// The running probers.
#[derive(Debug)]
pub(super) struct Probing {
    seed: u64,
    shared: Option<Shared>,
    stop: watch::Sender<bool>,
}

impl Probing {
    pub(super) fn new(seed: u64, shared: Option<Shared>) -> Self {
        Self { seed, shared, stop: watch::channel(false).0 }
    }

    /// Starts a prober for each target; what the monitor needs to know of each.
    pub(super) fn begin(
        &mut self,
        config: &Config,
        live: &Live,
        parts: Vec<Part>,
        embedder: Option<&EmbedHandle>,
        (reports, monitor): (&mpsc::Sender<Report>, &MonitorHandle),
        clock: &Clock,
    ) -> Vec<Start> {
        self.stop = watch::channel(false).0;
        let mut starts = Vec::new();
        for (i, (target, part)) in config.targets.iter().zip(parts).enumerate() {
            let Some(upstream) = live.upstream(target.name()) else { continue };
            let (orders, orders_in) = mpsc::channel(ORDERS);
            let seed = self.seed.wrapping_mul(31).wrapping_add(i as u64);
            let golden = (part.golden.canaries().count(), part.golden.bursts().count());
            let quality = config.quality_of(i);
            let subject = Subject {
                upstream: Arc::clone(upstream),
                golden: part.golden,
                baselines: part.baselines,
                baseline: part.baseline.clone(),
                calibrates: quality.canary().every_ms().is_some() || quality.burst().every_ms().is_some(),
                effort: quality.effort(),
                pace: quality.pace(),
                schedule: Schedule::new(
                    quality.canary().clone(),
                    quality.burst().clone(),
                    golden,
                    seed,
                    clock.now(),
                ),
                seed,
            };
            let common = Common {
                reports: reports.clone(),
                gate: live.gate().clone(),
                embedder: embedder.cloned(),
                clock: clock.clone(),
                shared: self.shared.clone(),
            };
            tokio::spawn(Prober::run(subject, common, orders_in, self.stop.subscribe()));
            self.watch_load(target, config, monitor);
            let setup = Setup {
                name: Arc::clone(target.name()),
                mode: config.mode_of_target(target.name()),
                breaker: config.breaker_of(i).clone(),
                detect: quality.detect().clone(),
                rules: config.rules_of(target.name()),
                own_key: target.api_key_env().is_some() || target.api_key_file().is_some(),
                own_model: target.model().is_some(),
            };
            let has = (golden.0 > 0, golden.1 > 0);
            starts.push(Start { setup, golden: has, baseline: part.baseline, prober: orders });
        }
        starts
    }

    /// Reads the target's own load page from now on, if it has one.
    fn watch_load(&self, target: &TargetParams, config: &Config, monitor: &MonitorHandle) {
        let Some((params, page, path)) = target.load_page() else { return };
        match Upstream::new(&page, &config.sections.limits) {
            Ok(upstream) => {
                let (name, monitor, stop) =
                    (Arc::clone(target.name()), monitor.clone(), self.stop.subscribe());
                tokio::spawn(watch_load(name, params, upstream, path, monitor, stop));
            }
            Err(error) => tracing::warn!(target_name = %target.name(), %error, "its load page is not read"),
        }
    }

    /// Stops all probers; a call under way is dropped.
    pub(super) fn stop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// Reads every target's golden set and its baseline. A baseline that is broken is named and left alone: nothing
/// is written in its place, and the target counts as not calibrated.
pub(super) fn read_golden(config: &Config) -> Result<Vec<Part>, StartError> {
    let mut parts = Vec::new();
    for target in &config.targets {
        let (golden, dir) = config.golden_of_target(target)?;
        let home = dir.unwrap_or_else(|| config.baseline_dir(&golden));
        let baselines = Baselines::at(home);
        let (baseline, usable) = match baselines.load(target.name()) {
            Ok(baseline) => (baseline.map(Arc::new), true),
            Err(error) => {
                tracing::error!(target_name = %target.name(), %error, "the frozen baseline cannot be used");
                (None, false)
            }
        };
        parts.push(Part { golden: Arc::new(golden), baselines: usable.then_some(baselines), baseline });
    }
    Ok(parts)
}

//! What comes from outside: the operator's hand, and another configuration.

use std::sync::Arc;

use super::Command;
use super::run::{FALLBACK_CAPACITY, FALLBACK_SPAN_MS, Lane, Monitor, Start};
use super::target::TargetCore;
use super::watched::Watched;
use crate::breaker::Cause;
use crate::clock::Timestamp;
use crate::gate::Gate;
use crate::stats::TimeWindow;
use crate::upstream::Load;

impl Monitor {
    pub(super) fn command(&mut self, command: Command) {
        let now = self.out.clock.now();
        match command {
            Command::Breaker { target, action, reason, reply } => {
                let Some(watched) = self.targets.get_mut(&target) else { return };
                let effects = watched.core.operator(now, action, &reason);
                self.apply(&target, effects);
                self.publish(&target, now);
                self.show(now);
                if let Some(watched) = self.targets.get(&target) {
                    let _ = reply.send(watched.core.admission(now).state);
                }
            }
            Command::Adopt(remote) => {
                let Some(watched) = self.targets.get_mut(&remote.target) else { return };
                let cause = Cause::parse(&remote.cause).unwrap_or(Cause::Restored);
                let message = format!("another instance: {}", remote.message);
                let effects = watched.core.adopt(now, remote.open, remote.due, cause, &message);
                self.adopting = true;
                self.apply(&remote.target, effects);
                self.adopting = false;
            }
            Command::Load { target, load, holds_ms } => self.load(&target, load, holds_ms, now),
            Command::Reload { starts, lanes, gate } => self.reload(starts, lanes, gate, now),
            Command::Probe { target, reply } => {
                let _ = reply.send(self.burst_on_demand(&target));
            }
        }
    }

    /// A target under pressure is left alone as if it had refused, as long as somebody else can answer. It says
    /// nothing of health: the breaker does not count it.
    fn load(&mut self, target: &str, load: Result<Load, String>, holds_ms: u64, now: Timestamp) {
        let Some(watched) = self.targets.get_mut(target) else { return };
        let was = watched.pressed_until > now;
        watched.pressed_until = now.plus_ms(holds_ms);
        let is = holds_ms > 0;
        match &load {
            Ok(load) if was != is => {
                let share = format!("{:.0} %", load.share * 100.0);
                tracing::info!(target_name = %target, what = load.what, share, pressed = is, "load of the target");
            }
            Err(why) if !matches!(watched.load, Some(Err(_))) => {
                tracing::warn!(target_name = %target, why, "the target's load page cannot be read");
            }
            _ => {}
        }
        watched.load = Some(load);
        if was != is {
            self.publish(target, now);
            self.show(now);
        }
    }

    /// Targets that stay keep their state; a burst that was under way has ended with its prober.
    fn reload(&mut self, starts: Vec<Start>, lanes: Vec<Lane>, gate: Gate, now: Timestamp) {
        self.out.gate = gate;
        let mut before = std::mem::take(&mut self.targets);
        for (i, start) in starts.into_iter().enumerate() {
            let name = Arc::clone(&start.setup.name);
            let seed = self.out.seed.wrapping_add(i as u64);
            let (canaries, bursts) = start.golden;
            let mut watched = before
                .remove(&name)
                .unwrap_or_else(|| Watched::new(TargetCore::new(start.setup.clone(), seed), &start, now));
            watched.mode = start.setup.mode;
            watched.core.set_setup(start.setup);
            let _ = watched.core.on_burst_ended(now); // nothing was proven
            let _ = watched.core.set_golden(now, canaries, bursts, start.baseline);
            watched.prober = start.prober;
            watched.golden = start.golden;
            watched.calibration = None;
            self.targets.insert(name, watched);
        }
        self.keep_split(before);
        self.fallbacks.retain(|name, _| lanes.iter().any(|lane| lane.name == *name));
        for lane in &lanes {
            let fresh = || TimeWindow::new(FALLBACK_SPAN_MS, FALLBACK_CAPACITY);
            self.fallbacks.entry(Arc::clone(&lane.name)).or_insert_with(fresh);
        }
        self.lanes = lanes;
        for name in self.names() {
            self.publish(&name, now);
        }
        self.show(now);
    }
}

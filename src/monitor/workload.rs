//! Has the traffic changed, or a target? Live answers of all of a route's targets moving together say the
//! former: an alert, never an opening. Canaries do not move with the workload and keep their say.

use std::sync::Arc;

use super::run::Monitor;
use crate::clock::Timestamp;
use crate::event::EventKind;

/// Targets whose live blocks moved within this time moved together, milliseconds.
const TOGETHER_MS: u64 = 1_800_000;
/// One target alone cannot move together with others.
const MIN_TARGETS: usize = 2;

impl Monitor {
    /// Looks whether all targets of a route that take its traffic have moved.
    pub(super) fn watch_workload(&mut self, route: &Arc<str>) {
        let now = self.out.clock.now();
        let Some(lane) = self.lanes.iter().find(|lane| lane.name == *route) else { return };
        let recent = |at: Timestamp| now.ms_since(at) <= TOGETHER_MS;
        let mut watching = 0;
        for name in lane.tiers.iter().flatten() {
            let Some((seen, alarm)) = self.targets.get(name).and_then(|w| w.core.live_blocks(route)) else {
                continue;
            };
            if !recent(seen) {
                continue;
            }
            if !alarm.is_some_and(recent) {
                return;
            }
            watching += 1;
        }
        if watching < MIN_TARGETS {
            return;
        }
        let names: Vec<Arc<str>> = lane.tiers.iter().flatten().cloned().collect();
        let message = format!(
            "live answers of all {watching} targets of route {route} have moved together: what callers ask has \
             changed, not the targets"
        );
        self.event(
            now,
            EventKind::Workload,
            None,
            "workload_changed",
            message.clone(),
            serde_json::json!({ "route": route }),
        );
        for name in names {
            let Some(watched) = self.targets.get_mut(&name) else { continue };
            let effects = watched.core.on_workload_changed(now, route, &message);
            self.apply(&name, effects);
        }
    }
}

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

/// How many of a route's targets moved together: all that took its traffic lately, and at least two. What is not
/// known yet (`None`) has no say. Each: when its live answers were last compared, and when they last had moved.
fn moved_together(
    targets: impl IntoIterator<Item = Option<(Timestamp, Option<Timestamp>)>>,
    now: Timestamp,
) -> Option<usize> {
    let recent = |at: Timestamp| now.ms_since(at) <= TOGETHER_MS;
    let watching: Vec<_> = targets.into_iter().flatten().filter(|(seen, _)| recent(*seen)).collect();
    let all = watching.iter().all(|(_, alarm)| alarm.is_some_and(recent));
    (all && watching.len() >= MIN_TARGETS).then_some(watching.len())
}

impl Monitor {
    /// Looks whether all targets of a route that take its traffic have moved.
    pub(super) fn watch_workload(&mut self, route: &Arc<str>) {
        let now = self.out.clock.now();
        let Some(lane) = self.lanes.iter().find(|lane| lane.name == *route) else { return };
        let blocks = |name: &Arc<str>| self.targets.get(name).and_then(|w| w.core.live_blocks(route));
        let Some(watching) = moved_together(lane.tiers.iter().flatten().map(blocks), now) else { return };
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(10_000_000);

    #[test]
    fn only_all_of_at_least_two_watching_targets_moving_lately_are_a_changed_workload() {
        let lately = NOW.minus_ms(60_000);
        let long_ago = NOW.minus_ms(TOGETHER_MS + 1);
        let moved = Some((lately, Some(lately)));
        let calm = Some((lately, None));
        let once = Some((lately, Some(long_ago)));
        let idle = Some((long_ago, None));
        for (targets, expected) in [
            (vec![moved, moved], Some(2)),
            (vec![moved, moved, moved], Some(3)),
            (vec![moved, None, moved, idle], Some(2)),
            (vec![moved, calm], None),
            (vec![moved, moved, once], None),
            (vec![moved], None),
            (vec![moved, None], None),
            (vec![], None),
        ] {
            assert_eq!(moved_together(targets.clone(), NOW), expected, "{targets:?}");
        }
    }
}

//! Has the traffic changed, or a target? Live answers of all of a route's targets moving together say the
//! former, and so do those of a single target that move with its prompts: an alert, never an opening. Prompts
//! that move are told even if no answer does. Canaries do not move with the workload and keep their say.

use std::sync::Arc;

use super::run::Monitor;
use crate::clock::Timestamp;
use crate::detect::drift::{Moved, TESTED, Test, Windows};
use crate::detect::selftest::PROMISE;
use crate::event::EventKind;

/// What moved within this time moved together, milliseconds.
const TOGETHER_MS: u64 = 1_800_000;

/// One target's live side of a route.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// When its answers were last compared.
    at: Timestamp,
    /// When they last had moved.
    answers: Option<Timestamp>,
    /// When its prompts last had moved.
    prompts: Option<Timestamp>,
}

/// How many of a route's targets moved together: all that took its traffic lately, and if that is one alone, with
/// its prompts. What is not known yet (`None`) has no say.
fn moved_together(targets: impl IntoIterator<Item = Option<Seen>>, now: Timestamp) -> Option<usize> {
    let recent = |at: Timestamp| now.ms_since(at) <= TOGETHER_MS;
    let watching: Vec<Seen> = targets.into_iter().flatten().filter(|seen| recent(seen.at)).collect();
    let all = watching.iter().all(|seen| seen.answers.is_some_and(recent));
    let together = watching.len() >= 2 || watching.iter().any(|seen| seen.prompts.is_some_and(recent));
    (all && together).then_some(watching.len())
}

impl Monitor {
    /// Looks whether all targets of a route that take its traffic have moved.
    pub(super) fn watch_workload(&mut self, route: &Arc<str>) {
        let now = self.out.clock.now();
        let Some(lane) = self.lanes.iter().find(|lane| lane.name == *route) else { return };
        let seen = |name: &Arc<str>| {
            let (at, answers) = self.targets.get(name)?.core.live_blocks(route)?;
            Some(Seen { at, answers, prompts: self.live.workload_moved(name, route) })
        };
        let Some(watching) = moved_together(lane.tiers.iter().flatten().map(seen), now) else { return };
        let names: Vec<Arc<str>> = lane.tiers.iter().flatten().cloned().collect();
        let who = match watching {
            1 => format!("live answers on route {route} have moved together with the prompts"),
            _ => format!("live answers of all {watching} targets of route {route} have moved together"),
        };
        let message = format!("{who}: what callers ask has changed, not the targets");
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

    /// A window test of live prompts and answers is complete.
    pub(super) fn live_moved(
        &mut self,
        target: &Arc<str>,
        route: &Arc<str>,
        at: Timestamp,
        windows: &Windows,
    ) {
        match windows.moved() {
            None => {}
            Some(Moved::Answers) => {
                let Some(watched) = self.targets.get_mut(target) else { return };
                let effects = watched.core.on_live_shift(&windows.finding(at, route));
                self.apply(target, effects);
            }
            Some(Moved::Workload) => {
                let Test { statistic, limit } = windows.prompt;
                let message = format!(
                    "prompts on route {route} differ from those of health: MMD² {statistic:.4} over the last \
                     {TESTED}, limit {limit:.4}; what callers ask has changed"
                );
                let data = serde_json::json!({
                    "route": route, "statistic": statistic, "limit": limit, "n": TESTED, "onset": windows.since,
                    "arl0": PROMISE,
                });
                self.event(at, EventKind::Workload, Some(target), "workload_changed", message, data);
                self.watch_workload(route);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(10_000_000);

    #[test]
    fn all_watching_targets_or_one_with_its_prompts_moving_lately_are_a_changed_workload() {
        let lately = NOW.minus_ms(60_000);
        let long_ago = NOW.minus_ms(TOGETHER_MS + 1);
        let seen = |at, answers, prompts| Some(Seen { at, answers, prompts });
        let moved = seen(lately, Some(lately), None);
        let calm = seen(lately, None, None);
        let once = seen(lately, Some(long_ago), None);
        let idle = seen(long_ago, None, None);
        let with_prompts = seen(lately, Some(lately), Some(lately));
        for (targets, expected) in [
            (vec![moved, moved], Some(2)),
            (vec![moved, moved, moved], Some(3)),
            (vec![moved, None, moved, idle], Some(2)),
            (vec![with_prompts], Some(1)),
            (vec![with_prompts, idle, None], Some(1)),
            (vec![moved, calm], None),
            (vec![with_prompts, calm], None),
            (vec![moved, moved, once], None),
            (vec![moved], None),
            (vec![moved, None], None),
            (vec![seen(lately, Some(lately), Some(long_ago))], None),
            (vec![seen(lately, None, Some(lately))], None),
            (vec![], None),
        ] {
            assert_eq!(moved_together(targets.clone(), NOW), expected, "{targets:?}");
        }
    }
}

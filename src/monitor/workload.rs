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
    use crate::baseline::Tested;
    use crate::cache::{self, Cache};
    use crate::clock::Clock;
    use crate::gate::Gate;
    use crate::metrics::{self, Metrics};
    use crate::monitor::Observed;
    use crate::monitor::board::Board;
    use crate::monitor::run::{Lane, Outlets, STATE_KEY, Start};
    use crate::monitor::target::tests::{at, baseline, sample, setup};
    use crate::monitor::target::{Effect, Setup, TargetCore};
    use crate::sample::Sample;
    use crate::store::{self, EventQuery, Store};
    use crate::verdict::{BreakerState, HealthState, Mode, Source};

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

    /// A sound answer of so many tokens, more or less.
    fn answer(core: &TargetCore, name: &str, at: Timestamp, tokens: u64) -> Sample {
        let mut live = sample(core, 0, Source::Live, 0, true);
        (live.at, live.request_hash) = (at, fastrand::u64(..));
        (live.target, live.route) = (Arc::from(name), Arc::from("chat"));
        live.signals.tokens = Some(tokens + fastrand::u64(..tokens));
        live
    }

    fn named(name: &str) -> Setup {
        Setup { name: Arc::from(name), ..setup() }
    }

    /// A target that knows how long its sound answers are.
    fn armed(name: &str) -> TargetCore {
        let mut core = TargetCore::new(named(name), 5);
        let _ = core.set_golden(at(0), true, true, Some(baseline()));
        let learned = (0..8_000).find_map(|i| {
            let live = answer(&core, name, at(i), 40);
            core.on_sample(&live, None).into_iter().find_map(|effect| match effect {
                Effect::SelfTest { what, .. } => Some(what),
                _ => None,
            })
        });
        let tested = Tested { limit: 3e4, promise: 1e4, kept: true, ..Tested::default() };
        core.on_tested(&learned.expect("enough answers to learn from"), &tested);
        core
    }

    #[tokio::test]
    async fn a_workload_that_switches_on_all_targets_is_told_once_and_opens_nothing() {
        fastrand::seed(7);
        let names: Vec<Arc<str>> = vec!["a".into(), "b".into()];
        let dir = tempfile::TempDir::new().expect("a folder");
        let clock = Clock::manual(at(100_000));
        let store = Store::open(dir.path().join("t.db"), &store::Params::default(), clock.clone());
        let store = Arc::new(store.expect("opens"));
        let cores: Vec<TargetCore> = names.iter().map(|name| armed(name)).collect();
        for (name, core) in names.iter().zip(&cores) {
            store.save_state(
                format!("{STATE_KEY}{name}"),
                serde_json::to_value(core.saved()).expect("a document"),
            );
        }
        store.flush().await;
        let start = |name: &Arc<str>| Start {
            setup: named(name),
            golden: (true, true),
            baseline: Some(baseline()),
            prober: tokio::sync::mpsc::channel(8).0,
        };
        let lane = Lane { name: "chat".into(), mode: Mode::Enforce, tiers: vec![names.clone()] };
        let gate = Gate::new(names.clone());
        let outlets = Outlets {
            gate: gate.clone(),
            board: Board::default(),
            store: Arc::clone(&store),
            metrics: Metrics::new(&metrics::Params::default()),
            cache: Arc::new(Cache::new(cache::Params::default())),
            embedder: None,
            clock: clock.clone(),
            seed: 1,
            shared: None,
        };
        let mut monitor = Monitor::new(names.iter().map(start).collect(), vec![lane], outlets);
        let (embedded, _) = tokio::sync::mpsc::channel(1);
        let suspected = |monitor: &Monitor| {
            names.iter().any(|name| monitor.targets[name].core.health().state() == HealthState::Suspect)
        };
        let mut ever_suspected = false;
        for (tokens, answers) in [(40, 300), (160, 700)] {
            for _ in 0..answers {
                for (name, core) in names.iter().zip(&cores) {
                    clock.advance_ms(20);
                    let live = answer(core, name, clock.now(), tokens);
                    monitor.observed(Observed::Sample(Box::new(live)), &embedded);
                    ever_suspected |= suspected(&monitor);
                }
            }
            assert_eq!(ever_suspected, tokens == 160, "answers of four times the length are seen");
        }
        assert!(!suspected(&monitor), "what only the workload moved is cleared");
        store.flush().await;
        let events = store.events(EventQuery::default()).await.expect("reads");
        let of = |kind| events.iter().filter(move |event| event.kind == kind);
        assert_eq!(of(EventKind::Workload).map(|e| &*e.reason).collect::<Vec<_>>(), ["workload_changed"]);
        assert_eq!(of(EventKind::BreakerTransition).count(), 0);
        for name in &names {
            assert_eq!(gate.read(name).admission.state, BreakerState::Closed);
        }
    }
}

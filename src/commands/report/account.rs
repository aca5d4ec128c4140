//! From the store's events to an account of a period.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::clock::Timestamp;
use crate::detect::selftest::PROMISE;
use crate::detect::{Arm, Finding, Level, blocks};
use crate::event::{Event, EventKind};
use crate::stats::poisson;
use crate::store::{Reader, StoreError};
use crate::verdict::{BreakerState, HealthState};

/// Events read at a time.
const PAGE: u32 = 10_000;
/// A shorter period says little about rare alarms.
const ENOUGH_MS: u64 = 86_400_000;
/// An opening whose answers were bad more often than this kept bad answers away.
const BAD_SHARE: f64 = 0.2;

/// One time that the breaker opened, or would have in shadow mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Opening {
    /// When.
    pub at: Timestamp,
    /// When it closed again; `None` while open.
    pub until: Option<Timestamp>,
    /// Whether traffic was really kept away.
    pub enforced: bool,
    /// Why, in a closed word.
    pub reason: String,
    /// Why, in words and numbers.
    pub message: String,
    /// Calls that reached the target meanwhile.
    pub calls: u64,
    /// Of them, unusable or failed.
    pub bad: u64,
}

/// One arm's alarms against its promise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kept {
    /// Which arm.
    pub arm: Arm,
    /// Alarms.
    pub alarms: u64,
    /// Observations: canaries, answers or blocks.
    pub observations: u64,
    /// Promised observations between false alarms.
    pub promise: f64,
    /// Realised observations an alarm; `None` before the first.
    pub realised: Option<f64>,
    /// Alarms that chance allows in so many observations, with 95 %.
    pub allowed: u64,
}

impl Kept {
    /// Whether there are no more alarms than chance allows.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.alarms <= self.allowed
    }
}

/// One target's period.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TargetAccount {
    /// Live calls.
    pub calls: u64,
    /// Of them, unusable or failed.
    pub bad: u64,
    /// Canaries.
    pub canaries: u64,
    /// Openings, oldest first.
    pub openings: Vec<Opening>,
    /// Milliseconds in each state of health that was seen.
    pub health_ms: BTreeMap<String, u64>,
    /// Alarms by arm.
    pub arms: Vec<Kept>,
    /// What suspicions ended as, by the state after it.
    pub suspicions: BTreeMap<String, u64>,
    /// Golden bursts by verdict.
    pub bursts: BTreeMap<String, u64>,
    /// Whether there is a baseline.
    pub calibrated: bool,
}

/// The period.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Account {
    /// From.
    pub since: Timestamp,
    /// To.
    pub until: Timestamp,
    /// By target.
    pub targets: BTreeMap<String, TargetAccount>,
    /// What to do, a sentence each.
    pub recommendation: Vec<String>,
}

/// Reads the account of `since..until` from a store.
///
/// # Errors
/// The file cannot be read.
pub fn read(reader: &Reader, since: Timestamp, until: Timestamp) -> Result<Account, StoreError> {
    let mut account = Account { since, until, ..Account::default() };
    let mut walk = Walk::default();
    let mut after = None;
    loop {
        let query = crate::store::EventQuery {
            after_id: after,
            since: Some(since),
            limit: PAGE,
            ..crate::store::EventQuery::default()
        };
        let events = reader.events(&query)?;
        let Some(last) = events.last() else { break };
        after = Some(last.id);
        for event in events.iter().filter(|e| e.at <= until) {
            walk.take(&mut account, event);
        }
    }
    for (key, state) in reader.states()? {
        let Some(name) = key.strip_prefix(crate::monitor::run::STATE_KEY) else { continue };
        let target = account.targets.entry(name.to_owned()).or_default();
        let now = state.pointer("/health/quality").and_then(|v| v.as_str()).unwrap_or("unknown");
        let since = walk.health.get(name).map_or(since, |(_, at)| *at);
        let state = walk.health.get(name).map_or(now, |(state, _)| state.as_str());
        *target.health_ms.entry(state.to_owned()).or_default() += until.ms_since(since);
    }
    for (name, target) in &mut account.targets {
        let tally = reader.tally(name, since, until)?;
        (target.calls, target.bad, target.canaries) = (tally.live, tally.bad, tally.canaries);
        target.calibrated = reader.baseline(name)?.is_some() || target.calibrated;
        for opening in &mut target.openings {
            let tally = reader.tally(name, opening.at, opening.until.unwrap_or(until))?;
            (opening.calls, opening.bad) = (tally.live, tally.bad);
        }
        target.arms = walk.kept(name, target);
    }
    account.recommendation = recommend(&account);
    Ok(account)
}

#[derive(Default)]
struct Walk {
    health: BTreeMap<String, (String, Timestamp)>,
    alarms: BTreeMap<(String, Arm), (u64, f64)>,
}

impl Walk {
    fn take(&mut self, account: &mut Account, event: &Event) {
        let Some(name) = event.target.as_deref() else { return };
        let since = account.since;
        let target = account.targets.entry(name.to_owned()).or_default();
        match event.kind {
            EventKind::HealthChange => {
                let word = |key: &str| event.data.get(key).and_then(|v| v.as_str()).map(str::to_owned);
                let (Some(from), Some(to)) = (word("from"), word("to")) else { return };
                let begun = self.health.get(name).map_or(since, |(_, at)| *at);
                *target.health_ms.entry(from.clone()).or_default() += event.at.ms_since(begun);
                if from == HealthState::Suspect.as_str() {
                    *target.suspicions.entry(to.clone()).or_default() += 1;
                }
                target.calibrated |= to == HealthState::Healthy.as_str();
                self.health.insert(name.to_owned(), (to, event.at));
            }
            EventKind::Finding => {
                let Ok(finding) = serde_json::from_value::<Finding>(event.data.clone()) else { return };
                if finding.level == Level::Alert || finding.arm == Arm::B1 {
                    return;
                }
                let entry = self.alarms.entry((name.to_owned(), finding.arm)).or_insert((0, 0.0));
                entry.0 += 1;
                entry.1 = finding.arl0.unwrap_or(entry.1);
            }
            EventKind::Burst => *target.bursts.entry(event.reason.clone()).or_default() += 1,
            EventKind::WouldOpen | EventKind::BreakerTransition => {
                let to = event.data.get("to").and_then(|v| v.as_str()).and_then(BreakerState::parse);
                match to {
                    Some(BreakerState::Open) if target.openings.last().is_none_or(|o| o.until.is_some()) => {
                        target.openings.push(Opening {
                            at: event.at,
                            until: None,
                            enforced: event.kind == EventKind::BreakerTransition,
                            reason: event.reason.clone(),
                            message: event.message.clone(),
                            calls: 0,
                            bad: 0,
                        });
                    }
                    Some(BreakerState::Closed | BreakerState::ForcedClosed) => {
                        if let Some(open) = target.openings.last_mut().filter(|o| o.until.is_none()) {
                            open.until = Some(event.at);
                        }
                    }
                    _ => {} // half-open and open again: the same stretch
                }
            }
            _ => {}
        }
    }

    fn kept(&self, name: &str, target: &TargetAccount) -> Vec<Kept> {
        let one = |arm: Arm, observations: u64| {
            let (alarms, promise) = self.alarms.get(&(name.to_owned(), arm)).copied().unwrap_or((0, PROMISE));
            let promise = if promise > 0.0 { promise } else { PROMISE };
            Kept {
                arm,
                alarms,
                observations,
                promise,
                realised: (alarms > 0).then(|| observations as f64 / alarms as f64),
                allowed: poisson::upper95(observations as f64 / promise),
            }
        };
        let border = self.alarms.contains_key(&(name.to_owned(), Arm::A2));
        let mut kept = vec![one(Arm::A1, target.canaries)];
        kept.extend(border.then(|| one(Arm::A2, target.canaries)));
        kept.extend([
            one(Arm::A3, target.canaries),
            one(Arm::C1, target.calls / blocks::BLOCK as u64),
            one(Arm::C2, target.calls),
        ]);
        kept
    }
}

fn recommend(account: &Account) -> Vec<String> {
    let mut lines = Vec::new();
    let length = account.until.ms_since(account.since);
    if account.targets.is_empty() {
        return vec![
            "nothing was recorded in this period: let the daemon run beside real traffic".to_owned(),
        ];
    }
    if length < ENOUGH_MS {
        lines.push(
            "less than a day is too little to judge alarms by that come once a week: look again".to_owned(),
        );
    }
    for (name, target) in &account.targets {
        if !target.calibrated {
            lines.push(format!(
                "{name} is not calibrated, so only failures and unusable answers open it: run touchstone golden \
                 calibrate --target {name}"
            ));
        }
        let confirmed = target.suspicions.get(HealthState::Degraded.as_str()).copied().unwrap_or(0);
        let noisy: Vec<_> = target.arms.iter().filter(|k| !k.is_kept() && k.arm != Arm::C2).collect();
        for kept in noisy.iter().filter(|_| confirmed == 0) {
            lines.push(format!(
                "{name}: arm {} raised {} alarms where chance allows {}, and no golden burst confirmed one: the \
                 target has changed since it was calibrated; calibrate it again",
                kept.arm.as_str(),
                kept.alarms,
                kept.allowed
            ));
        }
        let (calls, bad) = target.openings.iter().fold((0, 0), |(c, b), o| (c + o.calls, b + o.bad));
        let shadow = target.openings.iter().filter(|o| !o.enforced).count();
        if shadow == 0 {
            continue;
        }
        if calls > 0 && bad as f64 >= BAD_SHARE * calls as f64 {
            lines.push(format!(
                "{name}: enforcing would have kept {calls} calls away from it, {bad} of them failed or unusable: \
                 enforce"
            ));
        } else {
            lines.push(format!(
                "{name}: it would have been opened {shadow} times while {} of {calls} calls went well: read the \
                 reasons before enforcing",
                calls - bad
            ));
        }
    }
    let quiet = account.targets.values().all(|t| t.openings.is_empty() && t.arms.iter().all(Kept::is_kept));
    if lines.is_empty() && quiet {
        lines.push(
            "no target would have been opened and no arm alarmed more than chance allows: enforcing is safe"
                .to_owned(),
        );
    }
    lines
}

#[cfg(test)]
mod tests;

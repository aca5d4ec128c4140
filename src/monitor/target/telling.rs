//! How changes of one target are told, and what follows from a transition.

use std::sync::Arc;

use crate::breaker::{Cause, Transition};
use crate::clock::Timestamp;
use crate::detect::Rule;
use crate::event::{Event, EventKind};
use crate::health::Change;
use crate::verdict::{BreakerState, HealthState, Mode};

use super::{Effect, EventOf, TargetCore};

impl TargetCore {
    pub(super) fn unavailable_by_breaker(&self) -> Option<Cause> {
        let out = matches!(self.breaker.state(), BreakerState::Open | BreakerState::HalfOpen);
        let quality = self.health.quality() == HealthState::Degraded;
        (out && !quality).then(|| self.breaker.cause())
    }

    pub(super) fn tell_transition(&mut self, transition: Option<Transition>, effects: &mut Vec<Effect>) {
        let Some(t) = transition else { return };
        self.told.forget();
        let would = self.setup.mode == Mode::Shadow && t.to == BreakerState::Open;
        let kind = if would { EventKind::WouldOpen } else { EventKind::BreakerTransition };
        let data = serde_json::to_value(&t).unwrap_or_default();
        self.tell(t.at, kind, t.cause.as_str(), &t.message, data, effects);
        effects.push(Effect::Transition(t.clone()));
        if t.cause == Cause::Watchdog {
            self.tell(t.at, EventKind::Finding, "watchdog", &t.message, serde_json::Value::Null, effects);
        }
        match t.to {
            BreakerState::Open => {
                if let Some(cause) = self.unavailable_by_breaker() {
                    let change = self.health.set_unavailable(t.at, Some((cause.as_str(), &t.message)));
                    self.tell_change(t.at, change, effects);
                }
            }
            BreakerState::HalfOpen => self.begin_trial(effects),
            BreakerState::Closed => self.recover(&t, effects),
            BreakerState::ForcedOpen | BreakerState::ForcedClosed => self.available(t.at, effects),
        }
    }

    pub(super) fn recover(&mut self, t: &Transition, effects: &mut Vec<Effect>) {
        self.faults.restart();
        self.arms.restart();
        self.rules.iter_mut().for_each(Rule::restart);
        self.available(t.at, effects);
        let change = self.health.on_recovery(t.at, &t.message);
        self.tell_change(t.at, change, effects);
    }

    pub(super) fn available(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if !self.misconfigured {
            let change = self.health.set_unavailable(now, None);
            self.tell_change(now, change, effects);
        }
    }

    pub(super) fn tell_change(&mut self, now: Timestamp, change: Option<Change>, effects: &mut Vec<Effect>) {
        let Some(c) = change else { return };
        self.told.forget();
        let data = serde_json::json!({ "from": c.from, "to": c.to });
        self.tell(now, EventKind::HealthChange, &c.reason, &c.message, data, effects);
    }

    pub(super) fn tell(
        &self,
        at: Timestamp,
        kind: EventKind,
        reason: &str,
        message: &str,
        data: serde_json::Value,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Event(Box::new(EventOf(Event {
            id: 0,
            at,
            kind,
            target: Some(Arc::clone(&self.setup.name)),
            route: None,
            reason: reason.to_owned(),
            message: message.to_owned(),
            data,
        }))));
    }
}

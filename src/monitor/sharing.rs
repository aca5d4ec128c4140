//! What the instances of one deployment tell each other about breakers, and which of them tries a target.

use std::sync::Arc;

use super::orders::Order;
use super::run::Monitor;
use crate::breaker;
use crate::prompt::BurstReason;
use crate::shared::Remote;
use crate::verdict::BreakerState;

impl Monitor {
    /// Whether another instance tries the target: what comes of it is published.
    pub(super) fn is_anothers(&self, target: &str, order: &Order) -> bool {
        let trial = matches!(order, Order::Probes { .. })
            || matches!(order, Order::Burst { reason, .. } if *reason == BurstReason::HalfOpen);
        trial && self.out.shared.as_ref().is_some_and(|shared| !shared.may_probe(target))
    }

    /// Tells the other instances.
    pub(super) fn share(&self, target: &Arc<str>, transition: &breaker::Transition) {
        let Some(shared) = self.out.shared.as_ref().filter(|_| !self.adopting) else { return };
        let open = match transition.to {
            BreakerState::Open => true,
            BreakerState::Closed => false,
            _ => return, // a trial is its prober's, an operator's word this instance's
        };
        shared.publish(Remote {
            target: Arc::clone(target),
            open,
            due: transition.due,
            cause: transition.cause.as_str().to_owned(),
            message: transition.message.clone(),
        });
    }
}

//! One target as the monitor holds it: its pure core, and what the loop keeps beside it.

use tokio::sync::mpsc;

use super::orders::Order;
use super::run::Start;
use super::target::TargetCore;
use crate::clock::Timestamp;
use crate::sample::Admission;
use crate::upstream::Load;
use crate::verdict::{BreakerState, Mode};

pub(super) struct Watched {
    pub(super) core: TargetCore,
    pub(super) mode: Mode,
    pub(super) prober: mpsc::Sender<Order>,
    pub(super) golden: (bool, bool),
    pub(super) calibration: Option<(usize, usize)>,
    pub(super) next_call: Option<Timestamp>,
    pub(super) last_good: Timestamp,
    pub(super) open_since: Option<Timestamp>,
    /// What the target's own page said of its load last.
    pub(super) load: Option<Result<Load, String>>,
    /// Until when that is read as backpressure.
    pub(super) pressed_until: Timestamp,
}

impl Watched {
    pub(super) fn new(core: TargetCore, start: &Start, now: Timestamp) -> Self {
        let open = matches!(core.breaker().state(), BreakerState::Open | BreakerState::ForcedOpen);
        Self {
            core,
            mode: start.setup.mode,
            prober: start.prober.clone(),
            golden: start.golden,
            calibration: None,
            next_call: None,
            last_good: Timestamp::ZERO,
            open_since: open.then_some(now),
            load: None,
            pressed_until: Timestamp::ZERO,
        }
    }

    /// What everyone may know at `now`: the breaker's word, and the target's own of its load.
    pub(super) fn admission(&self, now: Timestamp) -> Admission {
        let mut admission = self.core.admission(now);
        if self.pressed_until > now {
            admission.cooling_until = admission.cooling_until.max(Some(self.pressed_until));
        }
        admission
    }
}

//! Extra calls that one target takes.

use std::collections::VecDeque;

use super::Params;
use crate::clock::Timestamp;
use crate::stats::{TimeWindow, quantile};

/// A tenth of the window is fine enough.
const SLICES: u64 = 10;
/// Durations of first tries from which the usual one is told.
const RECENT: usize = 64;
/// Fewer say nothing about what is usual.
const LEAST_RECENT: usize = 10;
/// Halvings beyond this change nothing: never below an eighth.
const MOST_HALVINGS: usize = 3;
/// First tries that show whether a target is well again.
const RECOVERY: usize = 20;
/// Retries that the waste window holds at most.
const WASTE_CAPACITY: usize = 1_024;
/// A clock set back further than this was corrected.
const STEP_BACK_MS: u64 = 60_000;

/// Why a target takes no further try now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Enough extra calls for the first tries there were.
    Ratio,
    /// Its retries hardly ever succeed.
    Waste,
}

impl Refused {
    /// The word, fit for a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ratio => "refused_ratio",
            Self::Waste => "refused_waste",
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    firsts: u32,
    retries: u32,
}

/// Extra calls of one target; see the module above.
#[derive(Clone, Debug)]
pub struct TargetBudget {
    slices: VecDeque<(u64, Counts)>,
    last: Timestamp,
    recent_ms: VecDeque<f64>,
    halvings: VecDeque<Timestamp>,
    retries: TimeWindow,
    wasted: Option<Wasted>,
}

#[derive(Clone, Debug)]
struct Wasted {
    /// Generation of the breaker when retries were stopped.
    generation: u64,
    firsts: VecDeque<bool>,
}

impl TargetBudget {
    /// A target that has not been called.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        Self {
            slices: VecDeque::new(),
            last: Timestamp::ZERO,
            recent_ms: VecDeque::new(),
            halvings: VecDeque::new(),
            retries: TimeWindow::new(params.raw().waste_window.as_millis(), WASTE_CAPACITY),
            wasted: None,
        }
    }

    /// A first try ended; `sound` or not, after so long.
    pub fn on_first(&mut self, params: &Params, now: Timestamp, sound: bool, ms: u64) {
        let now = self.advance(params, now);
        self.slice(params, now).firsts += 1;
        if sound {
            if self.recent_ms.len() == RECENT {
                self.recent_ms.pop_front();
            }
            self.recent_ms.push_back(ms as f64);
        }
        if let Some(wasted) = &mut self.wasted {
            if wasted.firsts.len() == RECOVERY {
                wasted.firsts.pop_front();
            }
            wasted.firsts.push_back(sound);
            let good = wasted.firsts.iter().filter(|sound| **sound).count();
            if wasted.firsts.len() == RECOVERY
                && good as f64 >= params.raw().waste_recovery * RECOVERY as f64 - 1e-9
            {
                self.forgive();
            }
        }
    }

    /// A further try ended; `sound` or not, after so long. `generation`: the breaker's.
    pub fn on_retry(&mut self, params: &Params, now: Timestamp, sound: bool, ms: u64, generation: u64) {
        let now = self.advance(params, now);
        let raw = params.raw();
        if let Some(usual) = self.usual_ms()
            && ms as f64 > usual + raw.penalty_over.as_millis() as f64
        {
            if self.halvings.len() == MOST_HALVINGS {
                self.halvings.pop_front();
            }
            self.halvings.push_back(now);
        }
        self.retries.record(now, f64::from(u8::from(sound)));
        let succeeded = self.retries.mean(now).unwrap_or(1.0);
        if self.wasted.is_none()
            && self.retries.count(now) >= raw.waste_min as usize
            && succeeded < raw.waste_below
        {
            self.wasted = Some(Wasted { generation, firsts: VecDeque::new() });
        }
    }

    /// Whether a further try may be made now. `closed`: the breaker's generation while it is closed.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, params: &Params, now: Timestamp, closed: Option<u64>) -> Result<(), Refused> {
        let now = now.max(self.last);
        if let Some(wasted) = &self.wasted
            && closed.is_none_or(|generation| generation == wasted.generation)
        {
            return Err(Refused::Waste);
        }
        if self.left_at(params, now) >= 1.0 { Ok(()) } else { Err(Refused::Ratio) }
    }

    /// Draws one further try.
    ///
    /// # Errors
    /// Why not; nothing is drawn then.
    pub fn take(&mut self, params: &Params, now: Timestamp, closed: Option<u64>) -> Result<(), Refused> {
        let now = self.advance(params, now);
        self.check(params, now, closed)?;
        if self.wasted.is_some() {
            self.forgive(); // the breaker has closed since
        }
        self.slice(params, now).retries += 1;
        Ok(())
    }

    /// Further tries that may still be made at `now`.
    #[must_use]
    pub fn left_at(&self, params: &Params, now: Timestamp) -> f64 {
        let raw = params.raw();
        let now = now.max(self.last);
        let slice = now.as_millis() / slice_ms(params);
        let span_s = raw.target_window.as_millis() as f64 / 1_000.0;
        // A slice counts for the extra calls as long as any of it is in the window, and for the first tries
        // only while all of it is: no window of that length ever holds more than it should.
        let retries: u32 =
            self.slices.iter().filter(|(i, _)| i + SLICES >= slice).map(|(_, c)| c.retries).sum();
        let firsts: u32 = self.slices.iter().filter(|(i, _)| i + SLICES > slice).map(|(_, c)| c.firsts).sum();
        let allowed = raw.target_ratio * f64::from(firsts) + raw.target_floor_per_second * span_s;
        allowed * self.refill_at(params, now) - f64::from(retries)
    }

    /// Share of its refill that the target has left after slow retries, 1/8 ..= 1.
    #[must_use]
    pub fn refill_at(&self, params: &Params, now: Timestamp) -> f64 {
        let for_ms = params.raw().penalty_for.as_millis();
        let active = self.halvings.iter().filter(|at| now.ms_since(**at) < for_ms).count();
        0.5f64.powi(active as i32)
    }

    /// Share of recent further tries that failed; `None` if there were none.
    #[must_use]
    pub fn waste_at(&self, now: Timestamp) -> Option<f64> {
        self.retries.mean(now.max(self.last)).map(|succeeded| 1.0 - succeeded)
    }

    /// Whether further tries are stopped because they hardly ever succeed.
    #[must_use]
    pub const fn is_wasted(&self) -> bool {
        self.wasted.is_some()
    }

    fn forgive(&mut self) {
        self.wasted = None;
        self.retries.clear();
    }

    fn usual_ms(&self) -> Option<f64> {
        let recent: Vec<f64> = self.recent_ms.iter().copied().collect();
        if recent.len() < LEAST_RECENT { None } else { quantile::quantile(&recent, 0.5) }
    }

    fn slice(&mut self, params: &Params, now: Timestamp) -> &mut Counts {
        let index = now.as_millis() / slice_ms(params);
        while self.slices.front().is_some_and(|(i, _)| i + SLICES < index) {
            self.slices.pop_front();
        }
        if self.slices.back().is_none_or(|(last, _)| *last < index) {
            self.slices.push_back((index, Counts::default()));
        }
        let at = self.slices.len() - 1;
        &mut self.slices[at].1
    }

    /// Never earlier than before, unless the clock was corrected; then the extra calls of the old window count
    /// as made just now, so that none is forgotten and nothing waits for the old clock.
    fn advance(&mut self, params: &Params, now: Timestamp) -> Timestamp {
        if self.last.ms_since(now) > STEP_BACK_MS {
            let oldest = self.last.as_millis() / slice_ms(params);
            let retries =
                self.slices.iter().filter(|(i, _)| i + SLICES >= oldest).map(|(_, c)| c.retries).sum();
            self.slices.clear();
            self.slices.push_back((now.as_millis() / slice_ms(params), Counts { firsts: 0, retries }));
            self.halvings.clear();
            self.retries.clear();
            self.last = now;
        }
        self.last = self.last.max(now);
        self.last
    }
}

fn slice_ms(params: &Params) -> u64 {
    (params.raw().target_window.as_millis() / SLICES).max(1)
}

//! The share of its permits that a target may use.

/// A tenth less for each bad answer: the field's usual back-off of adaptive limits.
const DECREASE: f64 = 0.9;
/// Never less than a tenth, or a target could not show that it is well again.
const LEAST: f64 = 0.1;

/// Additive increase, multiplicative decrease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size {
    factor: f64,
}

impl Default for Size {
    fn default() -> Self {
        Self { factor: 1.0 }
    }
}

impl Size {
    /// A call ended; `sound` or not. It shrinks only while the target is degraded in capacity: one bad answer of
    /// a target that is well is chance.
    pub(super) fn record(&mut self, sound: bool, degraded: bool, cap: u32) {
        if !sound && degraded {
            self.factor = (self.factor * DECREASE).max(LEAST);
        } else if sound {
            let limit = f64::from(self.limit(cap, 1.0));
            self.factor = (self.factor + 1.0 / (f64::from(cap.max(1)) * limit)).min(1.0);
        }
    }

    /// Permits of `cap` that may be used, at least one, where the breaker's ramp gives `share`.
    pub(super) fn limit(self, cap: u32, share: f64) -> u32 {
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 1.0 };
        ((f64::from(cap) * share * self.factor + 1e-9).floor() as u32).clamp(1, cap.max(1))
    }
}

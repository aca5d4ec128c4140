//! Money: what calls cost, who may still spend, and what was spent.
//!
//! ```text
//!  admission ── reserve(estimate) ──▶ reserved ── settle(usage) ──▶ spent in the sliding windows
//!                  │ would pass a limit: denied, with the time after which it is worth asking again
//! ```
//!
//! Money is reserved before a call is made and settled when its usage is known, so that concurrent requests
//! cannot pass a spent budget together: admission never reserves past a limit, and the overshoot is at most
//! what answers under way cost beyond their reservation. Every attempt is charged, failed and repeated ones too.
//! A [`Book`] has an account for each scope (all, a route, a proxy key, a sub-budget of a key); a request is
//! charged to all of its scopes and admitted only where none of them is spent.
//!
//! Amounts are whole billionths of a dollar, since sums of binary fractions drift and a limit must be exact. A
//! window slides by the minute: a minute counts until all of it has left, so no window of that length ever
//! holds more than its limit.

mod book;
mod params;
#[cfg(test)]
mod tests;
mod window;

pub use book::{Account, Book, Denied, Minute, Reservation, Scopes, Span};
pub use params::{Budget, Limit, Params, ParamsError};

/// Billionths of a US dollar.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Nano(pub u64);

impl Nano {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// From dollars, rounded up; what is negative or no number is nothing.
    #[must_use]
    pub fn from_usd(usd: f64) -> Self {
        // a thousandth of a billionth is rounding of the fraction, not money
        Self((usd * 1e9 - 1e-3).ceil().max(0.0) as u64)
    }

    /// In dollars.
    #[must_use]
    pub fn usd(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Both together, saturating.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What remains, at least nothing.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

//! The only reader of time.
//!
//! Decisions take `now` as an argument; the edge asks a [`Clock`]. A [`Timestamp`] is wall time in
//! milliseconds since the Unix epoch, because states survive a restart and are compared between
//! machines. All arithmetic saturates: a clock that jumps back means that no time has passed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Wall time in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The epoch itself, used where no moment is known.
    pub const ZERO: Self = Self(0);

    /// From milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This moment and `ms` milliseconds more, saturating.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// This moment less `ms` milliseconds, saturating at the epoch.
    #[must_use]
    pub const fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms))
    }

    /// Milliseconds from `earlier` to here; 0 if `earlier` is later.
    #[must_use]
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(Arc<AtomicU64>),
}

/// The clock of the process, or one that a test moves by hand.
#[derive(Clone, Debug)]
pub struct Clock(Source);

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands at `start` until [`Clock::advance_ms`] moves it.
    #[must_use]
    pub fn manual(start: Timestamp) -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(start.0))))
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => Timestamp(system_ms()),
            Source::Manual(ms) => Timestamp(ms.load(Ordering::Relaxed)),
        }
    }

    /// Moves a manual clock; the machine's clock ignores it.
    pub fn advance_ms(&self, by: u64) {
        if let Source::Manual(ms) = &self.0 {
            ms.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Sets a manual clock, also backwards; the machine's clock ignores it.
    pub fn set(&self, to: Timestamp) {
        if let Source::Manual(ms) = &self.0 {
            ms.store(to.0, Ordering::Relaxed);
        }
    }
}

#[allow(clippy::disallowed_methods)] // the one place that reads the clock
fn system_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A moment on the monotonic clock, for durations inside one process.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// Starts now.
    #[must_use]
    #[allow(clippy::disallowed_methods)] // the one place that reads the clock
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// Time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// Whole milliseconds since the start.
    #[must_use]
    pub fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Microseconds since the start.
    #[must_use]
    pub fn elapsed_us(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_runs_backwards_in_arithmetic() {
        let (a, b) = (Timestamp::from_millis(5), Timestamp::from_millis(9));
        assert_eq!(a.ms_since(b), 0);
        assert_eq!(b.ms_since(a), 4);
        assert_eq!(a.minus_ms(7), Timestamp::ZERO);
        assert_eq!(Timestamp::from_millis(u64::MAX).plus_ms(1).as_millis(), u64::MAX);
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let clock = Clock::manual(Timestamp::from_millis(100));
        let twin = clock.clone();
        clock.advance_ms(20);
        assert_eq!(twin.now().as_millis(), 120);
        twin.set(Timestamp::from_millis(50));
        assert_eq!(clock.now().as_millis(), 50);
    }
}

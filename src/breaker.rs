//! The breaker of one target: outcomes and health → closed, open, half-open, ramp.

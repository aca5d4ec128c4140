//! The proxy listener: choose, forward, hold, tap, fall back.

//! Canaries and bursts through the upstream, within a budget.
//!
//! One task a target, so that the daemon never has two calls of its own at one target at a time. What is due is
//! decided by [`crate::schedule`]; orders come from the monitor ([`crate::monitor::orders`]); every call's outcome
//! goes back to it.

pub mod ask;
pub mod calibrate;
mod load;
mod task;

pub use ask::{Answered, Asker};
pub use load::watch_load;
pub use task::{Common, Prober, Subject};

//! Detectors, one a file, and how they combine.
//!
//! A detector takes observations and says a [`Finding`] when its statistic passes its limit; every
//! finding carries the limit's promise. What a finding means for a target is decided in `health`:
//! most arms may only raise suspicion, because changed is not worse.
//!
//! | arm | file | may |
//! |---|---|---|
//! | A1 canary scores, A3 first tokens | [`canary`], [`conformal`], [`novelty`] | raise suspicion |
//! | C1 blocks of live answers | [`blocks`], [`conformal`] | raise suspicion |
//! | A2 border inputs, without logprobs | [`border`] | raise suspicion |
//! | B1 golden burst | [`burst`] | open |
//! | C2 hard faults of live answers | [`hard_faults`] | open |
//! | plain rules over time | [`rule`] | what the rule says |
//!
//! Those that compare a stream with its healthy self rest on a calibration that has tested itself
//! ([`selftest`]), and may raise suspicion only.

pub mod blocks;
pub mod border;
mod bound;
pub mod burst;
pub mod calibration;
pub mod canary;
pub mod conformal;
pub mod drift;
pub mod engine;
mod finding;
pub mod hard_faults;
pub mod novelty;
pub mod output;
mod params;
pub mod rule;
pub mod selftest;
pub mod signal;

pub use blocks::Blocks;
pub use border::Border;
pub use bound::upper95;
pub use burst::Burst;
pub use canary::Canaries;
pub use finding::{Arm, ArmStatus, Finding, Level, Tally};
pub use hard_faults::HardFaults;
pub use params::Params;
pub use rule::Rule;
pub use signal::{Signal, Signals};

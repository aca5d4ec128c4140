//! Touchstone sits beside inference servers, wraps each call, measures what the answers *mean*, and
//! opens quality-based circuit breakers even when the upstream says 200.
//!
//! ```text
//!              request                      bytes, untouched
//!  caller ───────────────▶ proxy ─────────────────────────────▶ upstream (one of the route's targets)
//!     ▲                    │  ▲ gate: state of each target, read without waiting
//!     └── answer, as it is ┘  │
//!              │ copy         │ publishes
//!              ▼              │
//!            judge ────▶ monitor ──▶ store (SQLite), metrics, events
//!        wire+text+stats  detect → health → breaker
//!                             ▲
//!            prober ──────────┘  canaries and golden bursts through the same upstream and judge
//! ```
//!
//! Layers, each may use those below it only (`tests/layers.rs` holds the table):
//!
//! - **assemble** `cli`, `commands`, `config`, `app`
//! - **run** (tasks that own a loop) `gate`, `proxy`, `monitor`, `prober`, `admin`, `sim`
//! - **act** (IO, one subject each) `upstream`, `embed`, `golden`, `cache`, `store`, `shared`, `metrics`
//! - **decide** (pure, synchronous, deterministic) `stats`, `wire`, `text`, `judge`, `detect`, `health`,
//!   `chaos`, `breaker`, `retry`, `permits`, `spend`, `plan`, `schedule`
//! - **words** `clock`, `units`, `verdict`, `sample`, `event`, `prompt`, `baseline`

pub mod baseline;
pub mod clock;
pub mod event;
pub mod prompt;
pub mod sample;
pub mod units;
pub mod verdict;

pub mod breaker;
pub mod chaos;
pub mod detect;
pub mod health;
pub mod judge;
pub mod permits;
pub mod plan;
pub mod retry;
pub mod schedule;
pub mod spend;
pub mod stats;
pub mod text;
pub mod wire;

pub mod cache;
pub mod embed;
pub mod golden;
pub mod metrics;
pub mod shared;
pub mod store;
pub mod upstream;

pub mod admin;
pub mod gate;
pub mod monitor;
pub mod prober;
pub mod proxy;
pub mod sim;

pub mod app;
pub mod cli;
pub mod commands;
pub mod config;

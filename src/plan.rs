//! Which target a request goes to, and what follows when that target fails.
//!
//! A [`Route`] is a list of tiers, each a few targets or the cache. A [`Course`] walks one request
//! through them: [`Course::first`] picks where it starts from the published breaker states, and
//! [`Course::after`] decides after a failure whether the same target, another one of the tier or a lower
//! tier is tried, or nothing. It holds no clock, no randomness and no budget: the moment, a roll, a turn
//! and the tokens left are arguments, and what a step costs is part of the step.
//!
//! A call that was decided on may still be turned away before anything is sent (no permit, no money):
//! [`Course::turned_away`] goes on from there. A route may start requests at another tier than the first
//! ([`Pick`]); what lies above is then asked last.
//!
//! Two refusals are soft. A target that cools down, or whose ramp does not yet give it its whole share,
//! is passed over while anything else can answer, and used when nothing else can: the worst it can do is
//! to refuse once more. An open breaker is hard.

mod admit;
mod course;
mod fault;
mod pick;
mod route;
mod share;
mod step;
#[cfg(test)]
mod tests;

pub use course::Course;
pub use fault::{Fault, FaultKind};
pub use pick::{Pick, Traits};
pub use route::{Known, Member, Route, RouteError, RouteParams, Tier, is_url, route_for};
pub use share::{FallbackError, FallbackParams, Share};
pub use step::{Asked, Away, Board, Cost, GiveUp, Moment, Purse, Step, Wait};

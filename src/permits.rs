//! Concurrency: how many calls may be in flight, who waits, who is refused at once.
//!
//! ```text
//!            free permit            queue has room, can start in time
//!  acquire ──────────────▶ granted   ─────────────────────────────────▶ queued ──▶ granted
//!     │                                                                    │ deadline, cancel
//!     └── no token of the request rate, queue full, too late ─▶ refused ◀──┘
//! ```
//!
//! A [`Pool`] is one GPU or one provider account: its limit is hard, so that a card is never asked for more
//! than it holds. The targets that share it are its members; each has a limit of its own that follows the
//! breaker's ramp and shrinks while the target is degraded in capacity (additive increase, multiplicative
//! decrease, as congestion control does: Chiu and Jain, 1989). A request may weigh several permits, by its
//! estimated tokens. The queue is first in, first out; a member that may not take more is passed over, but
//! nobody passes a heavy request that waits for room in the pool, or it would wait for ever.
//!
//! Waiting is worth it only if it ends in time: the wait is foreseen from how long permits are held, and a
//! request that could not start before its deadline is refused at once, with the time after which it is
//! worth asking again (Little's law: queue ÷ throughput).

mod params;
mod pool;
mod size;
#[cfg(test)]
mod tests;

pub use params::{Params, ParamsError};
pub use pool::{Answer, Ask, Member, Pool, Rate, Shed, Ticket};

//! How many further tries a request may cost, and how long they wait.
//!
//! A retry is an extra call on a server that has just failed. Several purses keep retries from becoming the
//! fault, and a further try draws from each of them:
//!
//! - each request, and each workflow of several requests, has a few tokens ([`Workflows`]);
//! - each target takes extra calls for a fifth of its first tries, plus a floor for quiet times
//!   ([`TargetBudget`]; Finagle's `RetryBudget`, linkerd's retry budgets). Retries that come back much slower
//!   than the target's usual answer halve that for a minute, and retries that hardly ever succeed end it:
//!   then the breaker decides alone;
//! - all requests together draw from one bucket that refills at a steady rate.
//!
//! An empty purse means the next tier or an error at once, never a wait. Waits grow exponentially with full
//! jitter, which spreads simultaneous failures best (M. Brooker, "Exponential Backoff And Jitter", AWS
//! Architecture Blog, 2015). The server's own `Retry-After` wins when it is longer, up to a cap.

mod params;
mod target;
#[cfg(test)]
mod tests;
mod workflows;

pub use params::{Params, ParamsError};
pub use target::{Refused, TargetBudget};
pub use workflows::Workflows;

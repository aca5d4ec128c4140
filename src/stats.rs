//! Numeric kernels on slices and ndarray: entropy of truncated distributions, bounded time windows,
//! quantiles, running means, token buckets, a budget of processor time, distances of unit vectors and of samples of them, ranks among
//! healthy scores and bets on them.
//!
//! Everything here is pure and total: an empty or non-finite input gives `None`, never NaN.

pub mod betting;
pub mod bucket;
pub mod changepoint;
mod cpu_budget;
pub mod distance;
pub mod entropy;
pub mod ewma;
pub mod mmd;
pub mod normal;
pub mod poisson;
pub mod quantile;
pub mod ranks;
pub mod resample;
pub mod tracking;
pub mod window;

pub use bucket::Bucket;
pub use cpu_budget::CpuBudget;
pub use ewma::Ewma;
pub use window::TimeWindow;

//! Numeric kernels on slices and ndarray: entropy of truncated distributions, bounded time windows,
//! quantiles, running means and distances of unit vectors.
//!
//! Everything here is pure and total: an empty or non-finite input gives `None`, never NaN.

pub mod distance;
pub mod entropy;
pub mod ewma;
pub mod quantile;
pub mod tracking;
pub mod window;

pub use ewma::Ewma;
pub use window::TimeWindow;

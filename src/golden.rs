//! Golden sets and baselines on disk.

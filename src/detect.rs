//! Detectors, one a file, and how they combine.

pub mod calibration;
pub mod drift;

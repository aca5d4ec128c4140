//! Detectors, one a file, and how they combine.

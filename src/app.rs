//! Composition root: configuration → parts → tasks; readiness; ordered drain with a deadline.

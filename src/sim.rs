//! The simulated upstream and its faults.

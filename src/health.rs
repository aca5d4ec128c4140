//! Findings → health of a target, with hysteresis and reasons.

//! SQLite on a thread of its own: transitions, findings, samples, baselines, state.

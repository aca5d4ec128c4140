//! Canaries and bursts through the upstream, within a budget.

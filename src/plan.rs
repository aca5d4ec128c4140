//! Route, states and budgets → which target next, or which degraded answer.

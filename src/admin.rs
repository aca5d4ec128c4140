//! Health API, events, metrics, status page.

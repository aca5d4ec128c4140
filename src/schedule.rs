//! Which canary is due where, given now and a seed.

//! Command line types.

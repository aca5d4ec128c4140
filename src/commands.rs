//! One file a command.

pub mod embed;

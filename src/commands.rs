//! One file a command.

pub mod check;
pub mod config;
pub mod embed;
pub mod score;
pub mod serve;

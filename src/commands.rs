//! One file a command.

pub mod check;
pub mod config;
pub mod demo;
pub mod embed;
pub mod golden;
pub mod replay;
pub mod report;
pub mod score;
pub mod serve;
pub mod sim;

use std::fmt::Arguments;
use std::io::Write as _;

/// A line for people, on standard output. A reader that has seen enough ends nothing.
pub(crate) fn out(line: Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// The runtime of commands that talk to a network.
///
/// # Errors
/// No thread is to be had.
pub(crate) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

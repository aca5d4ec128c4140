//! `touchstone config`: the commented reference configuration.

use std::io::Write as _;

use crate::config::Config;

/// Prints every key with its default and what it is for; the output is itself a configuration.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  touchstone config > touchstone.toml")]
pub struct Args {}

/// Prints.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(_args: &Args) -> anyhow::Result<u8> {
    std::io::stdout().lock().write_all(Config::reference().as_bytes())?;
    Ok(0)
}

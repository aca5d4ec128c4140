//! `touchstone check`: is this configuration sound?

use std::io::Write as _;
use std::path::PathBuf;

use crate::config::Config;

/// Reads a configuration as the daemon would and names the path of each fault; warns of policies that
/// can never fire.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 sound, 64 faulty\n\nExample:\n  touchstone check --config touchstone.toml"
)]
pub struct Args {
    /// The configuration
    #[arg(long, value_name = "F")]
    pub config: PathBuf,
}

/// Says on standard output that the file is sound; warnings go to standard error.
///
/// # Errors
/// Every fault of the file.
pub fn run(args: &Args) -> anyhow::Result<u8> {
    let config = Config::load(&args.config)?;
    let file = args.config.display();
    let mut err = std::io::stderr().lock();
    for warning in config.warnings() {
        writeln!(err, "{file}: warning: {warning}")?;
    }
    let (targets, routes, mode) = (config.targets.len(), config.routes.len(), config.mode);
    writeln!(std::io::stdout(), "{file}: sound; targets {targets}, routes {routes}, mode {mode}")?;
    Ok(0)
}

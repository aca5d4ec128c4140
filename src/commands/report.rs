//! `touchstone report`: what a period in shadow mode has shown.

pub mod account;
mod page;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::out;
use crate::cli::DONE;
use crate::clock::Clock;
use crate::config::Config;
use crate::store::Reader;

/// Tell how often the breaker opened or would have, why and for how long, what that saved or would have saved,
/// and whether the arms keep the false-alarm rates that they promise. Reads the daemon's database, also while
/// it runs.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  touchstone report\n  touchstone report --since 7d --format html > report.html\n  \
                        touchstone report --config touchstone.toml --format json | jq .recommendation"
)]
pub struct Args {
    /// How far to look back
    #[arg(long, value_name = "TIME", default_value = "48h", value_parser = humantime::parse_duration)]
    since: Duration,
    /// text, html or json
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "html", "json"])]
    format: String,
    /// The configuration
    #[arg(long, value_name = "F")]
    config: Option<PathBuf>,
    /// The daemon's data directory
    #[arg(long, value_name = "D")]
    data_dir: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// A faulty configuration; a database that is not there or cannot be read.
pub fn run(args: &Args) -> anyhow::Result<u8> {
    let mut config = match &args.config {
        Some(file) => Config::load(file)?,
        // Only where the database lies is wanted; nothing is asked of this address.
        None => Config::single(&["http://127.0.0.1:8000".to_owned()])?,
    };
    if let Some(dir) = &args.data_dir {
        config.data_dir = Some(std::path::absolute(dir).unwrap_or_else(|_| dir.clone()));
    }
    let file = config.store_file();
    if !file.exists() {
        bail!("{}: no database; name the daemon's with --config or --data-dir", file.display());
    }
    let until = Clock::system().now();
    let since = until.minus_ms(u64::try_from(args.since.as_millis()).unwrap_or(u64::MAX));
    let account = account::read(&Reader::new(&file), since, until)
        .with_context(|| format!("cannot read {}", file.display()))?;
    match args.format.as_str() {
        "json" => out(format_args!("{}", serde_json::to_string_pretty(&account)?)),
        "html" => out(format_args!("{}", page::html(&account))),
        _ => out(format_args!("{}", page::text(&account).trim_end())),
    }
    Ok(DONE)
}

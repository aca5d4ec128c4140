//! Command line types.

use clap::{Parser, Subcommand};

use crate::commands::{check, config, demo, embed, golden, replay, report, score, serve, sim};
use crate::config::{ConfigError, log};

/// Exit code of a command that did what it was asked.
pub const DONE: u8 = 0;
/// Exit code of a command that failed.
pub const FAILED: u8 = 1;
/// Exit code of a story or check that was not met.
pub const NOT_MET: u8 = 2;
/// Exit code of bad usage or configuration; `EX_USAGE` of sysexits.
pub const USAGE: u8 = 64;

/// Measures what the answers of inference servers mean and trips quality breakers.
#[derive(Debug, Parser)]
#[command(name = "touchstone", version, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 story or check not met, 64 bad usage or configuration\n\
                        \nExamples:\n  touchstone demo\n  touchstone serve --upstream http://127.0.0.1:8000\n  \
                        touchstone config > touchstone.toml"
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Every command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon
    Serve(serve::Args),
    /// Show the whole story on this machine, with nothing installed
    Demo(demo::Args),
    /// Check a configuration
    Check(check::Args),
    /// Print the commented reference configuration
    Config(config::Args),
    /// Make, freeze, check and show a golden baseline
    Golden(golden::Args),
    /// Say when each arm would have fired on recorded exchanges
    Replay(replay::Args),
    /// Tell what a period in shadow mode has shown
    Report(report::Args),
    /// Judge one answer: a response on standard input, its signals and flags as JSON
    Score(score::Args),
    /// Turn texts into vectors, a line each
    Embed(embed::Args),
    /// Run the simulated upstream alone
    Sim(sim::Args),
}

impl Command {
    /// Runs it; the exit code.
    ///
    /// # Errors
    /// Whatever made it fail.
    pub fn run(&self) -> anyhow::Result<u8> {
        if !matches!(self, Self::Serve(_) | Self::Demo(_)) {
            log::Params::quiet().start(); // the daemon's own log is configured
        }
        match self {
            Self::Serve(args) => serve::run(args),
            Self::Demo(args) => demo::run(args),
            Self::Check(args) => check::run(args),
            Self::Config(args) => config::run(args),
            Self::Golden(args) => golden::run(args),
            Self::Replay(args) => replay::run(args),
            Self::Report(args) => report::run(args),
            Self::Score(args) => score::run(args),
            Self::Embed(args) => embed::run(args),
            Self::Sim(args) => sim::run(args),
        }
    }
}

/// The exit code for an error. A reader that has seen enough and closed the pipe is no failure.
#[must_use]
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let mut causes = error.chain();
    if error.chain().any(<dyn std::error::Error>::is::<ConfigError>) {
        return USAGE;
    }
    let broken_pipe = causes.any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    });
    if broken_pipe { DONE } else { FAILED }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_help_has_an_example() {
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        for sub in command.get_subcommands_mut() {
            let help = sub.render_help().to_string();
            assert!(help.contains("Example"), "{help}");
        }
    }

    #[test]
    fn serve_needs_a_file_or_an_upstream_and_takes_the_contracts_flags() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(|_| ()).map_err(|e| e.to_string());
        assert!(parse("touchstone serve").is_err());
        assert!(parse("touchstone serve --mode enforce").expect_err("refused").contains("--config"));
        assert!(parse("touchstone serve --config f --upstream http://h").is_err());
        assert!(parse("touchstone serve --upstream http://a --upstream http://b").is_ok());
        assert!(
            parse("touchstone serve --config f --listen 127.0.0.1:1 --admin 127.0.0.1:2 --mode enforce --data-dir d")
                .is_ok()
        );
        assert!(parse("touchstone serve --upstream u --mode loud").expect_err("refused").contains("shadow"));
    }

    #[test]
    fn errors_have_the_contracts_exit_codes() {
        let faulty = crate::config::Config::from_toml("").expect_err("faulty");
        assert_eq!(exit_code(&faulty.into()), USAGE);
        let pipe = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert_eq!(exit_code(&anyhow::Error::from(pipe).context("cannot write")), DONE);
        assert_eq!(exit_code(&anyhow::anyhow!("boom")), FAILED);
    }
}

//! The `touchstone` command.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use touchstone::cli::{Cli, DONE, USAGE, exit_code};

/// Requests on several threads make and drop many small things at once.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refusal) => {
            let _ = refusal.print(); // a closed pipe has no reader to tell
            return ExitCode::from(if refusal.use_stderr() { USAGE } else { DONE });
        }
    };
    match cli.command.run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let code = exit_code(&error);
            if code != DONE {
                let _ = writeln!(std::io::stderr(), "touchstone: {error:#}");
            }
            ExitCode::from(code)
        }
    }
}

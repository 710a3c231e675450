//! The command line as a whole, and which module runs which command.

use crate::exit::{self, CODES, Ended};
use crate::{journal, sale, storm, terminal, warnings};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// Keeps a service standing: rate limits, deferred calls, flash sales.
#[derive(Parser, Debug)]
#[command(name = "tidegate", version, after_help = CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Look into the journal of deferred calls, and act on it.
    Journal(journal::Args),
    /// Run a flash sale on this machine, ready to buy from.
    Sale(Box<sale::Args>),
    /// Let a crowd loose on a running sale, and check its books afterwards.
    Storm(Box<storm::Args>),
}

/// Runs what the command line says, and tells with which code to exit.
pub fn main() -> ExitCode {
    // Fails only where somebody else listens already.
    let _ = tracing::subscriber::set_global_default(warnings::Warnings(terminal::tell));
    match Cli::try_parse() {
        Ok(cli) => exit::code(run(cli.command)),
        Err(error) => refused(&error),
    }
}

fn run(command: Command) -> anyhow::Result<Ended> {
    let mut builder = match command {
        // The sale under load needs the other cores.
        Command::Storm(_) => tokio::runtime::Builder::new_current_thread(),
        Command::Journal(_) | Command::Sale(_) => tokio::runtime::Builder::new_multi_thread(),
    };
    if let Command::Journal(_) = command {
        // It mostly waits; a sale gets all cores.
        builder.worker_threads(2);
    }
    let runtime = builder.enable_all().build()?;
    let ended = match command {
        Command::Journal(args) => runtime.block_on(journal::run(args)),
        Command::Sale(args) => runtime.block_on(sale::run(*args)),
        Command::Storm(args) => runtime.block_on(storm::run(*args)),
    };
    // What still runs is dropped, and what it started killed. Only a thread that hangs, such as
    // one that asks for a name, does not hear of it, and must not keep the program from ending.
    runtime.shutdown_timeout(Duration::from_secs(2));
    ended
}

/// The parser's own words. It repeats arguments as they came, and those may be a stranger's.
fn refused(error: &clap::Error) -> ExitCode {
    let is_hostile = |arg: OsString| arg.to_string_lossy().chars().any(terminal::is_hostile);
    if std::env::args_os().any(is_hostile) {
        let lines: Vec<String> = error.render().to_string().lines().map(terminal::plain).collect();
        terminal::tell(&lines.join("\n"));
    } else {
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

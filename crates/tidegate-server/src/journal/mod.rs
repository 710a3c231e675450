//! `tidegate journal`: looking into the journal of deferred calls, and acting on it.
//!
//! Deliberately absent: recording calls. That is the business of the program that meets the
//! limit; and so nothing but `init` makes a file or a table.

mod change;
mod exec;
mod init;
mod list;
mod place;
mod purge;
mod record;
mod redact;
mod run_once;
mod show;
mod signals;
mod stats;

use crate::exit::{CODES, Ended};
use clap::Subcommand;
use std::io::Write as _;
use std::time::Duration;
use tidegate_journal::Guid;

const EXAMPLES: &str = "\
Examples:
  tidegate journal init                            make the tables, or take over a table
  tidegate journal stats                           how much is pending, and since when
  tidegate journal list --status failed            what failed, the newest first
  tidegate journal show 0190f3a2b4c87d1e8f00112233445566
  tidegate journal retry 0190f3a2b4c87d1e8f00112233445566
  tidegate journal list --status failed --limit 100000 --json | jq -r .guid |
    xargs -r -d '\\n' tidegate journal retry
  tidegate journal purge --older-than 7d
  tidegate journal run-once --exec 'ship=/usr/local/bin/ship --fast' --limit 100/s

Which journal:
  --sqlite or --postgres, else the environment variable TIDEGATE_JOURNAL (a file, sqlite:FILE or
  postgres://user:password@host:5432/database), else the file tidegate.db in the current folder.
  It has to exist: only init makes anything. A password belongs into the variable, not into the command
  line, where every user of the machine can read it.

Parameters, results and idempotency keys may be personal, so they are shown only with --params.
With --json, commands print one JSON object a line, and nothing else on standard output.
";

/// Look into the journal of deferred calls, and act on it.
#[derive(clap::Args, Debug)]
#[command(after_help = format!("{EXAMPLES}\n{CODES}"))]
pub(crate) struct Args {
    #[command(flatten)]
    place: place::Which,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Make the tables, or take over a table that another program made.
    #[command(after_help = init::HELP)]
    Init(init::Args),
    /// Tell how much is pending, how old it is and how long overdue, by method and in all.
    #[command(after_help = stats::HELP)]
    Stats(stats::Args),
    /// List records, the newest first.
    #[command(after_help = list::HELP)]
    List(list::Args),
    /// Show one record whole.
    #[command(after_help = show::HELP)]
    Show(show::Args),
    /// Make records pending again that failed, expired or were cancelled.
    ///
    /// They get all their attempts again, and no deadline.
    #[command(after_help = change::RETRY_HELP)]
    Retry(change::Args),
    /// End records that are pending or running.
    ///
    /// A running handler is asked to stop with its next sign of life; what it still does is not
    /// entered.
    #[command(after_help = change::CANCEL_HELP)]
    Cancel(change::Args),
    /// Remove records that ended long ago: one pass.
    ///
    /// A thousand at a time in transactions of their own, so nobody waits for it. Running
    /// workers do the same by themselves.
    #[command(after_help = purge::HELP)]
    Purge(purge::Args),
    /// End what is overdue and remove what is old; with --exec, replay what is due. For cron.
    #[command(after_help = run_once::HELP)]
    RunOnce(Box<run_once::Args>),
}

pub(crate) async fn run(args: Args) -> anyhow::Result<Ended> {
    let place = args.place;
    match args.command {
        Command::Init(args) => init::run(&place, &args).await,
        Command::Stats(args) => stats::run(&place, &args).await,
        Command::List(args) => list::run(&place, args).await,
        Command::Show(args) => show::run(&place, &args).await,
        Command::Retry(args) => change::retry(&place, args).await,
        Command::Cancel(args) => change::cancel(&place, args).await,
        Command::Purge(args) => purge::run(&place, &args).await,
        Command::RunOnce(args) => run_once::run(&place, *args).await,
    }
}

/// A line on standard output. Fails where nobody reads it any more.
fn say(line: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout().lock(), "{line}")
}

/// An argument that names a record.
fn guid(text: &str) -> Result<Guid, String> {
    text.parse().map_err(|error: tidegate_journal::GuidError| error.to_string())
}

/// An argument that is a length of time: `90s`, `36h`, `1d`, `1h 30m`.
fn length(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write 90s, 15m, 36h or 7d"))
}

/// The same for how long something may take: not no time at all.
fn some_length(text: &str) -> Result<Duration, String> {
    match length(text)? {
        Duration::ZERO => {
            Err("nothing ends in no time; write 30s, 5m, or 7d for as good as no end".to_owned())
        }
        length => Ok(length),
    }
}

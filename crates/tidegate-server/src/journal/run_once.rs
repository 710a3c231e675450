//! `tidegate journal run-once`: one pass over the journal, for cron.

use super::exec::{Environment, Exec, environment};
use super::signals::Signals;
use super::{length, place, say, some_length};
use crate::exit::{Ended, Usage};
use crate::terminal;
use anyhow::Context as _;
use indicatif::ProgressBar;
use serde::de::IgnoredAny;
use serde_json::json;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tidegate::{Gate, Limit, Limiter};
use tidegate_journal::{Go, Journal, Pass, Worker};

pub(super) const HELP: &str = "\
Without --exec it ends records whose deadline has passed, removes those that ended long ago, and
leaves everything else alone. With --exec it is a worker: it replays each due record of these
methods once, and fails records of methods that no worker knew for --orphan-after.

The command is run without a shell. It gets
  on standard input   the parameters, as JSON
  in its environment  TIDEGATE_GUID (the same in every attempt), TIDEGATE_METHOD,
                      TIDEGATE_ATTEMPT (1 for the first), TIDEGATE_LEASE (grows with each owner);
                      of ours only PATH, HOME, USER, LOGNAME, SHELL, LANG, LANGUAGE, LC_…, TZ and
                      TMPDIR, and what --env names
and tells by its exit code
  0      done; standard output becomes the result: JSON, or else a string; up to 64 KiB
  65     failed for good (EX_DATAERR); the last lines of standard error are the reason
  other  try again later, with the same reason, up to --max-attempts
A command that takes longer than --timeout is killed with its children, and tried again later.
It may run twice for one record after a crash: let it bear that, by the guid.

Examples:
  tidegate journal run-once
  tidegate journal run-once --exec 'ship=/usr/local/bin/ship --fast' --limit '100/s burst 10'
  tidegate journal run-once --exec 'mail=sh -c \"jq -r .to | xargs notify\"' --concurrency 2 --json

Crontab:
  */5 * * * *  TIDEGATE_JOURNAL=/var/lib/app/calls.db flock -n /var/lib/app/calls.lock /usr/local/bin/tidegate journal run-once --exec ship=/usr/local/bin/ship
--limit holds within one pass; flock keeps a second from running beside one that takes longer.

Prints picked, done, failed, retried, expired and purged; exits with 0 once the pass has ended,
whatever came of its records. SIGINT, SIGTERM, SIGHUP and SIGQUIT end it in order: nothing more is
taken up, what has not started is given back, what runs has 10 s; it exits with 1. A second one ends
it at once.";

#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Replay records of this method with this command. May be given for several methods.
    #[arg(long, value_name = "METHOD=COMMAND", value_parser = Exec::parse)]
    exec: Vec<Exec>,
    /// Commands get this variable, too. May be given several times.
    #[arg(long, value_name = "NAME", requires = "exec")]
    env: Vec<String>,
    /// How fast replays may start, all methods together, such as 100/s or '10/s burst 1'.
    #[arg(long, value_name = "LIMIT", requires = "exec")]
    limit: Option<Limit>,
    /// How many commands run at once; at least one for each method.
    #[arg(long, value_name = "N", default_value_t = 8, requires = "exec",
          value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: u16,
    /// How long a command may run.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = some_length, requires = "exec")]
    timeout: Duration,
    /// How often a record is tried that does not say so itself.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "exec",
          value_parser = clap::value_parser!(u16).range(1..))]
    max_attempts: u16,
    /// Records of methods that no worker knew for so long fail.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = length, requires = "exec")]
    orphan_after: Duration,
    /// Remove what ended longer ago than this.
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = length)]
    older_than: Duration,
    /// One JSON object: picked, done, failed, retried, expired, purged.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(place: &place::Which, args: Args) -> anyhow::Result<Ended> {
    let mut methods = BTreeSet::new();
    if let Some(twice) = args.exec.iter().find(|exec| !methods.insert(&exec.method)) {
        return Err(Usage(format!("--exec names `{}` twice: say which command", twice.method)).into());
    }
    let environment = environment(&args.env).map_err(Usage)?;
    let mut signals = Signals::listen()?;
    let journal = tokio::select! {
        journal = place.open() => journal?,
        () = signals.heard() => {
            terminal::tell("interrupted: the journal was not open yet, and nothing was done");
            return Ok(Ended::NotAll);
        }
    };
    let bar = terminal::spinner("replayed");
    let outcome = if args.exec.is_empty() {
        tidy(&journal, args.older_than, &bar, signals).await
    } else {
        replay(&journal, &args, environment, &bar, signals).await
    };
    bar.finish_and_clear();
    let (pass, ended) = outcome?;
    say(&if args.json { figures(&pass) } else { pass.to_string() })?;
    if ended == Ended::NotAll {
        terminal::tell("interrupted: the next pass takes up what this one left");
    }
    Ok(ended)
}

fn figures(pass: &Pass) -> String {
    let Pass { picked, done, failed, retried, expired, purged, .. } = *pass;
    json!({ "picked": picked, "done": done, "failed": failed, "retried": retried, "expired": expired, "purged": purged })
        .to_string()
}

/// What needs no handler.
async fn tidy(
    journal: &Journal,
    older_than: Duration,
    bar: &ProgressBar,
    mut signals: Signals,
) -> anyhow::Result<(Pass, Ended)> {
    bar.set_message("removed");
    let (expired, purged) = (Cell::new(0), Cell::new(0));
    let tidied = async {
        expired.set(journal.expire().await?);
        let told = |so_far| {
            purged.set(so_far);
            bar.set_position(so_far);
        };
        journal.purge(older_than, told).await
    };
    let ended = tokio::select! {
        tidied = tidied => tidied.map(|_| Ended::Done)?,
        () = signals.heard() => Ended::NotAll,
    };
    let mut pass = Pass::default();
    (pass.expired, pass.purged) = (expired.get(), purged.get());
    Ok((pass, ended))
}

/// A pass of a worker whose handlers are commands, until it is done or interrupted.
async fn replay(
    journal: &Journal,
    args: &Args,
    environment: Environment,
    bar: &ProgressBar,
    mut signals: Signals,
) -> anyhow::Result<(Pass, Ended)> {
    let worker = worker(journal, args, environment, bar)?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let pass = worker.run_once_until(async {
        let _ = stopped.await;
    });
    tokio::pin!(pass);
    tokio::select! {
        pass = &mut pass => return Ok((pass?, Ended::Done)),
        () = signals.heard() => {}
    }
    drop(stop);
    tokio::select! {
        pass = &mut pass => Ok((pass?, Ended::NotAll)),
        () = signals.heard() => anyhow::bail!("interrupted twice: commands were killed, and their leases lapse"),
    }
}

fn worker(
    journal: &Journal,
    args: &Args,
    environment: Environment,
    bar: &ProgressBar,
) -> anyhow::Result<Worker> {
    let environment = Arc::new(environment);
    let mut worker = Worker::new(journal)
        .concurrency(usize::from(args.concurrency))
        .replay_max(args.timeout)
        .max_attempts(args.max_attempts)
        .orphan_after(args.orphan_after)
        .keep(args.older_than);
    for exec in &args.exec {
        let (command, environment, bar) = (Arc::new(exec.clone()), environment.clone(), bar.clone());
        // Any JSON is welcome; the command gets it as it was written.
        worker = worker.on_replay(&exec.method, move |replay, _: IgnoredAny| {
            let (command, environment, bar) = (command.clone(), environment.clone(), bar.clone());
            async move {
                let output = command.run(&replay, &environment).await;
                bar.inc(1);
                output
            }
        });
    }
    let Some(limit) = &args.limit else { return Ok(worker) };
    let gate = Limiter::new().gate("run-once", limit.clone()).context("--limit")?;
    Ok(worker.gate(move |_| turn(gate.clone())))
}

/// When the limit lets the next replay start.
async fn turn(gate: Gate) -> Go {
    match gate.acquire("replay").await.into_permit() {
        Ok(permit) => Go::now().holding(permit),
        Err(refusal) => Go::ask_again(refusal.retry_after().unwrap_or(Duration::from_secs(1))),
    }
}

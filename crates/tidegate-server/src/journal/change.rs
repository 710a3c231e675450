//! `tidegate journal retry` and `tidegate journal cancel`: one line of outcome a record.

use super::{guid, place, say};
use crate::exit::Ended;
use crate::terminal::{self, Paint, plain};
use owo_colors::Style;
use serde::Serialize;
use tidegate_journal::{Cancelled, Guid, JournalError, Retried};

pub(super) const RETRY_HELP: &str = "\
Examples:
  tidegate journal retry 0190f3a2b4c87d1e8f00112233445566
  tidegate journal list --status failed --limit 100000 --json | jq -r .guid |
    xargs -r -d '\\n' tidegate journal retry

Prints one line a record, in the order given; exits with 1 if one of them was not done.
--json: one object a line, with guid, done (true or false) and outcome (a sentence).";

pub(super) const CANCEL_HELP: &str = "\
Examples:
  tidegate journal cancel 0190f3a2b4c87d1e8f00112233445566
  tidegate journal list --method ship --status pending --limit 100000 --json | jq -r .guid |
    xargs -r -d '\\n' tidegate journal cancel

Prints one line a record, in the order given; exits with 1 if one of them was not done.
--json: one object a line, with guid, done (true or false) and outcome (a sentence).";

#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The records.
    #[arg(value_name = "GUID", required = true, value_parser = guid)]
    guids: Vec<Guid>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

pub(super) async fn retry(place: &place::Which, args: Args) -> anyhow::Result<Ended> {
    let journal = place.open().await?;
    each(args, async |guid| {
        Ok(match journal.retry(guid).await? {
            Retried::Pending => Outcome::done("pending again"),
            Retried::Refused(status) => Outcome::not_done(format!(
                "not tried again: it is {status}; what is pending, running or done is not"
            )),
            Retried::Superseded => Outcome::not_done(
                "not tried again: another record with its idempotency key is pending, running or done"
                    .to_owned(),
            ),
            Retried::Unknown => Outcome::unknown(),
        })
    })
    .await
}

pub(super) async fn cancel(place: &place::Which, args: Args) -> anyhow::Result<Ended> {
    let journal = place.open().await?;
    each(args, async |guid| {
        Ok(match journal.cancel(guid).await? {
            Cancelled::Pending => Outcome::done("cancelled"),
            Cancelled::Running => Outcome::done("cancelled while it ran; its handler is asked to stop"),
            Cancelled::AlreadyEnded(status) => Outcome::not_done(format!("not cancelled: it is {status}")),
            Cancelled::Unknown => Outcome::unknown(),
        })
    })
    .await
}

/// What came of one wish.
#[derive(Serialize)]
struct Outcome {
    done: bool,
    outcome: String,
}

impl Outcome {
    fn done(outcome: &str) -> Self {
        Self { done: true, outcome: outcome.to_owned() }
    }

    fn not_done(outcome: String) -> Self {
        Self { done: false, outcome }
    }

    fn unknown() -> Self {
        Self::not_done("there is no such record (any more)".to_owned())
    }
}

#[derive(Serialize)]
struct Line<'a> {
    guid: &'a Guid,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// One after the other; a database that fails ends it, because the others would fail too. Nobody
/// who reads what came of them does not: what was asked for is done all the same.
async fn each(
    args: Args,
    change: impl AsyncFn(&Guid) -> Result<Outcome, JournalError>,
) -> anyhow::Result<Ended> {
    let paint = Paint::for_stdout();
    let mut ended = Ended::Done;
    let mut told = Ok(());
    for guid in &args.guids {
        let outcome = change(guid).await?;
        if !outcome.done {
            ended = Ended::NotAll;
        }
        let line = if args.json {
            terminal::json(&Line { guid, outcome: &outcome })?
        } else {
            let style = if outcome.done { Style::new().green() } else { Style::new().red() };
            format!("{}  {}", plain(guid.as_str()), paint.text(&outcome.outcome, style))
        };
        told = told.and_then(|()| say(&line));
    }
    match ended {
        Ended::Done => Ok(told.map(|()| ended)?),
        Ended::NotAll => Ok(ended),
    }
}

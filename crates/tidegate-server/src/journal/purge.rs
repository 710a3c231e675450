//! `tidegate journal purge`.

use super::{length, place, say};
use crate::exit::Ended;
use crate::terminal;
use std::time::Duration;

pub(super) const HELP: &str = "\
Examples:
  tidegate journal purge                    what ended more than a day ago
  tidegate journal purge --older-than 7d
  tidegate journal purge --older-than 0s    everything that has ended

Pending and running records are never removed. --json prints {\"purged\":N}.";

#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Remove what ended longer ago than this: 90s, 36h, 7d.
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = length)]
    older_than: Duration,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(place: &place::Which, args: &Args) -> anyhow::Result<Ended> {
    let journal = place.open().await?;
    let bar = terminal::spinner("removing");
    let purged = journal.purge(args.older_than, |so_far| bar.set_position(so_far)).await;
    bar.finish_and_clear();
    let purged = purged?;
    let line = if args.json { format!("{{\"purged\":{purged}}}") } else { format!("purged {purged}") };
    say(&line)?;
    Ok(Ended::Done)
}

//! `tidegate journal stats`.
//!
//! Deliberately absent: what was recorded, done and failed so far. A process counts that for
//! itself, and this one has just begun.

use super::record::about;
use super::{place, say};
use crate::exit::Ended;
use crate::terminal::{self, plain};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::time::Duration;
use tidegate_journal::{JournalStats, MethodDepth};

pub(super) const HELP: &str = "\
Examples:
  tidegate journal stats
  tidegate journal stats --json | jq 'select(.method == null).pending'
  tidegate journal stats --json | jq -r 'select(.overdue_seconds > 600) | .method // \"in all\"'

PENDING are pending and running records. OLDEST is how long ago the oldest of them was recorded,
however often it was tried since. OVERDUE is how long the one that is longest due has been due, and
nobody has taken it up: it grows where workers do not keep up, or there are none.
--json prints one object a line: method, pending, oldest_seconds, overdue_seconds; one for each
method that has pending records, and as the last one that for all, whose method is null.";

#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// One JSON object a line, for programs.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(place: &place::Which, args: &Args) -> anyhow::Result<Ended> {
    let stats = place.open().await?.stats().await?;
    let lines = lines(&stats);
    if args.json {
        for line in &lines {
            say(&terminal::json(line)?)?;
        }
    } else {
        for line in table(&lines).lines() {
            say(line.trim_end())?;
        }
    }
    Ok(Ended::Done)
}

/// What is pending of one method, or of all.
#[derive(Serialize)]
struct Line<'a> {
    method: Option<&'a str>,
    pending: u64,
    oldest_seconds: Option<f64>,
    overdue_seconds: Option<f64>,
}

impl<'a> Line<'a> {
    fn new(
        method: Option<&'a str>,
        pending: u64,
        oldest: Option<Duration>,
        overdue: Option<Duration>,
    ) -> Self {
        let seconds = |length: Option<Duration>| length.map(|length| length.as_secs_f64());
        Self { method, pending, oldest_seconds: seconds(oldest), overdue_seconds: seconds(overdue) }
    }
}

/// The methods in the order of their names, and all of them last.
fn lines<'a>(stats: &'a JournalStats) -> Vec<Line<'a>> {
    let one = |(method, depth): (&'a String, &MethodDepth)| {
        Line::new(Some(method), depth.pending, depth.oldest, depth.overdue)
    };
    let all = Line::new(None, stats.pending, stats.oldest, stats.overdue);
    stats.methods.iter().map(one).chain([all]).collect()
}

fn table(lines: &[Line<'_>]) -> Table {
    let length = |seconds: Option<f64>| {
        seconds.map_or_else(|| "-".to_owned(), |seconds| about(Duration::from_secs_f64(seconds)))
    };
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["METHOD", "PENDING", "OLDEST", "OVERDUE"]);
    for line in lines {
        let method = line.method.map_or_else(|| "in all".to_owned(), plain);
        table.add_row([
            method,
            line.pending.to_string(),
            length(line.oldest_seconds),
            length(line.overdue_seconds),
        ]);
    }
    for (nth, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if nth > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

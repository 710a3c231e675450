//! `tidegate journal init`: makes the tables of a journal, or takes over one that others made.
//!
//! The only command that makes anything. Programs in Rust need none: they make the tables when they
//! first open the journal.

use super::{place, say};
use crate::exit::Ended;
use crate::terminal;
use serde_json::json;
use tidegate_journal::Opened;

pub(super) const HELP: &str = "\
Makes the file and the tables, takes over a table with the columns is_delete, update_time,
create_time, method_name, method_params, guid and status (its rows stay), or brings a journal of an
older version up to date. Run again, it does nothing. On PostgreSQL it also makes the roles
tidegate_rw and tidegate_ro where the user may; standard error says what is left to do.

Programs in any language then record calls, and run-once --exec replays them:
  INSERT INTO t_method_limit_log (guid, method_name, method_params)
  VALUES ('order-17', 'ship', '{\"order\": 17}');
In an SQLite file that was made before version 4 give create_time and update_time, too, such as by
CURRENT_TIMESTAMP.

Examples:
  tidegate journal init
  tidegate journal init --sqlite /var/lib/app/calls.db
  TIDEGATE_JOURNAL=postgres://owner:secret@db/app tidegate journal init --table kept_calls

Prints what was done; --json: one object with table and outcome (made, taken over, upgraded, found).";

#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(place: &place::Which, args: &Args) -> anyhow::Result<Ended> {
    let journal = place.init().await?;
    let (table, opened) = (place.table(), journal.opened());
    let (outcome, line) = match opened {
        Opened::Made => ("made", format!("made `{table}`")),
        Opened::TakenOver => ("taken over", format!("took over `{table}` with its rows")),
        Opened::Upgraded => ("upgraded", format!("brought `{table}` up to date")),
        _ => ("found", format!("`{table}` is a journal already; nothing was changed")),
    };
    for note in journal.notes() {
        terminal::tell(note);
    }
    say(&if args.json { json!({ "table": table, "outcome": outcome }).to_string() } else { line })?;
    Ok(Ended::Done)
}

//! `tidegate journal show`.

use super::record::{Json, Privacy, apart, method, status, time};
use super::{guid, place, say};
use crate::exit::Ended;
use crate::terminal::{self, Paint, plain};
use anyhow::Context as _;
use comfy_table::{Table, presets};
use std::time::SystemTime;
use tidegate_journal::{Guid, Record};

pub(super) const HELP: &str = "\
Examples:
  tidegate journal show 0190f3a2b4c87d1e8f00112233445566
  tidegate journal show 0190f3a2b4c87d1e8f00112233445566 --params --json | jq .params";

#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The record.
    #[arg(value_name = "GUID", value_parser = guid)]
    guid: Guid,
    /// One JSON object, as `list` prints it.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    privacy: Privacy,
}

pub(super) async fn run(place: &place::Which, args: &Args) -> anyhow::Result<Ended> {
    let journal = place.open().await?;
    let record = journal.find(&args.guid).await?;
    let record =
        record.with_context(|| format!("there is no record {} (any more)", plain(args.guid.as_str())))?;
    if args.json {
        say(&terminal::json(&Json::new(&record, args.privacy))?)?;
        return Ok(Ended::Done);
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for (name, value) in lines(&record, args.privacy, journal.now().await?) {
        table.add_row([name, &value]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    for line in table.lines() {
        say(line.trim_end())?;
    }
    Ok(Ended::Done)
}

fn lines(record: &Record, privacy: Privacy, now: SystemTime) -> Vec<(&'static str, String)> {
    let at =
        |when: SystemTime| format!("{} ({})", time(when).unwrap_or_else(|| "?".to_owned()), apart(when, now));
    let text = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), plain);
    let private = |secret: Option<&str>| match secret {
        Some(secret) if !privacy.shows_params => format!("[{} bytes; --params shows them]", secret.len()),
        shown => text(shown),
    };
    let has_ended = record.status.has_ended();
    let mut all = vec![
        ("guid", plain(record.guid.as_str())),
        ("method", method(record)),
        ("status", status(record.status, Paint::for_stdout())),
        ("attempts", record.attempts.to_string()),
        ("priority", record.priority.to_string()),
        ("created", at(record.create_time)),
        (if has_ended { "ended" } else { "changed" }, at(record.update_time)),
    ];
    if !has_ended {
        all.push(("next", at(record.next_time)));
    }
    all.extend([
        ("deadline", record.deadline.map_or_else(|| "-".to_owned(), at)),
        ("worker", text(record.lease_owner.as_deref())),
        ("last error", text(privacy.error_of(record).as_deref())),
        ("key", private(record.key.as_deref())),
        ("params", private(Some(&record.params))),
        ("result", private(record.result.as_deref())),
    ]);
    all
}

//! `tidegate journal list`.

use super::record::{Json, Privacy, about, apart, method, status};
use super::{guid, place, say};
use crate::exit::Ended;
use crate::terminal::{self, Paint, plain, short};
use anyhow::{Context as _, bail};
use comfy_table::{CellAlignment, Table, presets};
use std::time::SystemTime;
use tidegate_journal::{Filter, Guid, Journal, Page, Record, Status};

pub(super) const HELP: &str = "\
Examples:
  tidegate journal list
  tidegate journal list --status running --method ship
  tidegate journal list --limit 100 --after 0190f3a2b4c87d1e8f00112233445566    the next page
  tidegate journal list --status failed --limit 1000000 --json --params > failed.ndjson

Status: pending, running (a worker holds it), done, failed, expired, cancelled; or a number that
another program wrote into the table.
NEXT is the next attempt, or for running records the end of the lease.
Where there are more than --limit, a line on standard error says so and how to go on.
--json prints one object a line (NDJSON): guid, method, status, attempts, priority, create_time,
update_time, next_time, deadline, lease_owner, last_error; with --params also key, params, result.";

#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Only records that stand so.
    #[arg(long, value_name = "STATUS", value_parser = standing, allow_negative_numbers = true)]
    status: Option<Status>,
    /// Only records of this method.
    #[arg(long, value_name = "NAME")]
    method: Option<String>,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Only those that come after this record in the list, that is, older ones.
    #[arg(long, value_name = "GUID", value_parser = guid)]
    after: Option<Guid>,
    /// One JSON object a line, for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    privacy: Privacy,
}

/// A status by its word, or by its number where it has none.
fn standing(text: &str) -> Result<Status, String> {
    let all =
        [Status::Pending, Status::Running, Status::Done, Status::Failed, Status::Expired, Status::Cancelled];
    if let Some(status) = all.into_iter().find(|status| status.to_string() == text) {
        return Ok(status);
    }
    let number = text.parse::<i16>().ok();
    let known = number.and_then(|number| all.into_iter().find(|status| status.code() == number));
    known.or(number.map(Status::Other)).ok_or_else(|| {
        let words = all.map(|status| status.to_string()).join(", ");
        format!("write one of {words}, or a number that another program wrote")
    })
}

/// As many as the journal gives at once.
const PAGE_MAX: u64 = 1_000;

/// A table is laid out as a whole, so it takes fewer than a stream would.
const TABLE_MAX: u64 = 10_000;

pub(super) async fn run(place: &place::Which, args: Args) -> anyhow::Result<Ended> {
    if !args.json && args.limit > TABLE_MAX {
        let why = format!("a table has at most {TABLE_MAX} lines: use --json, or pages with --after");
        bail!(crate::exit::Usage(why));
    }
    let journal = place.open().await?;
    let mut filter = Filter::all();
    if let Some(status) = args.status {
        filter = filter.status(status);
    }
    if let Some(method) = args.method {
        filter = filter.method(method);
    }
    let mut last = match &args.after {
        Some(guid) => Some(journal.find(guid).await?.with_context(|| {
            let guid = plain(guid.as_str());
            format!("there is no record {guid} (any more), so nothing can be listed after it")
        })?),
        None => None,
    };
    let now = journal.now().await?;
    let mut sheet = Sheet::new(args.privacy, now);
    let mut left = args.limit;
    while left > 0 {
        // One more than wanted, to know whether there is more.
        let want = left.min(PAGE_MAX - 1);
        let mut records = page(&journal, &filter, want + 1, last.as_ref()).await?;
        let has_more = records.len() as u64 > want;
        records.truncate(usize::try_from(want)?);
        for record in &records {
            match args.json {
                true => say(&terminal::json(&Json::new(record, args.privacy))?)?,
                false => sheet.add(record),
            }
        }
        left -= records.len() as u64;
        last = records.pop().or(last);
        if !has_more {
            left = 0;
        } else if left == 0
            && let Some(last) = &last
        {
            sheet.more = Some(last.guid.clone());
        }
    }
    if !args.json {
        sheet.show()?;
    }
    if let Some(guid) = &sheet.more {
        terminal::tell(&format!("there are more: --after {}", plain(guid.as_str())));
    }
    Ok(Ended::Done)
}

async fn page(
    journal: &Journal,
    filter: &Filter,
    len: u64,
    after: Option<&Record>,
) -> anyhow::Result<Vec<Record>> {
    let len = u32::try_from(len)?;
    let page = after.map_or_else(|| Page::first(len), |record| Page::after(len, record));
    Ok(journal.list(filter.clone(), page).await?)
}

/// The table for people.
struct Sheet {
    table: Table,
    privacy: Privacy,
    now: SystemTime,
    paint: Paint,
    more: Option<Guid>,
}

const ERROR_MAX: usize = 60;
const PARAMS_MAX: usize = 80;

impl Sheet {
    fn new(privacy: Privacy, now: SystemTime) -> Self {
        let mut table = Table::new();
        let mut header = vec!["GUID", "METHOD", "STATUS", "TRIES", "AGE", "NEXT", "LAST ERROR"];
        if privacy.shows_params {
            header.extend(["PARAMS", "RESULT"]);
        }
        table.load_preset(presets::NOTHING).set_header(header);
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        if let Some(column) = table.column_mut(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        Self { table, privacy, now, paint: Paint::for_stdout(), more: None }
    }

    fn add(&mut self, record: &Record) {
        let age = self.now.duration_since(record.create_time).unwrap_or_default();
        let next = if record.status.has_ended() { "-".to_owned() } else { apart(record.next_time, self.now) };
        let error = self.privacy.error_of(record);
        let mut row = vec![
            plain(record.guid.as_str()),
            method(record),
            status(record.status, self.paint),
            record.attempts.to_string(),
            about(age),
            next,
            error.map_or_else(|| "-".to_owned(), |error| short(&error, ERROR_MAX)),
        ];
        if self.privacy.shows_params {
            row.push(short(&record.params, PARAMS_MAX));
            row.push(record.result.as_deref().map_or_else(|| "-".to_owned(), |text| short(text, PARAMS_MAX)));
        }
        self.table.add_row(row);
    }

    fn show(&self) -> anyhow::Result<()> {
        if self.table.row_count() == 0 {
            // A table without rows says nothing; the other stream does not disturb a pipe.
            terminal::tell("no records");
            return Ok(());
        }
        for line in self.table.lines() {
            say(line.trim_end())?;
        }
        Ok(())
    }
}

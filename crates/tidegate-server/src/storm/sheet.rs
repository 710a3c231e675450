//! The end of a storm, for people.

use super::books::Books;
use super::report::{PERCENTS, Report, ms};
use super::tally::{Tally, a_second};
use crate::terminal::{plain, short};
use comfy_table::{CellAlignment, Table, presets};

/// Later than this in one of a hundred, connections were missing.
const LATE_US: u64 = 50_000;

impl Report<'_> {
    /// Lines for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (heading, table) in [
            ("Load", self.load()),
            ("Answers", self.by_code()),
            ("Latency from the intended moment, ms", self.by_kind()),
            ("Books, units", self.books()),
        ] {
            lines.extend([heading.to_owned()]);
            lines.extend(table.lines().map(|line| format!("  {}", line.trim_end())));
            lines.push(String::new());
        }
        lines.extend(self.hints());
        lines
    }

    fn load(&self) -> Table {
        let (tally, seconds) = (&self.outcome.tally, self.outcome.took.as_secs_f64().max(0.001));
        let (most, median) = a_second(&tally.admitted_at_us);
        let mut table = sheet(&["", "COUNT", ""], &[1]);
        let mut row = |name: &str, count: u64, more: String| {
            let more = if count > 0 { more } else { String::new() };
            table.add_row([name.to_owned(), grouped(count), more]);
        };
        let span = self.plan.span.as_secs_f64();
        row("arrivals", tally.arrived, format!("{} users within {span} s", grouped(self.plan.users.into())));
        let rate = (tally.sent as f64 / seconds) as u64;
        row(
            "requests",
            tally.sent,
            format!("{} a second, {} of them retries", grouped(rate), grouped(tally.retries)),
        );
        row("answers", self.answers(), String::new());
        row("transport errors", self.faults(), faults(tally));
        row("unsent", tally.unsent, "no connection was free until the end".to_owned());
        row(
            "gave up",
            tally.tries_spent + tally.too_late,
            format!(
                "{} after all retries, {} told to come back after the end",
                grouped(tally.tries_spent),
                grouped(tally.too_late)
            ),
        );
        row(
            "admitted paths",
            tally.admitted_at_us.len() as u64,
            format!(
                "at most {} in any second, median {} a second; {}",
                grouped(most as u64),
                grouped(median as u64),
                match self.rate {
                    Some(rate) => format!("judged by {rate}"),
                    None => "the rate is not known".to_owned(),
                }
            ),
        );
        row(
            "orders",
            tally.given.len(),
            format!("{} repeated, {} in doubt", grouped(tally.given.repeated), grouped(tally.in_doubt)),
        );
        row("units sold", self.units_sold(), String::new());
        let states: Vec<_> =
            self.checked.by_state.iter().map(|(state, count)| format!("{count} {state}")).collect();
        if !states.is_empty() {
            row("orders checked", self.checked.by_state.values().sum(), states.join(", "));
        }
        row("connections", self.connections as u64, format!("{} made anew", grouped(tally.reconnects)));
        let share = 100.0 * self.cpu.as_secs_f64() / seconds;
        row("storm's own cpu, ms", ms(self.cpu), format!("{share:.0} % of one core for {seconds:.1} s"));
        table
    }

    fn by_code(&self) -> Table {
        let tally = &self.outcome.tally;
        let mut table = sheet(&["HTTP", "CODE", "", "COUNT"], &[0, 1, 3]);
        for ((status, code), count) in &tally.answers {
            table.add_row([status.to_string(), code.to_string(), name(*code).to_owned(), grouped(*count)]);
        }
        if tally.other_answers > 0 {
            table.add_row(["-", "-", "others", &grouped(tally.other_answers)]);
        }
        if tally.odd > 0 {
            table.add_row(["200", "-", "of these without path or number", &grouped(tally.odd)]);
        }
        table
    }

    fn by_kind(&self) -> Table {
        let mut table = sheet(&["", "COUNT", "P50", "P90", "P99", "P99.9", "MAX"], &[1, 2, 3, 4, 5, 6]);
        for (name, all) in self.latencies() {
            let mut row = vec![name.to_owned(), grouped(all.count())];
            let figures = PERCENTS.map(|(_, percent)| all.percent(percent));
            row.extend(figures.into_iter().chain([all.max()]).map(|us| match all.count() {
                0 => "-".to_owned(),
                _ => format!("{:.1}", us as f64 / 1000.0),
            }));
            table.add_row(row);
        }
        table
    }

    fn books(&self) -> Table {
        let mut table = sheet(
            &["", "TOTAL", "PLACED", "IN FLIGHT", "LEFT", "RETURNED", "DEAD", "STATE"],
            &[1, 2, 3, 4, 5, 6],
        );
        for (name, books) in [("before", Some(self.before)), ("after", self.after)] {
            let Some(books) = books else { continue };
            let Books { total, placed, in_flight, left, returned, dead, .. } = *books;
            let mut row = vec![name.to_owned()];
            row.extend([total, placed, in_flight, left, returned, dead].map(|units| units.to_string()));
            row.push(short(&books.state, 30));
            table.add_row(row);
        }
        table
    }

    fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        let tally = &self.outcome.tally;
        if self.outcome.was_interrupted {
            hints.push("interrupted: the figures are of what happened until then".to_owned());
        }
        if tally.answers.keys().any(|(status, _)| *status == 401) {
            hints.push(
                "Users were not signed in: the secret is not this sale's (--secret, --data).".to_owned(),
            );
        }
        if tally.late.percent(99.0) > LATE_US {
            hints.push(format!(
                "Users waited for one of the {} connections: the sale held them all, as it does while \
                 requests wait for admission, or the machine has no more to give. The latencies count \
                 that. With more --connections, or fewer waiters in the sale, refusals come sooner.",
                self.connections
            ));
        }
        let others = self.after.map_or(0, |after| after.taken_since(self.before));
        let known = i128::from(self.units_sold()) + i128::from(tally.in_doubt) * i128::from(self.units_each);
        if others > known {
            hints.push(format!(
                "The books took {others} units meanwhile, {} more than the storm: others bought, too.",
                others - known
            ));
        }
        if self.differences.is_empty() {
            hints.push("balanced: every number was given once, and the books know every unit".to_owned());
        } else {
            hints.push("NOT balanced:".to_owned());
            hints.extend(self.differences.iter().map(|difference| format!("  {}", plain(difference))));
        }
        hints
    }
}

fn faults(tally: &Tally) -> String {
    let faults = tally.faults.iter();
    faults
        .map(|(fault, count)| format!("{} {}", grouped(*count), fault.name()))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The sale's codes in words.
fn name(code: u32) -> &'static str {
    match code {
        200 => "ok",
        40001 => "bad_request",
        40101 => "not_signed_in",
        40301 => "not_admin",
        40401 => "unknown_goods",
        40402 => "wrong_path",
        40403 => "unknown_order",
        40901 => "user_quota",
        40902 => "wrong_state",
        41001 => "sold_out",
        41002 => "closed",
        42501 => "not_open_yet",
        42901 => "limited",
        50301 => "paused",
        50302 => "busy",
        _ => "",
    }
}

fn sheet(header: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    dress(&mut table, right);
    table
}

fn dress(table: &mut Table, right: &[usize]) {
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// With a comma between thousands.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut all = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            all.push(',');
        }
        all.push(digit);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn thousands_are_apart() {
        let all = [0, 999, 1_000, 16_700, 1_000_000].map(grouped);
        assert_eq!(all, ["0", "999", "1,000", "16,700", "1,000,000"]);
    }
}

//! The end of a storm, for people and for programs.

use super::books::Books;
use super::crowd::{Outcome, Plan};
use super::inspect::Checked;
use super::tally::{Latencies, a_second};
use crate::terminal::{plain, short};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use std::time::Duration;

/// All that is told.
pub(super) struct Report<'a> {
    pub(super) target: String,
    pub(super) goods: &'a str,
    pub(super) plan: &'a Plan,
    pub(super) connections: usize,
    pub(super) units_each: u32,
    pub(super) outcome: &'a Outcome,
    /// Of this process, during the storm.
    pub(super) cpu: Duration,
    pub(super) before: &'a Books,
    pub(super) after: Option<&'a Books>,
    pub(super) checked: &'a Checked,
    pub(super) differences: &'a [String],
}

/// Later than this in one of a hundred, connections were missing.
const LATE_US: u64 = 50_000;

impl Report<'_> {
    fn latencies(&self) -> [(&'static str, &Latencies); 5] {
        let tally = &self.outcome.tally;
        [
            ("refusals", &tally.refusals),
            ("admitted paths", &tally.admissions),
            ("orders", &tally.orders),
            ("unanswered", &tally.unanswered),
            ("sent late by", &tally.late),
        ]
    }

    fn units_sold(&self) -> u64 {
        self.outcome.tally.given.len() * u64::from(self.units_each)
    }

    fn answers(&self) -> u64 {
        self.outcome.tally.answers.values().sum::<u64>() + self.outcome.tally.other_answers
    }

    fn faults(&self) -> u64 {
        self.outcome.tally.faults.values().sum()
    }

    pub(super) fn json(&self) -> Value {
        let tally = &self.outcome.tally;
        let (most, median) = a_second(&tally.admitted_at_us);
        let answers = tally.answers.iter();
        let faults = tally.faults.iter().map(|(fault, count)| (fault.name().to_owned(), json!(count)));
        let latencies = self.latencies().map(|(name, all)| (name.replace(' ', "_"), figures(all)));
        json!({
            "target": self.target,
            "goods": self.goods,
            "plan": {
                "users": self.plan.users,
                "span_ms": ms(self.plan.span),
                "grace_ms": ms(self.plan.grace),
                "think_ms": ms(self.plan.think),
                "retries": self.plan.retries,
                "repeat_percent": self.plan.repeats,
                "connections": self.connections,
                "units_each": self.units_each,
                "seed": self.plan.seed,
            },
            "interrupted": self.outcome.was_interrupted,
            "took_ms": ms(self.outcome.took),
            "cpu_ms": ms(self.cpu),
            "arrivals": tally.arrived,
            "requests": tally.sent,
            "retries": tally.retries,
            "unsent": tally.unsent,
            "tries_spent": tally.tries_spent,
            "too_late": tally.too_late,
            "answers": answers.map(|((status, code), count)| json!({ "http": status, "code": code, "count": count })).collect::<Vec<_>>(),
            "other_answers": tally.other_answers,
            "odd_answers": tally.odd,
            "transport_errors": Value::Object(faults.collect()),
            "reconnects": tally.reconnects,
            "admissions": { "count": tally.admitted_at_us.len(), "most_in_a_second": most, "median_a_second": median },
            "orders": {
                "given": tally.given.len(),
                "units": self.units_sold(),
                "given_twice": tally.given.twice,
                "repeated": tally.given.repeated,
                "changed_on_repeat": tally.given.changed,
                "in_doubt": tally.in_doubt,
                "checked": self.checked.by_state,
            },
            "latency_us": Value::Object(latencies.into_iter().collect()),
            "books": { "before": self.before, "after": self.after },
            "balanced": self.differences.is_empty(),
            "differences": self.differences,
        })
    }

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
                "at most {} in any second, median {} a second",
                grouped(most as u64),
                grouped(median as u64)
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

const PERCENTS: [(&str, f64); 4] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99_9", 99.9)];

fn figures(all: &Latencies) -> Value {
    let mut figures: serde_json::Map<_, _> =
        PERCENTS.iter().map(|(name, percent)| ((*name).to_owned(), json!(all.percent(*percent)))).collect();
    figures.insert("max".to_owned(), json!(all.max()));
    figures.insert("count".to_owned(), json!(all.count()));
    Value::Object(figures)
}

fn faults(tally: &super::tally::Tally) -> String {
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

fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
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

//! The end of a storm: what is known about it, and as JSON. Tables are in `sheet`.

use super::books::Books;
use super::crowd::{Outcome, Plan};
use super::inspect::Checked;
use super::tally::{Latencies, a_second};
use serde_json::{Value, json};
use std::time::Duration;
use tidegate::Limit;

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
    /// What the sale lets in, if it says so and it was not changed.
    pub(super) rate: Option<&'a Limit>,
    pub(super) before: &'a Books,
    pub(super) after: Option<&'a Books>,
    pub(super) checked: &'a Checked,
    pub(super) differences: &'a [String],
}

impl Report<'_> {
    pub(super) fn latencies(&self) -> [(&'static str, &Latencies); 5] {
        let tally = &self.outcome.tally;
        [
            ("refusals", &tally.refusals),
            ("admitted paths", &tally.admissions),
            ("orders", &tally.orders),
            ("unanswered", &tally.unanswered),
            ("sent late by", &tally.late),
        ]
    }

    pub(super) fn units_sold(&self) -> u64 {
        self.outcome.tally.given.len() * u64::from(self.units_each)
    }

    pub(super) fn answers(&self) -> u64 {
        self.outcome.tally.answers.values().sum::<u64>() + self.outcome.tally.other_answers
    }

    pub(super) fn faults(&self) -> u64 {
        self.outcome.tally.faults.values().sum()
    }

    pub(super) fn json(&self) -> Value {
        let tally = &self.outcome.tally;
        let (most, median) = a_second(&tally.admitted_at_us);
        let answers = tally
            .answers
            .iter()
            .map(|((status, code), count)| json!({ "http": status, "code": code, "count": count }));
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
            "answers": answers.collect::<Vec<_>>(),
            "other_answers": tally.other_answers,
            "odd_answers": tally.odd,
            "transport_errors": Value::Object(faults.collect()),
            "reconnects": tally.reconnects,
            "admissions": {
                "count": tally.admitted_at_us.len(),
                "most_in_a_second": most,
                "median_a_second": median,
                "rate": self.rate.map(ToString::to_string),
            },
            "orders": {
                "given": tally.given.len(),
                "units": self.units_sold(),
                "given_twice": tally.given.twice,
                "repeated": tally.given.repeated,
                "changed_on_repeat": tally.given.changed,
                "refused_on_repeat": tally.given.refused,
                "in_doubt": tally.in_doubt,
                "checked": self.checked.by_state,
            },
            "latency_us": Value::Object(latencies.into_iter().collect()),
            "books": { "before": self.before, "after": self.after },
            "balanced": self.differences.is_empty(),
            "differences": self.differences,
        })
    }
}

/// The percentiles that are told.
pub(super) const PERCENTS: [(&str, f64); 4] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99_9", 99.9)];

fn figures(all: &Latencies) -> Value {
    let mut figures: serde_json::Map<_, _> =
        PERCENTS.iter().map(|(name, percent)| ((*name).to_owned(), json!(all.percent(*percent)))).collect();
    figures.insert("max".to_owned(), json!(all.max()));
    figures.insert("count".to_owned(), json!(all.count()));
    Value::Object(figures)
}

pub(super) fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

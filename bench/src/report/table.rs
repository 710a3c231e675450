//! The results for a person's eyes: one block a case with every contender's median and spread, then
//! one line a case.

use super::{Case, Report};
use std::fmt::Write;

impl Report {
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail, so the results of `writeln!` are dropped throughout.
        let _ = writeln!(text, "suite {} on {}", self.suite, self.machine);
        for case in &self.cases {
            block(&mut text, case);
        }
        let _ = writeln!(text, "\n{:<22}{:>7}   {:<18}against", "case", "ratio", "spread");
        for case in &self.cases {
            let spread = format!("{:.2} to {:.2}", case.low, case.high);
            let _ = writeln!(text, "{:<22}{:>7.2}   {spread:<18}{}", case.name, case.ratio, case.base);
        }
        text
    }
}

fn block(text: &mut String, case: &Case) {
    let _ = writeln!(
        text,
        "\n{}: {:.2} times ({:.2} to {:.2}) against {}",
        case.name, case.ratio, case.low, case.high, case.base
    );
    let widest = case.rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(15) + 1;
    for row in &case.rows {
        let _ = writeln!(
            text,
            "  {:<widest$}{:>9} {}   {} to {}",
            row.name,
            figure(row.median),
            case.unit,
            figure(row.low),
            figure(row.high)
        );
    }
    for note in &case.notes {
        let _ = writeln!(text, "  - {note}");
    }
}

/// As many decimals as the figure's size makes meaningful.
pub fn figure(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

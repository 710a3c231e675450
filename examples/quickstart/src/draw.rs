//! The replays in the terminal: a column for each tenth of a second.

use crate::replay::Replay;
use std::fmt::Write;

const SLICE_MS: u64 = 100;
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Calls in a slice that fill a column.
const FULL: u64 = 8;

pub(crate) fn text(replays: &[Replay]) -> String {
    let mut out = String::new();
    let Some(first) = replays.first() else { return out };
    let _ = writeln!(out, "\nThe same {} calls in five seconds, through ten limits:\n", first.asked_ms.len());
    let _ = writeln!(out, "  asked    │{}│", bars(&first.asked_ms));
    let _ = writeln!(out, "            0s        1s        2s        3s        4s\n");
    for replay in replays {
        let (busiest, bound) = replay.busiest_second();
        let bound = bound.map_or_else(String::new, |bound| format!(" (promised: at most {bound})"));
        let _ = writeln!(out, "{}\n  {}", replay.limit, replay.meaning);
        let _ = writeln!(out, "  started  │{}│", bars(&replay.started_ms));
        let _ = writeln!(
            out,
            "  {} started, {} of them after a wait, {} denied; busiest second {busiest}{bound}\n",
            replay.started_ms.len(),
            replay.waited,
            replay.denied,
        );
    }
    out.push_str("Try another: Limiter::new().gate(\"mine\", \"5 per 10s sliding-log\") and gate.check(\"user:42\").\n");
    out
}

fn bars(times_ms: &[u64]) -> String {
    let top = LEVELS.len() as u64 - 1;
    let level = |count: u64| (count * top).div_ceil(FULL).min(top) as usize;
    Replay::by_slice(times_ms, SLICE_MS).into_iter().map(|count| LEVELS[level(count)]).collect()
}

//! The replays as a picture: for each limit what was asked, and what started when.

use crate::replay::Replay;
use crate::traffic::LENGTH_MS;
use std::fmt::Write;

const SLICE_MS: u64 = 50;
const LEFT: u64 = 300;
const WIDTH: u64 = 560;
const ROW: u64 = 62;
const BAR_MAX: u64 = 40;
/// Calls in a slice that fill a row.
const FULL: u64 = 8;
const TOP: u64 = 56;
const LEGEND: u64 = LEFT + WIDTH - 150;

pub(crate) fn picture(replays: &[Replay]) -> String {
    let height = TOP + ROW * replays.len() as u64 + 30;
    let mut out = String::new();
    let total = LEFT + WIDTH + 20;
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {total} {height}\" font-family=\"system-ui, sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"600\" fill=\"#0f172a\">The same traffic through ten limits</text>\n\
         <rect x=\"{}\" y=\"14\" width=\"12\" height=\"12\" fill=\"#cbd5e1\"/>\
         <text x=\"{}\" y=\"25\" font-size=\"12\" fill=\"#475569\">asked</text>\n\
         <rect x=\"{}\" y=\"14\" width=\"12\" height=\"12\" fill=\"#0369a1\"/>\
         <text x=\"{}\" y=\"25\" font-size=\"12\" fill=\"#475569\">started</text>",
        LEGEND,
        LEGEND + 18,
        LEGEND + 80,
        LEGEND + 98,
    );
    for (index, replay) in replays.iter().enumerate() {
        row(&mut out, TOP + ROW * index as u64, replay);
    }
    for second in 0..=LENGTH_MS / 1_000 {
        let x = LEFT + second * 1_000 * WIDTH / LENGTH_MS;
        let _ = writeln!(
            out,
            "<line x1=\"{x}\" y1=\"{TOP}\" x2=\"{x}\" y2=\"{}\" stroke=\"#94a3b8\" stroke-width=\"0.5\" stroke-dasharray=\"2 4\"/>\n\
             <text x=\"{x}\" y=\"{}\" font-size=\"11\" fill=\"#64748b\" text-anchor=\"middle\">{second} s</text>",
            height - 24,
            height - 10,
        );
    }
    out.push_str("</svg>\n");
    out
}

fn row(out: &mut String, y: u64, replay: &Replay) {
    let base = y + BAR_MAX + 4;
    let _ = writeln!(
        out,
        "<text x=\"16\" y=\"{}\" font-size=\"13\" font-family=\"ui-monospace, monospace\" fill=\"#0f172a\">{}</text>\n\
         <text x=\"16\" y=\"{}\" font-size=\"11\" fill=\"#475569\">{} started, {} after a wait, {} denied</text>",
        y + 22,
        replay.limit,
        y + 38,
        replay.started_ms.len(),
        replay.waited,
        replay.denied,
    );
    bars(out, base, "#cbd5e1", &replay.asked_ms);
    bars(out, base, "#0369a1", &replay.started_ms);
    let _ = writeln!(
        out,
        "<line x1=\"{LEFT}\" y1=\"{base}\" x2=\"{}\" y2=\"{base}\" stroke=\"#94a3b8\" stroke-width=\"0.7\"/>",
        LEFT + WIDTH
    );
}

fn bars(out: &mut String, base: u64, colour: &str, times_ms: &[u64]) {
    let counts = Replay::by_slice(times_ms, SLICE_MS);
    let wide = WIDTH as f64 / counts.len() as f64;
    for (index, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
        let tall = (count.min(FULL) * BAR_MAX) as f64 / FULL as f64;
        let x = LEFT as f64 + index as f64 * wide;
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\" fill=\"{colour}\"/>",
            base as f64 - tall,
            wide - 0.8,
        );
    }
}

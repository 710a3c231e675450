//! Shows every algorithm at work on the same traffic, in simulated time.
//!
//! `cargo run --release -p quickstart` draws in the terminal;
//! `cargo run --release -p quickstart -- --svg FILE` writes the picture of the README.

mod draw;
mod replay;
mod svg;
mod traffic;

use replay::{Replay, replay};
use std::process::ExitCode;

/// What is shown: a sentence for each limit.
const LIMITS: [(&str, &str); 10] = [
    ("20/s burst 10", "token bucket: a burst of 10, then the rate"),
    ("20/s burst 10 wait 500ms", "the same, and callers may be told to wait half a second"),
    ("20/s warmup 1s wait 500ms", "warm-up: a cold service starts at a third of the rate"),
    ("10 every 500ms cap 20", "ticked refill: 10 tokens every half second, 20 saved up at most"),
    ("leaky 20/s capacity 10", "leaky bucket as a meter: a full bucket refuses"),
    ("leaky 20/s queue 20", "leaky bucket as a queue: constant outflow, 20 may wait"),
    ("20 per 1s fixed-window", "fixed window: starts anew at each full second"),
    ("20 per 1s sliding-window", "sliding window: at most 20 in any second, counted in slices"),
    ("20 per 1s sliding-log", "sliding log: at most 20 in any second, exactly"),
    ("6 concurrent queue 10 wait 400ms", "concurrency: 6 at once (each call takes 300 ms), 10 more wait"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let written = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => all().map(|replays| print!("{}", draw::text(&replays))),
        ["--svg", file] => all().and_then(|replays| Ok(std::fs::write(file, svg::picture(&replays))?)),
        _ => {
            eprintln!("usage: quickstart              draws every algorithm on the same traffic");
            eprintln!("       quickstart --svg FILE   writes the same as a picture");
            return ExitCode::from(2);
        }
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quickstart: {error}");
            ExitCode::FAILURE
        }
    }
}

fn all() -> Result<Vec<Replay>, Box<dyn std::error::Error>> {
    let asked = traffic::arrivals_ms();
    LIMITS.iter().map(|(limit, meaning)| Ok(replay(limit, meaning, &asked)?)).collect()
}

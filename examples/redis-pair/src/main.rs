//! Two processes share one limit over Redis, and keep to it when Redis goes away.
//!
//! `cargo run -p redis-pair -- redis://127.0.0.1:6379` on a Redis that you have;
//! `cargo run -p redis-pair -- --demo` on one of its own, which it stops in the middle.
//!
//! The program starts itself once more as the second half. Both do the same; the second one
//! is told what to do on its standard input, and answers on its standard output.

mod half;
mod other;
mod server;

use half::{Count, Half, ORDERS, SEARCHES, Work};
use other::Other;
use server::Server;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use tidegate::{Clock, Limit, MonotonicClock};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ran = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--demo"] => demonstrate(),
        ["--half", url, name] => Half::new(url, name).and_then(|half| other::obey(&half)),
        [url] if !url.starts_with('-') => Pair::start(url).and_then(|mut pair| pair.share()),
        _ => {
            eprintln!("usage: redis-pair URL      two processes share a limit on this Redis");
            eprintln!("       redis-pair --demo   on one of its own, which it stops in the middle");
            return ExitCode::from(2);
        }
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redis-pair: {error}");
            ExitCode::FAILURE
        }
    }
}

fn demonstrate() -> Result<(), Box<dyn Error>> {
    let server = Server::start()?;
    println!("A private Redis runs at {}.", server.url());
    let mut pair = Pair::start(server.url())?;
    pair.share()?;

    println!("\nSearches for half a second, `{SEARCHES}` for both together:");
    let clock = MonotonicClock::new();
    let begun = clock.now();
    let before = pair.both(Work::Searches)?;
    drop(server);
    println!("\nRedis is stopped. The same again: each goes on with its half of the rate, from empty:");
    let after = pair.both(Work::Searches)?;
    if after.allowed == 0 || after.allowed != after.without_redis {
        return Err("expected some to be allowed still, and all of those without Redis".into());
    }
    let (sum, took) = (before.allowed + after.allowed, clock.now().since(begun));
    // Each goes on from the last answer that it had; the other may have had one after that.
    let moment = Duration::from_millis(100);
    let bound = SEARCHES.parse::<Limit>()?.worst_case(took + moment, 1);
    println!(
        "In {} ms, and {} for the change, both were allowed {sum}; at most {bound} are promised.",
        took.as_millis(),
        moment.as_millis()
    );
    if sum <= bound { Ok(()) } else { Err("that is too many".into()) }
}

/// This process and the other one.
struct Pair {
    one: Half,
    other: Other,
}

impl Pair {
    fn start(url: &str) -> Result<Self, Box<dyn Error>> {
        // What this run counts is no other run's.
        let name = format!("pair-{}", std::process::id());
        let other = Other::start(url, &name)?;
        let mut pair = Self { one: Half::new(url, &name)?, other };
        pair.both(Work::Meet)?;
        println!("Two processes, {} and {}, know of each other.", std::process::id(), pair.other.id());
        Ok(pair)
    }

    /// Both spend one limit, at the same time.
    fn share(&mut self) -> Result<(), Box<dyn Error>> {
        println!("\nBoth take orders, `{ORDERS}` for both together:");
        let sum = self.both(Work::Orders)?;
        if sum.allowed == half::ORDERS_MAX {
            println!("Together they were allowed {}: the limit, exactly.", sum.allowed);
            Ok(())
        } else {
            Err(format!("expected {} orders in all, not {}", half::ORDERS_MAX, sum.allowed).into())
        }
    }

    fn both(&mut self, work: Work) -> Result<Count, Box<dyn Error>> {
        self.other.begin(work)?;
        let one = self.one.work(work)?;
        let other = self.other.end()?;
        if work != Work::Meet {
            println!("  this process:  {one}\n  the other one: {other}");
        }
        Ok(one + other)
    }
}

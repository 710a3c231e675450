//! The suite `sale`: orders, ours beside what the seeds sketch.
//!
//! - `real`: end to end on Redis, RabbitMQ and PostgreSQL, against `seeds`, the same way one
//!   order at a time;
//! - `expire`: unpaid orders that end, on the same servers, against a transaction an order;
//! - `embedded`: durable orders on one SQLite file, against a transaction an order;
//! - `reserve`: the step in Redis alone, against `three`, its three separate commands;
//! - `buyers`, `kept`: what all of them share: concurrent buyers with paths in hand, and what
//!   became of their orders. HTTP has no part in any figure.

mod buyers;
mod embedded;
mod expire;
mod kept;
mod real;
mod reserve;
mod seeds;
mod three;

use crate::report::Case;
use crate::{Fallible, Wanted};

pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    // One runtime for the whole suite, on every processor, for us and for the bases.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let cases = [
        real::run(wanted, &runtime)?,
        expire::run(wanted, &runtime)?,
        embedded::run(wanted, &runtime)?,
        reserve::run(wanted, &runtime)?,
    ];
    Ok(cases.into_iter().flatten().collect())
}

/// Orders a second.
fn rate(orders: usize, begun: std::time::Instant) -> f64 {
    orders as f64 / begun.elapsed().as_secs_f64()
}

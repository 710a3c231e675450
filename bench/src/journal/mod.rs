//! The suite `journal`: calls kept and replayed, ours beside what a table and a loop do.
//!
//! - `enqueue`: 256 callers, each acknowledged after its own commit, on SQLite and PostgreSQL;
//! - `claim`: claimed, run by an empty handler, completed; and whether that stays as fast when
//!   millions are pending;
//! - `postgres`: the private server and the tables.

mod claim;
mod enqueue;
mod postgres;

use crate::report::Case;
use crate::{Fallible, Wanted};

pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    // The journal lives in a runtime; one for the whole suite, on every processor.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut cases = Vec::new();
    cases.extend(enqueue::sqlite(wanted, &runtime)?);
    if wanted.any(&[enqueue::PG, claim::NAME, claim::FLAT]) {
        let server = postgres::Server::start();
        cases.extend(enqueue::postgres(wanted, &runtime, &server)?);
        cases.extend(claim::run(wanted, &runtime, &server)?);
    }
    Ok(cases)
}

/// Records a second.
fn rate(records: u64, begun: std::time::Instant) -> f64 {
    records as f64 / begun.elapsed().as_secs_f64()
}

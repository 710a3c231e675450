//! The suite `inproc`: the library in one process beside other Rust libraries.
//!
//! - `keys` and `timing`: what is requested, and how it is timed;
//! - `contenders`: us and the peers;
//! - `hot`: one hot key; `many_keys`: a million keys and ten million; `limits`: several limits at
//!   once, permits, windows, logs, warm-up and slots; `waiters`: tasks that wait; `bytes`: memory.

pub mod bytes;
mod contenders;
mod hot;
pub mod keys;
mod limits;
mod many_keys;
mod timing;
mod waiters;

use crate::report::Case;
use crate::{Fallible, Wanted};

/// Runs what is wanted; cases that share their tables run together, so that these are built once.
pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    let mut cases = hot::by_handle(wanted)?;
    cases.extend(hot::by_text(wanted)?);
    cases.extend(limits::run(wanted)?);
    cases.extend(waiters::run(wanted)?);
    cases.extend(many_keys::run(&many_keys::MILLION, wanted)?);
    cases.extend(many_keys::run(&many_keys::TEN_MILLION, wanted)?);
    cases.extend(bytes::run(wanted)?);
    Ok(cases)
}

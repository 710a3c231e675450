//! The suite `inproc`: the library in one process beside other Rust libraries.
//!
//! - `keys` and `timing`: what is asked for, and how it is timed;
//! - `contenders`: us and the peers;
//! - `cases`: one hot key; `crowd`: a million keys and ten; `bytes`: memory.

pub mod bytes;
mod cases;
mod contenders;
mod crowd;
pub mod keys;
mod timing;

use crate::report::Case;
use crate::{Fallible, Wanted};

/// Runs what is wanted; cases that share their tables run together, so that these are built once.
pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    let mut cases = cases::hot(wanted)?;
    cases.extend(cases::hot_keyed(wanted)?);
    cases.extend(crowd::run(&crowd::MILLION, wanted)?);
    cases.extend(crowd::run(&crowd::TEN_MILLION, wanted)?);
    cases.extend(bytes::run(wanted)?);
    Ok(cases)
}

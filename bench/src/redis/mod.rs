//! The suite `redis`: several processes on one Redis, ours beside what people do there today.
//!
//! - `server`: a private Redis; `client` and `clients`: the processes that load it; `trial`: one
//!   contender's run on a fresh server;
//! - `contenders`: us and the peers; `allowance`: the limits, and what they let through at most;
//! - `hot`: one key; `random`: 100,000 keys; `bytes`: memory; `commands`: what denials cost Redis.

mod allowance;
mod bytes;
pub mod client;
mod clients;
mod commands;
mod contenders;
mod hot;
mod random;
mod server;
mod trial;

use crate::report::Case;
use crate::{Fallible, Wanted};

pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    let mut cases = hot::run(wanted)?;
    cases.extend(random::run(wanted)?);
    cases.extend(bytes::run(wanted)?);
    cases.extend(commands::run(wanted)?);
    Ok(cases)
}

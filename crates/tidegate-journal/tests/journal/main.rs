//! The journal through its public API, on real SQLite files and a real PostgreSQL: the same
//! behaviour on both, what crashes leave behind, and what full disks, locks and clocks do.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

#[macro_use]
mod place;

mod blocking;
mod bounds;
mod clocks;
mod crashes;
#[cfg(feature = "tls")]
mod encryption;
mod ends;
mod faults;
mod files;
mod foreign;
mod gates;
mod guide;
mod limited;
mod migration;
mod old_programs;
mod records;
mod retention;
#[cfg(feature = "axum")]
mod routes;
mod sharing;
mod shop;
mod stopping;
mod suspects;
mod takeover;
mod tidying;
mod working;

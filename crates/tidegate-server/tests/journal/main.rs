//! The program itself, as an operator or cron runs it, on real SQLite files and a real
//! PostgreSQL.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

#[macro_use]
mod place;

mod changing;
mod exec;
mod init;
mod looking;
mod places;
mod private;
mod run_once;
mod signals;
mod stats;

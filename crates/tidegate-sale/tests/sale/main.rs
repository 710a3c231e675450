//! The sale over real sockets, on the embedded engine: what buyers and operators meet.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod client;
mod place;

mod admin;
mod admission;
mod buyer;
mod codes;
mod guesses;
mod hostile;
mod limits;
mod serving;
mod sold_out;
mod watching;
mod wire;

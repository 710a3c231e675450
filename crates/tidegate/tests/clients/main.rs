//! Real clients on real sockets of 127.0.0.1: what they see, and when they come back.
//!
//! Clients that wait for a told time take real time. Everything else runs on a clock that
//! stands still.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod attribute;
mod balancers;
mod browser;
mod cache;
mod curl;
mod leaving;
mod retry;
mod slow;
mod support;
mod tls;

//! What a guard promises, through its public API.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod ambiguous;
mod axum;
mod bodies;
mod caching;
mod cors;
mod grpc;
mod hostile;
mod json;
mod keys;
mod lists;
#[path = "../support/logged.rs"]
mod logged;
mod never;
mod observe;
mod paths;
mod replace;
mod responses;
mod rules;
mod secrecy;
mod slots;
#[cfg(feature = "redis")]
mod store;
mod support;
mod waiting;

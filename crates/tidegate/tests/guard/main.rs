//! What a guard promises, through its public API.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod answers;
mod axum;
mod bodies;
mod grpc;
mod hostile;
mod json;
mod keys;
mod lists;
mod observe;
mod places;
mod replace;
mod rules;
#[cfg(feature = "redis")]
mod store;
mod support;
mod unclear;
mod waiting;

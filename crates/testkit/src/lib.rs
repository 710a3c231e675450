//! Reference model, conformance suite and checkers for Tidegate's tests.
//!
//! The [`model`] says what every decision must be, written for obviousness. The
//! [`suite`] replays random traces on the model and on a [`Subject`], which is
//! whatever claims to do the same: the memory store, another store, or a broken
//! variant that the suite has to catch. [`windows`] and [`linear`] check promises
//! that no single decision shows: the most in any window, and one order for all; [`hot`]
//! what limits that differ promise together.
//! [`wire`] is a third store, remote, slow and lossy on command; [`servers`] starts real ones, to be killed, frozen and cut off.
//!
//! Nothing here is fast, and nothing here is published.

pub mod giving_back;
pub mod hot;
pub mod library;
pub mod limits;
pub mod linear;
pub mod model;
pub mod own_limits;
pub mod rng;
mod seen;
pub mod servers;
pub mod step;
mod subject;
pub mod suite;
pub mod together;
pub mod trace;
pub mod windows;
pub mod wire;

pub use model::Model;
pub use seen::{Denied, Mode, Seen};
pub use subject::Subject;

//! The one script: what it is sent, what it does, and what follows from what it found.
//!
//! `decide.lua` moves the state; what a caller hears is computed here, by replaying the same
//! requests on the state that the script found, with the same functions as in memory.

pub(crate) mod answer;
pub(crate) mod encode;
pub(crate) mod key_name;
mod message_pack;
pub(crate) mod numbers;
pub(crate) mod replay;

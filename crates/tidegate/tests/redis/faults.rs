//! What happens when Redis does not do what it should, on real servers.
//!
//! Callers ask all the while ([`drive`]); what they were told is held against the deadline
//! and against the published bound of what the gate does meanwhile ([`check`]), and the
//! store has to be exact again within [`check::RECOVERY`] once its server is.

mod check;
mod clocks;
mod cluster;
mod drive;
mod fail_over;
mod holds;
mod login;
mod memory;
mod new_keys;
mod outage;
mod replies;
mod sentinels;
mod start;
mod trio;

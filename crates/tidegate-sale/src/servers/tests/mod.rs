//! Tests with real servers. Those that hurt a server have their own.

mod faults;
mod flow;
mod network;
mod odd;
mod rig;
mod rollback;
mod suite;
mod windows;

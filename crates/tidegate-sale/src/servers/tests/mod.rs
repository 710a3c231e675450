//! Tests with real servers. Those that hurt a server have their own.

mod flow;
mod rig;
mod suite;

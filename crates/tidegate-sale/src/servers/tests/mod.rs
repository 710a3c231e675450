//! Tests with real servers. Those that hurt a server have their own.

mod expiry;
mod faults;
mod flow;
mod loss;
mod missing;
mod network;
mod odd;
mod operators;
mod queues;
mod restored;
mod rig;
mod rollback;
mod runs;
mod split;
mod suite;
mod windows;

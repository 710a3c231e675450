//! The program `tidegate`: one module a command, and what the commands share.
//!
//! Not a library for others: its interface is the command line, and that is what its tests
//! run. What it shows to people passes through `terminal`, because much of it was written by
//! strangers.

mod cli;
mod exit;
mod journal;
mod sale;
mod storm;
mod terminal;
mod warnings;

pub use cli::main;

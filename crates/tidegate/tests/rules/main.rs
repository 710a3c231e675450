//! Rules without a protocol, through a front end made for this: facts are words of a line, and a
//! ruling is a line of text.

mod at_once;
mod conditions;
mod doors;
mod explain;
mod line;
mod permits;
mod random;

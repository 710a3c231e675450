//! What the suite drives: anything that decides on keys under a limit, with a clock that
//! is told the time; or several nodes of it.

use crate::{Mode, Model, Seen};
use tidegate::Limit;

/// A limit over many keys. Every method is told the time, which may run backwards.
///
/// Each allowed `Mode::Reserve` makes a grant; grants are numbered from 0 in the
/// order in which they are made, over all keys, and live until they are ended by
/// `settle`, `cancel` or `release`.
pub trait Subject {
    /// Decides on one call.
    fn decide(&mut self, now_us: u64, key: &[u8], cost: u64, mode: Mode) -> Seen;
    /// Gives `units` of a grant back; the grant lives on with what is left of it.
    fn refund(&mut self, now_us: u64, grant: usize, units: u64);
    /// Ends a grant at its true cost.
    fn settle(&mut self, now_us: u64, grant: usize, cost: u64);
    /// Ends a grant that was not used.
    fn cancel(&mut self, now_us: u64, grant: usize);
    /// Ends a grant that was used: drops it.
    fn release(&mut self, now_us: u64, grant: usize);
    /// Forgets a key.
    fn reset(&mut self, now_us: u64, key: &[u8]);
    /// Another limit from now on; what the keys have used is carried over.
    fn change(&mut self, now_us: u64, limit: &Limit);
    /// Which of its nodes is asked from now on; each has a limit of its own over the same keys.
    fn turn_to(&mut self, node: usize);
    /// The node that is asked ends, and another one takes its place under this limit.
    fn restart(&mut self, now_us: u64, limit: &Limit);
}

impl Subject for Model {
    fn decide(&mut self, now_us: u64, key: &[u8], cost: u64, mode: Mode) -> Seen {
        Model::decide(self, now_us, key, cost, mode)
    }

    fn refund(&mut self, now_us: u64, grant: usize, units: u64) {
        Model::refund(self, now_us, grant, units);
    }

    fn settle(&mut self, now_us: u64, grant: usize, cost: u64) {
        Model::settle(self, now_us, grant, cost);
    }

    fn cancel(&mut self, now_us: u64, grant: usize) {
        Model::cancel(self, now_us, grant);
    }

    fn release(&mut self, now_us: u64, grant: usize) {
        Model::release(self, now_us, grant);
    }

    fn reset(&mut self, _now_us: u64, key: &[u8]) {
        Model::reset(self, key);
    }

    fn change(&mut self, now_us: u64, limit: &Limit) {
        Model::change(self, now_us, limit);
    }

    fn turn_to(&mut self, node: usize) {
        Model::turn_to(self, node);
    }

    fn restart(&mut self, now_us: u64, limit: &Limit) {
        Model::restart(self, now_us, limit);
    }
}

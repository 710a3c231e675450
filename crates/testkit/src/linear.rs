//! Linearizability: is there one order of all calls, true to their times, in which
//! a sequential account gives the same answers?
//!
//! The search of Wing and Gong: take any call that nobody had finished before, see
//! whether the account answers as it did, go on; remember where it led nowhere. Meant
//! for short histories, of up to 64 calls.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

/// One call of one thread. Its times are readings of one [`Order`].
#[derive(Clone, Debug)]
pub struct Call<O, R> {
    /// Who called.
    pub thread: usize,
    /// Before the call began.
    pub invoked: u64,
    /// After it returned.
    pub returned: u64,
    /// What was asked.
    pub op: O,
    /// What was answered.
    pub result: R,
}

/// Counts instants for all threads.
#[derive(Debug, Default)]
pub struct Order(AtomicU64);

impl Order {
    /// Runs a call and notes when.
    pub fn call<O, R>(&self, thread: usize, op: O, run: impl FnOnce(&O) -> R) -> Call<O, R> {
        let invoked = self.0.fetch_add(1, Ordering::SeqCst);
        let result = run(&op);
        let returned = self.0.fetch_add(1, Ordering::SeqCst);
        Call { thread, invoked, returned, op, result }
    }
}

/// The calls in an order that explains them, if there is one. `next` gives what a
/// call may do to a state: usually one outcome, several where the call may have read
/// the clock at one of several times.
///
/// # Panics
/// On more than 64 calls.
pub fn explain<S, O, R>(
    history: &[Call<O, R>],
    start: &S,
    next: impl Fn(&S, &O) -> Vec<(S, R)>,
) -> Option<Vec<usize>>
where
    S: Clone + Eq + Hash,
    R: PartialEq,
{
    assert!(history.len() <= 64, "{} calls are too many to search", history.len());
    let mut order = Vec::new();
    let mut seen = HashSet::new();
    search(history, start, &next, 0, &mut order, &mut seen).then_some(order)
}

fn search<S, O, R>(
    history: &[Call<O, R>],
    state: &S,
    next: &impl Fn(&S, &O) -> Vec<(S, R)>,
    done: u64,
    order: &mut Vec<usize>,
    dead: &mut HashSet<(u64, S)>,
) -> bool
where
    S: Clone + Eq + Hash,
    R: PartialEq,
{
    if order.len() == history.len() {
        return true;
    }
    if !dead.insert((done, state.clone())) {
        return false;
    }
    let open = |nth: &usize| done & (1 << nth) == 0;
    let first_return = (0..history.len()).filter(open).map(|nth| history[nth].returned).min();
    for nth in (0..history.len()).filter(open) {
        let call = &history[nth];
        if first_return.is_some_and(|returned| call.invoked > returned) {
            continue;
        }
        for (after, result) in next(state, &call.op) {
            if result == call.result {
                order.push(nth);
                if search(history, &after, next, done | (1 << nth), order, dead) {
                    return true;
                }
                order.pop();
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter: the call takes a number and learns it.
    fn counter(state: &u64, _: &()) -> Vec<(u64, u64)> {
        vec![(state + 1, *state)]
    }

    fn call(thread: usize, invoked: u64, returned: u64, result: u64) -> Call<(), u64> {
        Call { thread, invoked, returned, op: (), result }
    }

    #[test]
    fn calls_that_overlap_may_take_effect_in_any_order() {
        let history = [call(0, 0, 3, 1), call(1, 1, 2, 0)];
        assert_eq!(explain(&history, &0, counter), Some(vec![1, 0]));
    }

    #[test]
    fn a_call_that_ended_before_another_began_comes_first() {
        let history = [call(0, 0, 1, 1), call(1, 2, 3, 0)];
        assert_eq!(explain(&history, &0, counter), None);
    }

    #[test]
    fn two_calls_that_took_the_same_number_have_no_order() {
        let history = [call(0, 0, 2, 0), call(1, 1, 3, 0)];
        assert_eq!(explain(&history, &0, counter), None);
    }

    #[test]
    fn one_of_several_possible_outcomes_is_enough() {
        let either = |state: &u64, (): &()| vec![(*state, 7), (state + 1, *state)];
        assert!(explain(&[call(0, 0, 1, 7), call(0, 2, 3, 0)], &0, either).is_some());
        assert!(explain(&[call(0, 0, 1, 7), call(0, 2, 3, 1)], &0, either).is_none());
    }
}

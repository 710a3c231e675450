//! Callers who hold slots all the while, and how many held one at the same time.

use super::drive::now_us;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use testkit::servers::{pause, wait_until};
use tidegate::Gate;

/// How long a slot is held, unless it is lost before.
const HELD: Duration = Duration::from_millis(700);
const PACE: Duration = Duration::from_millis(5);

/// A slot that somebody held for certain: from the answer that gave it until it was given
/// back, or seen to be lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) from_us: u64,
    pub(super) till_us: u64,
}

/// Holders of one gate, each on its thread.
pub(super) struct Holds {
    is_over: Arc<AtomicBool>,
    holds: Arc<Mutex<Vec<Hold>>>,
    holders: Vec<JoinHandle<()>>,
}

impl Holds {
    pub(super) fn start(gate: &Gate, holders: usize) -> Self {
        let (is_over, holds) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<Hold>>>::default());
        let holder = |_| {
            let (gate, is_over, holds) = (gate.clone(), is_over.clone(), holds.clone());
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let verdict = gate.reserve("job");
                    if let Ok(permit) = verdict.into_permit() {
                        let from_us = now_us();
                        let mut till_us = from_us;
                        while !permit.is_lost() && till_us - from_us < HELD.as_micros() as u64 {
                            till_us = now_us();
                            pause(PACE);
                        }
                        holds.lock().unwrap_or_else(PoisonError::into_inner).push(Hold { from_us, till_us });
                    }
                    pause(PACE);
                }
            })
        };
        let holders = (0..holders).map(holder).collect();
        Self { is_over, holds, holders }
    }

    /// Ends the holders, and tells what they held.
    pub(super) fn stop(self) -> Vec<Hold> {
        self.is_over.store(true, Ordering::Relaxed);
        wait_until("every holder is answered", Duration::from_secs(10), || {
            self.holders.iter().all(JoinHandle::is_finished)
        });
        for holder in self.holders {
            holder.join().expect("a holder does not panic");
        }
        std::mem::take(&mut *self.holds.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The most that were held at the same time, and for how long more than there are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Over {
    pub(super) most: usize,
    pub(super) time: Duration,
}

pub(super) fn over_held(holds: &[Hold], slots: usize) -> Over {
    let mut edges: Vec<(u64, i64)> = holds.iter().flat_map(|h| [(h.from_us, 1), (h.till_us, -1)]).collect();
    // One that ends as another begins is not held beside it.
    edges.sort_unstable();
    let (mut held, mut over) = (0, Over { most: 0, time: Duration::ZERO });
    let mut since_us = 0;
    for (at_us, by) in edges {
        if usize::try_from(held).is_ok_and(|held| held > slots) {
            over.time += Duration::from_micros(at_us - since_us);
        }
        held += by;
        since_us = at_us;
        over.most = over.most.max(usize::try_from(held).unwrap_or(0));
    }
    over
}

#[test]
fn a_slot_too_many_is_found() {
    let hold = |from_us, till_us| Hold { from_us, till_us };
    let fine = [hold(0, 10), hold(0, 20), hold(10, 30), hold(20, 30)];
    assert_eq!(over_held(&fine, 2), Over { most: 2, time: Duration::ZERO });
    let wrong = [hold(0, 10), hold(0, 20), hold(8, 30), hold(15, 17)];
    assert_eq!(over_held(&wrong, 2), Over { most: 3, time: Duration::from_micros(4) });
}

//! Timed segments: a contender decides a stretch of requests on one or two threads, and its decisions
//! are counted. The count is compared with what the limit says, so that neither a wrong limiter nor
//! a clever compiler gets a good figure for work that it left out.

use super::contenders::{Batched, Hot, Keyed};
use super::keys::Key;
use crate::rounds::Measured;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const SEGMENT: Duration = Duration::from_millis(200);

/// Requests of a batch call.
pub const BATCH: usize = 64;

/// What every decision of a case should be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Allowed,
    Denied,
    /// Judged elsewhere: see the sketch.
    Anything,
}

/// What stays the same for a contender over a case's rounds.
pub struct Segments {
    pub threads: usize,
    pub expect: Expect,
    /// Checks of a thread in a segment; found in the first round, so that a segment
    /// takes about as long for a slow contender as for a fast one.
    ops: Option<u64>,
}

impl Segments {
    pub fn new(threads: usize, expect: Expect) -> Self {
        Self { threads, expect, ops: None }
    }

    pub fn hot(&mut self, contender: &impl Hot) -> Measured {
        let threads = self.threads;
        self.measure(|ops| parallel(threads, |_| (0..ops).map(|_| u64::from(contender.check())).sum()))
    }

    pub fn keyed(&mut self, contender: &mut impl Keyed, keys: &[Key], round: usize) -> Measured {
        let threads = self.threads;
        let start = |thread| start(keys.len(), threads, thread, round);
        self.measure(|ops| {
            if threads == 1 {
                let slices = stretch(keys, start(0), ops);
                return alone(|| {
                    let keys = slices.flatten();
                    keys.map(|key| u64::from(contender.check_alone(key))).sum()
                });
            }
            let contender = &*contender;
            parallel(threads, |thread| {
                let keys = stretch(keys, start(thread), ops).flatten();
                keys.map(|key| u64::from(contender.check(key))).sum()
            })
        })
    }

    pub fn batched(&mut self, contender: &impl Batched, keys: &[Key], round: usize) -> Measured {
        let start = start(keys.len(), 1, 0, round);
        self.measure(|ops| {
            let slices = stretch(keys, start, ops);
            alone(|| {
                let batches = slices.flat_map(|slice| slice.chunks(BATCH));
                batches.map(|batch| contender.check_batch(batch)).sum()
            })
        })
    }

    /// Runs one segment (before the first one, shorter ones that warm up and find its length).
    fn measure(&mut self, mut segment: impl FnMut(u64) -> (Duration, u64)) -> Measured {
        let ops = *self.ops.get_or_insert_with(|| {
            let mut ops = 1 << 12;
            for aim in [SEGMENT / 20, SEGMENT / 4, SEGMENT] {
                let (took, _) = segment(ops);
                let per_op = took.as_secs_f64() / ops as f64;
                ops = (aim.as_secs_f64() / per_op.max(1e-10)).ceil() as u64;
            }
            ops
        });
        let (took, allowed) = segment(ops);
        let checks = ops * self.threads as u64;
        let wrong = match self.expect {
            Expect::Allowed => checks - allowed,
            Expect::Denied => allowed,
            Expect::Anything => 0,
        };
        Measured {
            // Of one thread's time: two threads that do not hinder each other keep the figure.
            value: took.as_nanos() as f64 / ops as f64,
            wrong: wrong as f64 / checks as f64,
        }
    }
}

/// Where in the requests a thread begins: the same for all contenders of a round, another place in
/// every round, and threads far from each other.
fn start(length: usize, threads: usize, thread: usize, round: usize) -> usize {
    (round * (length / 5) + thread * (length / threads)) % length
}

/// `ops` requests from `start` on, around the end as often as needed.
fn stretch(keys: &[Key], start: usize, ops: u64) -> impl Iterator<Item = &[Key]> {
    let mut at = start;
    let mut left = ops;
    std::iter::from_fn(move || {
        let here = (keys.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
        let slice = &keys[at..at + here];
        left -= here as u64;
        at = 0;
        (here > 0).then_some(slice)
    })
}

fn alone(work: impl FnOnce() -> u64) -> (Duration, u64) {
    let begun = Instant::now();
    let allowed = work();
    (begun.elapsed(), allowed)
}

/// From the first thread's start to the last one's end.
fn parallel(threads: usize, work: impl Fn(usize) -> u64 + Sync) -> (Duration, u64) {
    if threads == 1 {
        return alone(|| work(0));
    }
    let barrier = Barrier::new(threads);
    let (barrier, work) = (&barrier, &work);
    let timed: Vec<(Instant, Instant, u64)> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    barrier.wait();
                    let begun = Instant::now();
                    let allowed = work(thread);
                    (begun, Instant::now(), allowed)
                })
            })
            .collect();
        running.into_iter().map(|one| one.join().expect("a contender panicked")).collect()
    });
    let begun = timed.iter().map(|one| one.0).min();
    let ended = timed.iter().map(|one| one.1).max();
    let took = ended.zip(begun).map_or(Duration::ZERO, |(e, b)| e - b);
    (took, timed.iter().map(|one| one.2).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_goes_around_the_end_and_has_the_requested_length() {
        let keys: Vec<Key> = (0..10).map(Key::numbered).collect();
        let taken: Vec<&str> = stretch(&keys, 8, 15).flatten().map(Key::as_str).collect();
        assert_eq!(taken.len(), 15);
        assert_eq!(taken[0], keys[8].as_str());
        assert_eq!(taken[2], keys[0].as_str());
        assert_eq!(taken[14], keys[2].as_str());
    }

    #[test]
    fn decisions_that_the_limit_forbids_are_counted_as_wrong() {
        struct Generous;
        impl Hot for Generous {
            fn check(&self) -> bool {
                std::hint::black_box(true)
            }
        }
        let wrong = |expect| Segments::new(2, expect).hot(&Generous).wrong;
        assert_eq!(wrong(Expect::Allowed), 0.0);
        assert_eq!(wrong(Expect::Denied), 1.0);
    }
}

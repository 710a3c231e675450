//! The limit of a gate in plain words, read on every decision.
//!
//! They change rarely and must be read without a lock and without counting readers,
//! so they are kept as plain words under a sequence number: whoever reads while they
//! change reads again. Nothing is ever freed, so nothing can be freed too early.

use super::gate::Miss;
use super::version::LimitVersion;
use crate::algorithm::{Bucket, Plan, Scale, Stepped, Word};
use crate::sync::{AtomicU64, Ordering, fence};

const WORDS: usize = 7;

/// One cache line: a sequence number and the words of a plan.
#[repr(align(64))]
pub(crate) struct LimitWords {
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// A limit in force whose states are one word in this scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastLimit<S> {
    pub(crate) version: u16,
    pub(crate) capacity: u64,
    pub(crate) bucket: Bucket<S>,
}

/// A scale that the words of a limit can hold.
pub(crate) trait FastScale: Scale<Tat = u64> {
    const KIND: u64;
    fn words(self) -> [u64; 5];
    fn of_words(words: [u64; 5]) -> Self;
}

impl FastScale for Word {
    const KIND: u64 = 1;

    fn words(self) -> [u64; 5] {
        [self.cell, self.drain, self.unit, self.burst, self.full]
    }

    #[inline(always)]
    fn of_words([cell, drain, unit, burst, full]: [u64; 5]) -> Self {
        Self { cell, drain, unit, burst, full }
    }
}

impl FastScale for Stepped {
    const KIND: u64 = 2;

    fn words(self) -> [u64; 5] {
        [self.amount, self.tick_us, self.cap, self.wait_us, self.phase_us]
    }

    #[inline(always)]
    fn of_words([amount, tick_us, cap, wait_us, phase_us]: [u64; 5]) -> Self {
        Self { amount, tick_us, cap, wait_us, phase_us }
    }
}

/// The head of the words: the limit's version above its kind, which is 0 where the states are more
/// than a word.
const KIND_BITS: u32 = 8;

impl LimitWords {
    pub(crate) fn new(version: &LimitVersion) -> Self {
        Self { sequence: AtomicU64::new(0), words: encode(version).map(AtomicU64::new) }
    }

    #[inline(always)]
    pub(crate) fn read<S: FastScale>(&self) -> Result<FastLimit<S>, Miss> {
        let before = self.sequence.load(Ordering::Acquire);
        let words: [u64; WORDS] = std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if before & 1 != 0 || self.sequence.load(Ordering::Relaxed) != before {
            return Err(Miss::Contended);
        }
        let [head, capacity, scale @ ..] = words;
        if head & ((1 << KIND_BITS) - 1) != S::KIND {
            return Err(Miss::OtherScale);
        }
        let (version, bucket) = ((head >> KIND_BITS) as u16, Bucket { scale: S::of_words(scale) });
        Ok(FastLimit { version, capacity, bucket })
    }

    /// Only one thread may store at a time; the gate's lock sees to that.
    pub(crate) fn store(&self, version: &LimitVersion) {
        let before = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(before + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (held, word) in self.words.iter().zip(encode(version)) {
            held.store(word, Ordering::Relaxed);
        }
        self.sequence.store(before + 2, Ordering::Release);
    }
}

fn encode(version: &LimitVersion) -> [u64; WORDS] {
    let (kind, [a, b, c, d, e]) = match &version.plan {
        Plan::Word(bucket) => (Word::KIND, bucket.scale.words()),
        Plan::Stepped(bucket) => (Stepped::KIND, bucket.scale.words()),
        Plan::Wide(_) | Plan::Warm(_) | Plan::Slices(_) | Plan::Slots(_) => (0, [0; 5]),
    };
    [(u64::from(version.number) << KIND_BITS) | kind, version.limit.capacity(), a, b, c, d, e]
}

//! The limit of a gate in plain words, read on every decision.
//!
//! They change rarely and must be read without a lock and without counting readers,
//! so they are kept as plain words under a sequence number: whoever reads while they
//! change reads again. Nothing is ever freed, so nothing can be freed too early.

use crate::algorithm::{Bucket, Gauge, Mode, Plan, Scale, Stepped, Word};
use crate::clock::Timestamp;
use crate::decision::DecisionOutcome;
use crate::sync::{AtomicU64, Ordering, fence};

const WORDS: usize = 7;

/// One cache line: a sequence number and the words of a plan.
#[repr(align(64))]
pub(crate) struct LimitWords {
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// A limit in force, as far as it decides on one word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastLimit {
    pub(crate) version: u16,
    pub(crate) capacity: u64,
    pub(crate) plan: FastPlan,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum FastPlan {
    Word(Bucket<Word>),
    Stepped(Bucket<Stepped>),
    /// The state is more than a word: the locked path.
    None,
}

impl FastPlan {
    /// The decision without a wait, the word to write, and the level then; `None` if it takes
    /// the locked path.
    #[inline(always)]
    pub(crate) fn decide(&self, now_us: u64, word: u64, cost: u64) -> Option<(DecisionOutcome, u64, u64)> {
        if now_us >= Timestamp::MAX.as_micros() {
            return None;
        }
        match self {
            Self::Word(bucket) if !bucket.is_ahead(now_us, word) => {
                Some(bucket.decide_at(now_us, word, cost, Mode::Check))
            }
            Self::Stepped(bucket) => {
                let tat = bucket.scale.tat(word);
                if bucket.is_ahead(now_us, tat) {
                    return None;
                }
                let (outcome, next, level) = bucket.decide_at(now_us, tat, cost, Mode::Check);
                Some((outcome, if next == tat { word } else { bucket.scale.word(next) }, level))
            }
            Self::Word(_) | Self::None => None,
        }
    }

    /// What is left at a level. Apart from the decision, and after the write: what is stored
    /// before a compare-and-swap has to leave the store buffer first.
    #[inline(always)]
    pub(crate) fn gauge(&self, now_us: u64, level: u64, capacity: u64) -> Gauge {
        match self {
            Self::Word(bucket) => Gauge::of_word(level, bucket.scale),
            Self::Stepped(bucket) => {
                let reset_us = bucket.scale.empty_us(level, now_us);
                Gauge::Plain { remaining: capacity.saturating_sub(level), reset_us }
            }
            Self::None => Gauge::Plain { remaining: 0, reset_us: 0 },
        }
    }
}

/// The head of the words: what kind of plan, its version.
const KIND: u64 = 0x7f;
const KIND_WORD: u64 = 1;
const KIND_STEPPED: u64 = 2;

#[inline]
fn version(head: u64) -> u16 {
    (head >> 8) as u16
}

impl LimitWords {
    pub(crate) fn new(version: u16, limit: u64, plan: &Plan) -> Self {
        let words = encode(version, limit, plan).map(AtomicU64::new);
        Self { sequence: AtomicU64::new(0), words }
    }

    /// None while they change.
    #[inline(always)]
    pub(crate) fn read(&self) -> Option<FastLimit> {
        let before = self.sequence.load(Ordering::Acquire);
        let words: [u64; WORDS] = std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = before & 1 == 0 && self.sequence.load(Ordering::Relaxed) == before;
        is_whole.then(|| decode(words))
    }

    /// Only one thread may store at a time; the gate's lock sees to that.
    pub(crate) fn store(&self, version: u16, limit: u64, plan: &Plan) {
        let before = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(before + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (held, word) in self.words.iter().zip(encode(version, limit, plan)) {
            held.store(word, Ordering::Relaxed);
        }
        self.sequence.store(before + 2, Ordering::Release);
    }
}

fn encode(version: u16, limit: u64, plan: &Plan) -> [u64; WORDS] {
    let head = |kind: u64| (u64::from(version) << 8) | kind;
    match plan {
        Plan::Word(Bucket { scale: w }) => [head(KIND_WORD), limit, w.cell, w.drain, w.unit, w.burst, w.full],
        Plan::Stepped(Bucket { scale: s }) => {
            [head(KIND_STEPPED), limit, s.amount, s.tick_us, s.cap, s.wait_us, s.phase_us]
        }
        _ => [head(0), limit, 0, 0, 0, 0, 0],
    }
}

#[inline(always)]
fn decode(words: [u64; WORDS]) -> FastLimit {
    let [head, capacity, a, b, c, d, e] = words;
    let plan = match head & KIND {
        KIND_WORD => {
            let scale = Word { cell: a, drain: b, unit: c, burst: d, full: e };
            FastPlan::Word(Bucket { scale })
        }
        KIND_STEPPED => {
            let scale = Stepped { amount: a, tick_us: b, cap: c, wait_us: d, phase_us: e };
            FastPlan::Stepped(Bucket { scale })
        }
        _ => FastPlan::None,
    };
    FastLimit { version: version(head), capacity, plan }
}

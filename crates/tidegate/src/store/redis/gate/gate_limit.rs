//! A limit in force at a gate, and the numbers that the script takes of it.

use super::accept::entries;
use crate::Limit;
use crate::algorithm::{Bucket, LimitNumbers, OTHERS_MAX, Scale};
use crate::clock::Timestamp;
use crate::store::redis::script::numbers::{
    EXACT, KIND_BUCKET, KIND_SLICES, KIND_SLOTS, KIND_STEPPED, KIND_WARM_UP, TAG_BUCKET, TAG_SLICES,
    TAG_STEPPED, TAG_WARM_UP,
};
use crate::store::redis::store::RedisClient;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// How long a waiter in a queue counts as alive without a sign.
const WAITER_ALIVE_US: u64 = 2_000_000;
/// In the number of a version: it is the own limit of a check, and no change replaces it.
const OF_CHECK: u64 = 1 << 63;

pub(crate) struct GateLimit {
    pub(crate) number: u64,
    pub(crate) limit: Limit,
    pub(crate) numbers: LimitNumbers,
    pub(crate) encoded: Arc<EncodedLimit>,
    /// Those of the limits that were in force here before, oldest first.
    pub(crate) before: SmallVec<[Arc<EncodedLimit>; OTHERS_MAX]>,
    /// The longest list that a call about one key may have to read.
    pub(crate) entries: u64,
}

/// What the script takes of a limit.
pub(crate) struct EncodedLimit {
    /// The kind and five numbers.
    pub(crate) numbers: [u64; 6],
    /// Written behind every state, so that another limit knows whose it is.
    pub(crate) tag: String,
    /// When it came into force here, on the local clock.
    pub(crate) since: Timestamp,
}

impl GateLimit {
    /// A limit that comes into force now. `slot_lease` is how long a slot is held without a sign of
    /// its holder.
    pub(crate) fn new(client: &RedisClient, limit: Limit, slot_lease: Duration) -> Self {
        // The clock that counts shows zero at this Unix time: the server's at 0.
        let unix_us_at_zero = if client.sends_time { client.clock.unix_us_at_zero() } else { 0 };
        let mut numbers = LimitNumbers::new(&limit, unix_us_at_zero);
        if let LimitNumbers::Smooth(Bucket { scale }) = &mut numbers {
            // As in decide.lua, which works it out from the tag of another limit's state.
            let most = u128::from(scale.full_units() + 1) * u128::from(scale.cell);
            *scale = scale.finer(|factor| most * u128::from(factor) < u128::from(EXACT));
        }
        if let LimitNumbers::Slices(slices) = &mut numbers {
            // The script's slices sit on the zero of the clock that counts.
            slices.phase_us = 0;
        }
        let encoded = EncodedLimit::new(&limit, &numbers, slot_lease, client.clock.now());
        Self {
            number: client.numbers(1),
            entries: entries(&limit),
            limit,
            numbers,
            encoded: Arc::new(encoded),
            before: SmallVec::new(),
        }
    }

    /// An own limit of checks. It has always been in force, as at a node that has had it since it
    /// began.
    pub(crate) fn of_check(client: &RedisClient, limit: Limit, slot_lease: Duration) -> Self {
        let version = Self::new(client, limit, slot_lease);
        Self { number: version.number | OF_CHECK, ..version }.in_force_since(Timestamp::default())
    }

    /// The version that comes after this one.
    pub(crate) fn next(&self, client: &RedisClient, limit: Limit, slot_lease: Duration) -> Self {
        let mut next = Self { before: self.before.clone(), ..Self::new(client, limit, slot_lease) };
        if next.encoded.tag == self.encoded.tag {
            // One that counts alike goes on with the same counts.
            return next.in_force_since(self.encoded.since);
        }
        if next.before.len() == OTHERS_MAX {
            next.before.remove(0);
        }
        next.before.push(self.encoded.clone());
        next
    }

    fn in_force_since(self, since: Timestamp) -> Self {
        let EncodedLimit { numbers, ref tag, .. } = *self.encoded;
        Self { encoded: Arc::new(EncodedLimit { numbers, tag: tag.clone(), since }), ..self }
    }

    pub(crate) fn is_of_check(&self) -> bool {
        self.number & OF_CHECK != 0
    }

    /// True if both count alike, so that a call of one can be counted with a call of the other.
    pub(crate) fn counts_like(&self, other: &Self) -> bool {
        self.encoded.numbers == other.encoded.numbers
    }

    pub(crate) fn has_slots(&self) -> bool {
        matches!(self.numbers, LimitNumbers::Slots(_))
    }

    pub(crate) fn is_bucket(&self) -> bool {
        matches!(self.numbers, LimitNumbers::Smooth(_))
    }
}

impl EncodedLimit {
    fn new(limit: &Limit, numbers: &LimitNumbers, slot_lease: Duration, since: Timestamp) -> Self {
        let narrow = |ticks: u128| u64::try_from(ticks).unwrap_or(u64::MAX);
        let (numbers, tag) = match numbers {
            LimitNumbers::Smooth(Bucket { scale: s }) => {
                // In lowest terms: the finer ticks follow from these.
                let (cell, drain) = limit.cell_and_drain();
                let rest = narrow(s.full % u128::from(s.cell)) / (s.cell / cell);
                let all = [cell, s.full_units(), drain, rest];
                let needed = if rest != 0 { 4 } else { 2 + usize::from(drain != 1) };
                let numbers = [KIND_BUCKET, s.cell, s.drain, narrow(s.burst), narrow(s.full), 0];
                (numbers, tag(TAG_BUCKET, &all[..needed]))
            }
            LimitNumbers::Stepped(Bucket { scale: s }) => {
                let all = [s.amount, s.tick_us, s.full(), s.phase_us];
                let needed = if s.phase_us == 0 { 3 } else { 4 };
                let numbers = [KIND_STEPPED, s.amount, s.tick_us, s.cap, s.wait_us, s.phase_us];
                (numbers, tag(TAG_STEPPED, &all[..needed]))
            }
            LimitNumbers::WarmUp(w) => {
                let numbers = [w.cell, w.drain, w.warmup_us, w.wait_us];
                let [cell, drain, warmup_us, wait_us] = numbers;
                ([KIND_WARM_UP, cell, drain, warmup_us, wait_us, 0], tag(TAG_WARM_UP, &numbers))
            }
            LimitNumbers::Slices(s) => {
                let numbers = [KIND_SLICES, s.amount, s.slice_us, s.span, s.wait_us, 0];
                (numbers, tag(TAG_SLICES, &[s.slice_us, s.span, s.wait_us]))
            }
            LimitNumbers::Slots(s) => {
                let lease_us = narrow(slot_lease.as_micros());
                ([KIND_SLOTS, s.amount, s.queue, lease_us, WAITER_ALIVE_US, 0], String::new())
            }
        };
        Self { numbers, tag, since }
    }
}

/// The numbers of a limit in base 36, short as they stand behind every state.
fn tag(kind: char, numbers: &[u64]) -> String {
    let parts: Vec<String> = numbers.iter().map(|number| base36(*number)).collect();
    format!("{kind}{}", parts.join("/"))
}

fn base36(number: u64) -> String {
    let last = char::from_digit((number % 36) as u32, 36).unwrap_or('0');
    if number < 36 { last.into() } else { format!("{}{last}", base36(number / 36)) }
}

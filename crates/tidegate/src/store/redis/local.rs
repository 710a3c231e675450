//! What a gate does while Redis does not answer.

use super::config::Fallback;
use super::share::share;
use crate::Limit;
use crate::algorithm::Gauge;
use crate::ask::{KeyBytes, MemoryAsk};
use crate::clock::{StoreClock, Timestamp};
use crate::decision::{Decision, Outcome, Refused};
use crate::store::memory::{self, Home, Pages, Write, home_of, with_state};
use std::sync::{Arc, Mutex, PoisonError};

/// Keys that a gate holds while it is on its own.
const MAX_KEYS: usize = 100_000;

pub(crate) struct Local {
    id: u32,
    name: Box<str>,
    fallback: Fallback,
    clock: StoreClock,
    share: Mutex<Option<Share>>,
}

/// A node's share of a limit, counted in memory.
#[derive(Clone)]
struct Share {
    /// What it was made of; another one starts anew.
    of: Limit,
    nodes: u32,
    meter: Arc<memory::Meter>,
}

/// A question to a gate that is on its own.
pub(crate) enum Alone {
    /// Decided by this share.
    Share(MemoryAsk),
    /// Denied.
    Denied(Decision),
}

impl Local {
    pub(crate) fn new(id: u32, name: &str, fallback: Fallback, clock: StoreClock) -> Self {
        Self { id, name: name.into(), fallback, clock, share: Mutex::default() }
    }

    /// How one question is decided, `since` Redis answered last.
    pub(crate) fn question(
        &self,
        limit: &Limit,
        nodes: Option<u32>,
        since: Timestamp,
        key: &[u8],
        cost: u64,
        retry_us: u64,
    ) -> Alone {
        let denied = || Alone::Denied(unavailable(limit, retry_us));
        let (share, key, is_empty) = match &self.fallback {
            Fallback::Deny => return denied(),
            Fallback::Allow { cap } => (Some(cap.clone()), &b""[..], false),
            Fallback::Local => (nodes.and_then(|nodes| share(limit, nodes)), key, true),
        };
        let Some(share) = share else { return denied() };
        let meter = self.meter(limit, &share, nodes.unwrap_or(1));
        // Looked for before anything is written: what starts empty takes room, too.
        let hash = meter.hash(key);
        let hash = home_of(&meter, hash, cost).unwrap_or(hash);
        if is_empty && cost > 0 {
            start_empty(&meter, hash, since);
        }
        Alone::Share(MemoryAsk { meter, hash, key: KeyBytes::new(), cost, index: 0 })
    }

    fn meter(&self, of: &Limit, share: &Limit, nodes: u32) -> Arc<memory::Meter> {
        let mut held = self.share.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = &*held
            && held.of == *of
            && held.nodes == nodes
        {
            return held.meter.clone();
        }
        // Another limit, or another number of nodes: what was used goes along.
        if let Some(held) = &mut *held {
            (held.of, held.nodes) = (of.clone(), nodes);
            held.meter.change(share.clone());
            return held.meter.clone();
        }
        let home = Arc::new(Home::new(self.clock.clone(), MAX_KEYS, Pages::AsTouched));
        let meter = Arc::new(memory::Meter::new(self.id, &self.name, share.clone(), home, false));
        *held = Some(Share { of: of.clone(), nodes, meter: meter.clone() });
        meter
    }

    /// What a denial of a share is called: a cap is nobody's limit.
    pub(crate) fn shown(&self, decision: Decision, limit: &Limit, retry_us: u64) -> Decision {
        match (&self.fallback, decision.outcome) {
            (Fallback::Allow { .. }, Outcome::Deny(_)) => unavailable(limit, retry_us),
            _ => degraded(decision),
        }
    }
}

/// A key had nothing left when Redis answered last: whatever the others have used, this
/// node starts no burst of its own.
fn start_empty(meter: &memory::Meter, hash: u64, since: Timestamp) {
    with_state(meter, hash, |version, now_us, state| {
        let empty = version.plan.used_up(since.as_micros());
        if version.plan.used(now_us, &empty) <= version.plan.used(now_us, state) {
            return ((), Write::Nothing);
        }
        *state = empty;
        ((), Write::Charged(0))
    });
}

fn unavailable(limit: &Limit, retry_us: u64) -> Decision {
    Decision {
        outcome: Outcome::Deny(Refused::Unavailable { retry_us }),
        limit: limit.capacity(),
        gauge: Gauge::Degraded { remaining: 0, reset_us: retry_us },
    }
}

fn degraded(decision: Decision) -> Decision {
    let gauge = Gauge::Degraded {
        remaining: decision.remaining(),
        reset_us: u64::try_from(decision.reset_after().as_micros()).unwrap_or(u64::MAX),
    };
    Decision { gauge, ..decision }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_flood_of_keys_while_redis_is_away_stays_under_the_cap() {
        let clock = StoreClock::Other(Arc::new(ManualClock::at(Timestamp::from_micros(1_000_000))));
        let limit: Limit = "1000/day".parse().unwrap();
        let local = Local::new(1, "flooded", Fallback::Local, clock);
        let mut meter = None;
        for key in 0u32..400_000 {
            let since = Timestamp::from_micros(999_000);
            match local.question(&limit, Some(1), since, &key.to_le_bytes(), 1, 0) {
                Alone::Share(share) => meter = Some(share.meter),
                Alone::Denied(decision) => panic!("{decision:?}"),
            }
        }
        let home = meter.unwrap().home.clone();
        assert!(home.shard_entries() <= home.shard_entries_max(), "{} keys", home.shard_entries());
    }
}

//! What a gate does while Redis does not answer.

use super::gate_limit::GateLimit;
use super::per_node_share::per_node_share;
use crate::Limit;
use crate::algorithm::{Gauge, MILLIONTHS, Mode};
use crate::clock::{StoreClock, Timestamp};
use crate::decision::{Decision, DecisionOutcome, DenialReason};
use crate::gate::Gate;
use crate::limiter::Overflow;
use crate::store::Backend;
use crate::store::memory::{HashedCheck, MemoryGate, Pages, Tables, Write, look, tracked_hash, with_state};
use crate::store::redis::config::Fallback;
use crate::store::redis::script::replay::FoundState;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Keys that a gate holds in memory.
const MAX_KEYS: usize = 100_000;

pub(crate) struct GateFallback {
    id: u32,
    name: Box<str>,
    fallback: Fallback,
    clock: StoreClock,
    share: Mutex<Option<NodeShare>>,
}

/// A node's share of a limit, counted in memory.
#[derive(Clone)]
struct NodeShare {
    /// What it was made of; another one starts anew.
    of: Limit,
    nodes: u32,
    gate: Gate,
}

/// One key of a share.
pub(crate) struct NodeShareKey {
    gate: Gate,
    hash: u64,
    /// The share of a check's own limit.
    limit: Option<Box<Limit>>,
}

impl NodeShareKey {
    pub(crate) fn check(&self, cost: u64) -> (&Gate, HashedCheck<'_>) {
        let check = HashedCheck::new(in_memory(&self.gate), self.hash, cost);
        (&self.gate, HashedCheck { limit: self.limit.as_deref(), ..check })
    }

    /// What a check would decide, with nothing taken.
    pub(crate) fn look(&self, cost: u64, mode: Mode) -> Decision {
        look(self.check(cost).1, mode)
    }
}

fn in_memory(share: &Gate) -> &MemoryGate {
    share.backend().memory().unwrap_or_else(|| unreachable!("a share is counted in memory"))
}

/// The limit that decides a check: the one in force at the gate, or the check's own.
#[derive(Clone, Copy)]
pub(crate) struct DecidingLimit<'a> {
    pub(crate) in_force: &'a Limit,
    pub(crate) limit: &'a Limit,
}

/// How a check is decided without Redis.
pub(crate) enum FallbackCheck {
    InMemory(NodeShareKey),
    Denied(Decision),
}

impl GateFallback {
    pub(crate) fn new(id: u32, name: &str, fallback: Fallback, clock: StoreClock) -> Self {
        Self { id, name: name.into(), fallback, clock, share: Mutex::default() }
    }

    /// How a check is decided, where Redis answered `since` last.
    pub(crate) fn check(
        &self,
        DecidingLimit { in_force, limit }: DecidingLimit<'_>,
        nodes: Option<u32>,
        since: Timestamp,
        key: &[u8],
        cost: u64,
        retry_us: u64,
    ) -> FallbackCheck {
        let denied = || FallbackCheck::Denied(unavailable(limit, retry_us));
        let share_of = |limit: &Limit| match &self.fallback {
            Fallback::Deny => None,
            Fallback::Allow { cap } => Some(cap.clone()),
            Fallback::Local => nodes.and_then(|nodes| per_node_share(limit, nodes)),
        };
        let is_share = matches!(self.fallback, Fallback::Local);
        let key = if is_share { key } else { b"" };
        let (Some(share), Some(own)) = (share_of(in_force), share_of(limit)) else { return denied() };
        let gate = self.gate(in_force, &share, nodes.unwrap_or(1));
        let limit = (own != share).then(|| Box::new(own));
        let hash = in_memory(&gate).hash(key);
        let mut key = NodeShareKey { gate, hash, limit };
        // Looked for before anything is written: what starts nearly used up takes room, too.
        key.hash = tracked_hash(key.check(cost).1).unwrap_or(hash);
        if is_share && cost > 0 {
            leave_one_request(key.check(cost).1, since);
        }
        FallbackCheck::InMemory(key)
    }

    fn gate(&self, of: &Limit, share: &Limit, nodes: u32) -> Gate {
        let mut held = self.share.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = &mut *held {
            // Another limit, or another number of nodes: what was used goes along.
            if held.of != *of || held.nodes != nodes {
                (held.of, held.nodes) = (of.clone(), nodes);
                held.gate.put_in_force(share.clone());
            }
            return held.gate.clone();
        }
        let tables = Arc::new(Tables::new(self.clock.clone(), MAX_KEYS, Pages::AsTouched));
        let backend = Backend::Memory(MemoryGate::new(self.id, share.clone(), tables, Overflow::Share));
        let gate = Gate::new(&self.name, share.clone(), self.clock.clone(), backend);
        *held = Some(NodeShare { of: of.clone(), nodes, gate: gate.clone() });
        gate
    }

    /// A decision in memory as the caller's: a cap is nobody's limit, and what is too much for a
    /// share may fit once Redis answers.
    pub(crate) fn decision(
        &self,
        decision: Decision,
        version: &GateLimit,
        cost: u64,
        mode: Mode,
        retry_us: u64,
    ) -> Decision {
        let limit = &version.limit;
        let never_fits = || {
            let unused = FoundState::unused(&version.numbers);
            let outcome = unused.map(|mut key| key.decide(0, cost, mode, limit.capacity()).outcome);
            matches!(outcome, Some(DecisionOutcome::Deny(DenialReason::Never)))
        };
        match (&self.fallback, decision.outcome) {
            (Fallback::Allow { .. }, DecisionOutcome::Deny(_)) => unavailable(limit, retry_us),
            (Fallback::Local, DecisionOutcome::Deny(DenialReason::Never)) if !never_fits() => {
                unavailable(limit, retry_us)
            }
            _ => degraded(decision),
        }
    }
}

/// Whatever the others have let start, this node starts no burst of its own: when Redis
/// answered last, a key had what this one request takes, and nothing else. Without that, a
/// new key would be refused until its share has flowed in, which can take hours.
fn leave_one_request(check: HashedCheck<'_>, since: Timestamp) {
    with_state(check, |key| {
        let (now_us, plan) = (key.now_us, &key.version.plan);
        let used = key.version.limit.capacity().saturating_sub(check.cost);
        let start = plan.convert(since.as_micros(), u128::from(used) * u128::from(MILLIONTHS));
        if plan.used(now_us, &start) <= plan.used(now_us, key.state) {
            return Write::Nothing;
        }
        *key.state = start;
        Write::Charged(0)
    });
}

fn unavailable(limit: &Limit, retry_us: u64) -> Decision {
    Decision::unavailable(limit, Duration::from_micros(retry_us))
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
    use crate::store::memory::decide;

    const SINCE: Timestamp = Timestamp::from_micros(1_000_000);

    fn by(limit: &Limit) -> DecidingLimit<'_> {
        DecidingLimit { in_force: limit, limit }
    }

    /// A gate on one of three nodes, which Redis answered a moment ago.
    struct Node {
        clock: ManualClock,
        fallback: GateFallback,
        limit: Limit,
    }

    impl Node {
        fn new(limit: &str) -> Self {
            let clock = ManualClock::at(SINCE);
            let fallback =
                GateFallback::new(1, "g", Fallback::Local, StoreClock::Other(Arc::new(clock.clone())));
            Self { clock, fallback, limit: limit.parse().unwrap() }
        }

        /// How many of ten requests are let through.
        fn starts(&self, key: &str, cost: u64) -> usize {
            let is_allowed =
                || match self.fallback.check(by(&self.limit), Some(3), SINCE, key.as_bytes(), cost, 0) {
                    FallbackCheck::InMemory(share) => {
                        decide(&[share.check(cost)], Mode::Check).decisions[0].is_allowed()
                    }
                    FallbackCheck::Denied(_) => false,
                };
            (0..10).filter(|_| is_allowed()).count()
        }
    }

    #[test]
    fn a_new_key_has_one_request_and_then_what_flows_in() {
        for limit in [
            "30/min",
            "30/min burst 2",
            "2/min",
            "leaky 30/min capacity 30",
            "leaky 30/min capacity 1",
            "leaky 30/min queue 1",
            "30 per 1min fixed-window",
            "2 per 1min fixed-window",
            "30 per 1min sliding-window",
            "2 per 1min sliding-window",
            "30 per 1min sliding-log",
            "1 per 1min sliding-log",
            "30 every 1min cap 60",
            "1 every 1min",
            "30/min wait 1s",
            "30/min warmup 10s",
        ] {
            let node = Node::new(limit);
            assert_eq!((node.starts("a", 1), node.starts("b", 1)), (1, 1), "{limit}");
            node.clock.advance(Duration::from_secs(3));
            assert_eq!(node.starts("a", 1), 0, "{limit}: a share is 10 a minute at most");
            // A key that is new later has had its share meanwhile, not more.
            node.clock.advance(Duration::from_secs(3));
            assert!((1..=2).contains(&node.starts("c", 1)), "{limit}");
        }
    }

    #[test]
    fn a_request_of_several_units_starts_once() {
        let node = Node::new("90/min");
        assert_eq!(node.starts("a", 10), 1);
        assert_eq!(node.starts("a", 1), 0, "nothing is left beside it");
        assert_eq!((node.starts("b", 1), node.starts("b", 10)), (1, 0));
        assert_eq!(node.starts("c", 31), 0, "more than the share holds");
    }

    #[test]
    fn fewer_slots_than_nodes_are_nobodys() {
        let decide = |limit: &str| {
            let node = Node::new(limit);
            node.fallback.check(by(&node.limit), Some(3), SINCE, b"a", 1, 7)
        };
        assert!(matches!(decide("3 concurrent"), FallbackCheck::InMemory(_)));
        let FallbackCheck::Denied(decision) = decide("2 concurrent") else {
            panic!("two slots on three nodes")
        };
        assert_eq!(decision.outcome, DecisionOutcome::Deny(DenialReason::Unavailable { retry_us: 7 }));
    }

    #[test]
    fn a_flood_of_keys_while_redis_is_away_stays_under_the_cap() {
        let clock = StoreClock::Other(Arc::new(ManualClock::at(Timestamp::from_micros(1_000_000))));
        let limit: Limit = "1000/day".parse().unwrap();
        let fallback = GateFallback::new(1, "flooded", Fallback::Local, clock);
        let mut gate = None;
        for key in 0u32..400_000 {
            let since = Timestamp::from_micros(999_000);
            match fallback.check(by(&limit), Some(1), since, &key.to_le_bytes(), 1, 0) {
                FallbackCheck::InMemory(share) => gate = Some(share.gate),
                FallbackCheck::Denied(decision) => panic!("{decision:?}"),
            }
        }
        let gate = gate.unwrap();
        let tables = &in_memory(&gate).tables;
        let keys = tables.shards.len();
        assert!(keys <= tables.shards.max_entries(), "{keys} keys");
    }
}

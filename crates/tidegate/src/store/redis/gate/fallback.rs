//! What a gate does while Redis does not answer.

use super::RedisGate;
use super::per_node_share::per_node_share;
use crate::Limit;
use crate::algorithm::{Gauge, MILLIONTHS, Mode};
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionOutcome, DenialReason};
use crate::gate::Gate;
use crate::limiter::Overflow;
use crate::store::Backend;
use crate::store::memory::{HashedCheck, MemoryGate, Pages, Tables, Write, look, tracked_hash, with_state};
use crate::store::redis::config::Fallback;
use crate::store::redis::request::GateKey;
use crate::store::redis::script::replay::FoundState;
use crate::store::redis::stats::count;
use std::sync::Arc;
use std::time::Duration;

/// Keys that a gate holds in memory.
const MAX_KEYS: usize = 100_000;
/// When Redis is tried again where no server can say.
const RETRY: Duration = Duration::from_millis(100);

/// One key of a node's share of a limit, which is counted in memory.
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

impl GateKey {
    /// The share that decides a check without Redis, or the denial where there is none.
    pub(crate) fn fallback_check(&self, cost: u64) -> Result<NodeShareKey, Decision> {
        let (gate, client) = (&self.gate, self.gate.client());
        count(&client.counters.degraded, 1);
        let nodes = client.nodes();
        let share_of = |limit: &Limit| match &gate.fallback {
            Fallback::Deny => None,
            Fallback::Allow { cap } => Some(cap.clone()),
            Fallback::Local => nodes.and_then(|nodes| per_node_share(limit, nodes)),
        };
        let in_force = if self.version.is_of_check() { gate.version() } else { self.version.clone() };
        let (Some(share), Some(own)) = (share_of(&in_force.limit), share_of(&self.version.limit)) else {
            count(&client.counters.degraded_denied, 1);
            return Err(self.unavailable());
        };
        let is_share = gate.fallback == Fallback::Local;
        let share_gate = gate.share_in_memory(&share);
        let limit = (own != share).then(|| Box::new(own));
        let bytes: &[u8] = if is_share { &self.bytes } else { b"" };
        let hash = in_memory(&share_gate).hash(bytes);
        let mut key = NodeShareKey { gate: share_gate, hash, limit };
        // Looked for before anything is written: what starts nearly used up takes room, too.
        key.hash = tracked_hash(key.check(cost).1).unwrap_or(hash);
        if is_share && cost > 0 {
            leave_one_request(key.check(cost).1, gate.unanswered_since(self.server().as_deref()));
        }
        Ok(key)
    }

    /// A decision in memory as the caller's: a cap is nobody's limit, and what is too much for a
    /// share may fit once Redis answers.
    pub(crate) fn fallback_decision(&self, decision: Decision, cost: u64, mode: Mode) -> Decision {
        if !decision.is_allowed() {
            count(&self.gate.client().counters.degraded_denied, 1);
        }
        match (&self.gate.fallback, decision.outcome) {
            (Fallback::Allow { .. }, DecisionOutcome::Deny(_)) => self.unavailable(),
            (Fallback::Local, never @ DecisionOutcome::Deny(DenialReason::Never))
                if FoundState::unused(&self.version).decide(0, cost, mode).outcome != never =>
            {
                self.unavailable()
            }
            _ => {
                let (remaining, reset_us) = (decision.remaining(), decision.gauge.reset_us());
                Decision { gauge: Gauge::Degraded { remaining, reset_us }, ..decision }
            }
        }
    }

    fn unavailable(&self) -> Decision {
        let retry = self.server().map_or(RETRY, |server| server.retry(self.gate.client()));
        Decision::unavailable(&self.version.limit, retry)
    }
}

impl RedisGate {
    fn share_in_memory(&self, share: &Limit) -> Gate {
        let gate = self.share.get_or_init(|| {
            let clock = &self.client().clock;
            let tables = Arc::new(Tables::new(clock.clone(), MAX_KEYS, Pages::AsTouched));
            let backend = Backend::Memory(MemoryGate::new(self.id, share.clone(), tables, Overflow::Share));
            Gate::new(&self.name, share.clone(), clock.clone(), backend)
        });
        // Another limit, or another number of nodes: what was used goes along.
        if gate.limit() != *share {
            gate.put_in_force(share.clone());
        }
        gate.clone()
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]
mod tests {
    use super::*;
    use crate::clock::{ManualClock, StoreClock};
    use crate::store::memory::decide;
    use crate::store::redis::config::{Redis, RedisGateOptions};
    use crate::store::redis::store::RedisStore;

    const SINCE: Timestamp = Timestamp::from_micros(1_000_000);

    /// A gate on one of some nodes, which Redis answered a moment ago.
    struct Node {
        clock: ManualClock,
        gate: Arc<RedisGate>,
    }

    impl Node {
        fn new(limit: &str, nodes: u32) -> Self {
            let clock = ManualClock::at(SINCE);
            let redis = Redis::at("redis://127.0.0.1:1").unwrap().nodes(nodes);
            let store = Arc::new(RedisStore::new(redis, Some(StoreClock::Other(Arc::new(clock.clone())))));
            let options = RedisGateOptions::default();
            Self { clock, gate: Arc::new(RedisGate::new(1, "g", limit.parse().unwrap(), store, &options)) }
        }

        /// How many of ten requests are let through.
        fn starts(&self, key: &str, cost: u64) -> usize {
            let is_allowed = || match self.gate.key(key.as_bytes()).fallback_check(cost) {
                Ok(share) => decide(&[share.check(cost)], Mode::Check).decisions[0].is_allowed(),
                Err(_) => false,
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
            let node = Node::new(limit, 3);
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
        let node = Node::new("90/min", 3);
        assert_eq!(node.starts("a", 10), 1);
        assert_eq!(node.starts("a", 1), 0, "nothing is left beside it");
        assert_eq!((node.starts("b", 1), node.starts("b", 10)), (1, 0));
        assert_eq!(node.starts("c", 31), 0, "more than the share holds");
    }

    #[test]
    fn fewer_slots_than_nodes_are_nobodys() {
        let decide = |limit: &str| Node::new(limit, 3).gate.key(b"a").fallback_check(1);
        assert!(decide("3 concurrent").is_ok());
        let Err(decision) = decide("2 concurrent") else { panic!("two slots on three nodes") };
        let DecisionOutcome::Deny(DenialReason::Unavailable { retry_us }) = decision.outcome else {
            panic!("{decision:?}")
        };
        assert!((1_000..=1_500_000).contains(&retry_us), "when the server is tried again: {retry_us}");
    }

    #[test]
    fn a_flood_of_keys_while_redis_is_away_stays_under_the_cap() {
        let node = Node::new("1000/day", 1);
        let mut gate = None;
        for key in 0u32..400_000 {
            match node.gate.key(&key.to_le_bytes()).fallback_check(1) {
                Ok(share) => gate = Some(share.gate),
                Err(decision) => panic!("{decision:?}"),
            }
        }
        let gate = gate.unwrap();
        let tables = &in_memory(&gate).tables;
        let keys = tables.shards.len();
        assert!(keys <= tables.shards.max_entries(), "{keys} keys");
    }
}

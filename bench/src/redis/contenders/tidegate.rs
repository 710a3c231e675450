//! Ours. It has a thread of its own for the connection; the callers are on the client's, as they
//! are for everybody.

use super::{Contender, Decision, Layers, Target};
use crate::Fallible;
use std::time::Duration;
use tidegate::{Gate, GateOptions, Limiter, Redis};

/// As long as redis-rs waits for the peers' replies.
const DEADLINE: Duration = Duration::from_millis(500);
const LEASE: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub struct Remote {
    limiter: Limiter,
    gate: Gate,
}

impl Remote {
    pub fn new(target: &Target, layers: Layers) -> Fallible<Self> {
        let options = match layers {
            Layers::Exact => GateOptions::new(),
            Layers::NoDenialMemory => GateOptions::new().remember_denials(false),
            Layers::NoCoalescing => GateOptions::new().coalesce(false),
            Layers::Neither => GateOptions::new().remember_denials(false).coalesce(false),
            Layers::Leases => GateOptions::new().lease(LEASE),
        };
        let redis = Redis::at(&target.url())?.deadline(DEADLINE);
        let limiter = Limiter::builder().redis(redis).build();
        let gate = limiter.gate_with("bench", target.allowance.text().as_str(), options)?;
        Ok(Self { limiter, gate })
    }
}

impl Contender for Remote {
    async fn check(&self, key: &str) -> Decision {
        let decision = self.gate.check_async(key).await;
        match (decision.is_degraded(), decision.is_allowed()) {
            (true, _) => Decision::Failed,
            (false, true) => Decision::Allowed,
            (false, false) => Decision::Denied,
        }
    }

    fn defects(&self) -> u64 {
        self.limiter.redis_stats().map_or(0, |stats| stats.disagreements)
    }
}

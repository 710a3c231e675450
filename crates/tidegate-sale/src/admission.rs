//! Who is let in: a bucket by goods, with limits by user and by address beside it.
//!
//! All of them are charged, or none. Whoever has to wait for their start waits here, and
//! only so many at a time.

use crate::engine::{Engine, Known};
use crate::goods::{GoodsId, UserId};
use crate::refusal::Refusal;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tidegate::{Check, Client, Denial, Gate, GateError, Limit, Limiter, Verdict};
use tokio::sync::Semaphore;

/// What somebody is told to wait where nobody knows how long it takes.
const RETRY_UNKNOWN: Duration = Duration::from_secs(1);

pub(crate) struct Admission {
    limiter: Limiter,
    by_user: Option<Gate>,
    by_ip: Option<Gate>,
    spares_loopback: bool,
    /// A gate for each sale, with its rate. Its name is the goods' id.
    by_goods: RwLock<HashMap<GoodsId, Gate>>,
    waiters: Semaphore,
    waiters_max: usize,
}

/// What admission is made of, beside the sales' own rates.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) user: Option<Limit>,
    pub(crate) ip: Option<Limit>,
    pub(crate) spares_loopback: bool,
    pub(crate) waiters: usize,
}

impl Admission {
    pub(crate) fn new(limiter: Limiter, limits: Limits) -> Result<Self, GateError> {
        // No goods have these names: an id has no colon.
        let gate = |name, limit: Option<Limit>| limit.map(|limit| limiter.gate(name, limit)).transpose();
        let waiters_max = limits.waiters.min(Semaphore::MAX_PERMITS);
        Ok(Self {
            by_user: gate("sale:user", limits.user)?,
            by_ip: gate("sale:ip", limits.ip)?,
            spares_loopback: limits.spares_loopback,
            by_goods: RwLock::default(),
            waiters: Semaphore::new(waiters_max),
            waiters_max,
            limiter,
        })
    }

    /// Buyers that wait for their start.
    pub(crate) fn waiting(&self) -> usize {
        self.waiters_max - self.waiters.available_permits()
    }

    /// Waits for the start, at most as long as the sale's rate says. A buyer who leaves
    /// meanwhile gives back what was reserved, if nobody reserved after them.
    pub(crate) async fn admit(
        &self,
        engine: &dyn Engine,
        known: &Known,
        user: &UserId,
        ip: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        let gate = self.gate_of(engine, known)?;
        let ip = ip.filter(|ip| !(self.spares_loopback && ip.is_loopback()));
        let client = ip.map(|ip| Client::new(ip).to_string());
        // Narrow ones first, shared ones last: in a Cluster an earlier charge may stand for a
        // moment after a later denial, and only its own user should feel that.
        let mut checks = Vec::with_capacity(3);
        checks.extend(self.by_user.as_ref().map(|gate| Check::new(gate, user.as_str())));
        checks.extend(self.by_ip.as_ref().zip(client.as_deref()).map(|(gate, ip)| Check::new(gate, ip)));
        checks.push(Check::new(&gate, known.sale.goods.as_str()));
        let verdict = match self.waiters.try_acquire() {
            Ok(_waiter) => self.limiter.acquire(&checks).await,
            // As many wait as may: whoever would have to is refused, and spends nothing.
            Err(_) => self.limiter.check_async(&checks).await,
        };
        refusal(&verdict).map_or(Ok(()), Err)
    }

    /// The gate of a sale, with the rate that is in force now.
    fn gate_of(&self, engine: &dyn Engine, known: &Known) -> Result<Gate, Refusal> {
        let goods = &known.sale.goods;
        if let Some(gate) = self.by_goods.read().unwrap_or_else(PoisonError::into_inner).get(goods)
            && gate.limit() == known.sale.rate
        {
            return Ok(gate.clone());
        }
        let mut by_goods = self.by_goods.write().unwrap_or_else(PoisonError::into_inner);
        // Asked again under the lock: who read an older rate must not bring it back.
        let known: Arc<Known> = engine.known(goods).ok_or(Refusal::UnknownGoods)?;
        let rate = known.sale.rate.clone();
        let gate = match by_goods.get(goods) {
            Some(gate) => gate.change(rate).map(|()| gate.clone()),
            None => self.limiter.gate(goods.as_str(), rate),
        };
        let gate = gate.map_err(|error| {
            tracing::error!(target: "tidegate::sale", %goods, %error, "the rate cannot be put in force");
            Refusal::Busy
        })?;
        by_goods.insert(goods.clone(), gate.clone());
        Ok(gate)
    }
}

fn refusal(verdict: &Verdict) -> Option<Refusal> {
    if verdict.is_allowed() {
        return None;
    }
    Some(match verdict.decision().denial() {
        // A fault of the service, not of the buyer.
        Some(Denial::Unavailable(_)) => Refusal::Busy,
        _ => Refusal::Limited { retry_after: verdict.retry_after().unwrap_or(RETRY_UNKNOWN) },
    })
}

//! Who is let in: a bucket by goods, with limits by user and by address beside it.
//!
//! All of them are charged, or none. Whoever has to wait for their start waits here, and
//! only so many at a time.

use crate::engine::{Engine, Known};
use crate::goods::{GoodsId, UserId};
use crate::line::{self, Line};
use crate::refusal::Refusal;
use crate::time::now_ms;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tidegate::{Check, Client, Denial, Gate, GateError, Limit, Limiter, Permit};
use tokio::sync::Semaphore;

/// What somebody is told to wait where nobody knows how long it takes.
pub(crate) const RETRY_UNKNOWN: Duration = Duration::from_secs(1);

pub(crate) struct Admission {
    limiter: Limiter,
    by_user: Option<Gate>,
    by_ip: Option<Gate>,
    spares_loopback: bool,
    by_goods: RwLock<HashMap<GoodsId, Door>>,
    waiters: Semaphore,
    waiters_max: usize,
    /// In memory, whatever the others are counted in: it only says when to come back.
    lines: Limiter,
}

/// The way into one sale.
#[derive(Clone)]
struct Door {
    /// With the sale's rate. Its name is the goods' id.
    gate: Gate,
    line: Arc<Line>,
    /// Who has joined the line lately, by user.
    joined: Gate,
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
            lines: Limiter::new(),
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
    ) -> Result<Permit, Refusal> {
        let door = self.door_of(engine, known)?;
        let ip = ip.filter(|ip| !(self.spares_loopback && ip.is_loopback()));
        let client = ip.map(|ip| Client::new(ip).to_string());
        // Narrow ones first, shared ones last: in a Cluster an earlier charge may stand for a
        // moment after a later denial, and only its own user should feel that.
        let mut checks = Vec::with_capacity(3);
        checks.extend(self.by_user.as_ref().map(|gate| Check::new(gate, user.as_str())));
        checks.extend(self.by_ip.as_ref().zip(client.as_deref()).map(|(gate, ip)| Check::new(gate, ip)));
        checks.push(Check::new(&door.gate, known.sale.goods.as_str()));
        let verdict = match self.waiters.try_acquire() {
            Ok(_waiter) => self.limiter.acquire(&checks).await,
            // As many wait as may: whoever would have to is refused, and spends nothing.
            Err(_) => self.limiter.check_async(&checks).await,
        };
        if let Some(Denial::Unavailable(_)) = verdict.decision().denial() {
            // A fault of the service, not of the buyer.
            return Err(Refusal::Busy);
        }
        if verdict.is_allowed() {
            return verdict.into_permit().map_err(|_| Refusal::Busy);
        }
        let own = verdict.retry_after().unwrap_or(RETRY_UNKNOWN);
        // The line is for those whom the crowd keeps out, not their own haste.
        let (shared, narrow) = verdict.decisions().split_last().unzip();
        let is_for_the_crowd = shared.is_some_and(|decision| !decision.is_allowed())
            && narrow.is_some_and(|narrow| narrow.iter().all(|own| own.is_allowed() || !own.is_checked()));
        if !is_for_the_crowd {
            return Err(Refusal::Limited { retry_after: own, ahead: None });
        }
        // Each stands in it once, however often they ask: nobody makes it longer for all.
        let units = u64::from(door.joined.check(user.as_str()).is_allowed());
        let turn = door.line.join(now_ms(), &known.sale.rate, units);
        Err(Refusal::Limited { retry_after: own.max(turn.after), ahead: Some(turn.ahead) })
    }

    /// The way into a sale, with the rate that is in force now.
    fn door_of(&self, engine: &dyn Engine, known: &Known) -> Result<Door, Refusal> {
        let goods = &known.sale.goods;
        if let Some(door) = self.by_goods.read().unwrap_or_else(PoisonError::into_inner).get(goods)
            && door.gate.limit() == known.sale.rate
        {
            return Ok(door.clone());
        }
        let mut by_goods = self.by_goods.write().unwrap_or_else(PoisonError::into_inner);
        // Asked again under the lock: who read an older rate must not bring it back.
        let known: Arc<Known> = engine.known(goods).ok_or(Refusal::UnknownGoods)?;
        let rate = known.sale.rate.clone();
        let door = match by_goods.get(goods) {
            Some(door) => door.gate.change(rate).map(|()| door.clone()),
            None => self.new_door(goods, rate),
        };
        let door = door.map_err(|error| {
            tracing::error!(target: "tidegate::sale", %goods, %error, "the rate cannot be put in force");
            Refusal::Busy
        })?;
        by_goods.insert(goods.clone(), door.clone());
        Ok(door)
    }

    fn new_door(&self, goods: &GoodsId, rate: Limit) -> Result<Door, GateError> {
        Ok(Door {
            gate: self.limiter.gate(goods.as_str(), rate)?,
            joined: self.lines.gate(goods.as_str(), line::EACH)?,
            line: Arc::default(),
        })
    }
}

//! How often somebody may ask for anything but a path: orders, what operators see and do, and
//! signing in with a token that is none.
//!
//! The limits are those of admission, by user and by address, each counted by itself. They are
//! counted in memory, by each process: an order can be looked at while Redis is away.

use crate::admission::{Limits, RETRY_UNKNOWN};
use crate::goods::UserId;
use crate::refusal::Refusal;
use std::net::IpAddr;
use std::time::Duration;
use tidegate::{Check, Client, Gate, GateError, Limiter};

pub(crate) struct RequestLimits {
    limiter: Limiter,
    orders_by_user: Option<Gate>,
    orders_by_ip: Option<Gate>,
    operators_by_ip: Option<Gate>,
    /// Buyers and operators apart: an office whose pages have old tokens does not lock its
    /// operators out. Only attempts that failed are counted.
    buyers_failed_by_ip: Option<Gate>,
    operators_failed_by_ip: Option<Gate>,
    spares_loopback: bool,
}

/// Who signs in.
#[derive(Clone, Copy)]
pub(crate) enum SignIn {
    Buyer,
    Operator,
}

impl RequestLimits {
    pub(crate) fn new(limits: &Limits) -> Result<Self, GateError> {
        let limiter = Limiter::new();
        let by_ip = |name| limits.ip.clone().map(|limit| limiter.gate(name, limit)).transpose();
        let by_user = limits.user.clone().map(|limit| limiter.gate("orders:user", limit));
        Ok(Self {
            orders_by_user: by_user.transpose()?,
            orders_by_ip: by_ip("orders:ip")?,
            operators_by_ip: by_ip("operators:ip")?,
            buyers_failed_by_ip: by_ip("buyers-failed:ip")?,
            operators_failed_by_ip: by_ip("operators-failed:ip")?,
            spares_loopback: limits.spares_loopback,
            limiter,
        })
    }

    /// A buyer asks for an order of theirs.
    pub(crate) fn order(&self, user: &UserId, ip: Option<IpAddr>) -> Result<(), Refusal> {
        let client = self.client(ip);
        let mut checks = Vec::with_capacity(2);
        checks.extend(self.orders_by_user.as_ref().map(|gate| Check::new(gate, user.as_str())));
        let by_ip = self.orders_by_ip.as_ref().zip(client.as_deref());
        checks.extend(by_ip.map(|(gate, client)| Check::new(gate, client)));
        let verdict = self.limiter.check(&checks);
        if verdict.is_allowed() { Ok(()) } else { Err(limited(verdict.retry_after())) }
    }

    /// An operator, whose token was right, asks for something.
    pub(crate) fn operator(&self, ip: Option<IpAddr>) -> Result<(), Refusal> {
        let (Some(gate), Some(client)) = (&self.operators_by_ip, self.client(ip)) else { return Ok(()) };
        let decision = gate.check(&client);
        if decision.is_allowed() { Ok(()) } else { Err(limited(decision.retry_after())) }
    }

    /// Somebody's token is about to be looked at. Refused before that, or guesses would go on.
    pub(crate) fn may_sign_in(&self, who: SignIn, ip: Option<IpAddr>) -> Result<(), Refusal> {
        let (Some(gate), Some(client)) = (self.failed(who), self.client(ip)) else { return Ok(()) };
        let decision = gate.peek(&client);
        if decision.is_allowed() { Ok(()) } else { Err(limited(decision.retry_after())) }
    }

    /// The token was none.
    pub(crate) fn sign_in_failed(&self, who: SignIn, ip: Option<IpAddr>) {
        if let (Some(gate), Some(client)) = (self.failed(who), self.client(ip)) {
            let _ = gate.check(&client);
        }
    }

    fn failed(&self, who: SignIn) -> Option<&Gate> {
        match who {
            SignIn::Buyer => self.buyers_failed_by_ip.as_ref(),
            SignIn::Operator => self.operators_failed_by_ip.as_ref(),
        }
    }

    /// Whose allowance it is, if anybody's.
    fn client(&self, ip: Option<IpAddr>) -> Option<String> {
        let ip = ip.filter(|ip| !(self.spares_loopback && ip.is_loopback()))?;
        Some(Client::new(ip).to_string())
    }
}

fn limited(retry_after: Option<Duration>) -> Refusal {
    Refusal::Limited { retry_after: retry_after.unwrap_or(RETRY_UNKNOWN), ahead: None }
}

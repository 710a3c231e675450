//! Several limits on one request: by user, by tenant, and for everybody.
//!
//! Ours decides them together and charges all or none. Users of governor and throttlecrab check one
//! limit after the other: where a later one denies, the earlier ones stay charged. limitador finds
//! the limits of a request itself, checks all of them and then charges all, not in one step.

use super::{Allowance, Keyed, governor, throttlecrab};
use crate::Fallible;
use crate::inproc::keys::Key;
use ::limitador::RateLimiter;
use ::limitador::limit::{Context, Limit, Namespace};
use std::collections::HashMap;
use tidegate::{Check, Gate, Limiter};

/// Keys that a table has room for.
const ROOM: u32 = 2_000;
const EVERYBODY: &str = "everybody";

/// The limits of a request, from the first to the last.
#[derive(Clone, Copy)]
pub struct Limits {
    pub by_user: Allowance,
    /// Only where there are three.
    pub by_tenant: Option<Allowance>,
    pub of_all: Allowance,
}

/// One of a hundred tenants, of which a user is always the same one's.
fn tenant(user: &Key) -> &str {
    let text = user.as_str();
    &text[text.len() - 2..]
}

pub struct Tidegate {
    limiter: Limiter,
    by_user: Gate,
    by_tenant: Option<Gate>,
    of_all: Gate,
}

impl Tidegate {
    pub fn new(limits: Limits) -> Fallible<Self> {
        let limiter = Limiter::new();
        let gate = |name: &str, allowance: Allowance| limiter.gate(name, allowance.text);
        let by_tenant = limits.by_tenant.map(|allowance| gate("by-tenant", allowance)).transpose()?;
        let (by_user, of_all) = (gate("by-user", limits.by_user)?, gate("of-all", limits.of_all)?);
        Ok(Self { limiter, by_user, by_tenant, of_all })
    }
}

impl Keyed for Tidegate {
    fn check(&self, user: &Key) -> bool {
        let (by_user, of_all) = (Check::new(&self.by_user, user), Check::new(&self.of_all, EVERYBODY));
        let verdict = match &self.by_tenant {
            Some(gate) => self.limiter.check(&[by_user, Check::new(gate, tenant(user)), of_all]),
            None => self.limiter.check(&[by_user, of_all]),
        };
        verdict.is_allowed()
    }
}

pub struct Governor {
    by_user: governor::ByKey,
    by_tenant: Option<governor::ByText>,
    of_all: governor::Direct,
}

impl Governor {
    pub fn new(limits: Limits) -> Fallible<Self> {
        Ok(Self {
            by_user: governor::ByKey::new(limits.by_user)?,
            by_tenant: limits.by_tenant.map(governor::ByText::new).transpose()?,
            of_all: governor::Direct::new(limits.of_all)?,
        })
    }
}

impl Keyed for Governor {
    fn check(&self, user: &Key) -> bool {
        use super::Hot as _;
        self.by_user.check(user)
            && self.by_tenant.as_ref().is_none_or(|limiter| limiter.check(tenant(user)))
            && self.of_all.check()
    }
}

pub struct Throttlecrab {
    by_user: throttlecrab::ByKey,
    by_tenant: Option<throttlecrab::ByKey>,
    of_all: throttlecrab::ByKey,
}

impl Throttlecrab {
    pub fn new(limits: Limits) -> Self {
        let limiter = |allowance| throttlecrab::ByKey::new(allowance, ROOM);
        Self {
            by_user: limiter(limits.by_user),
            by_tenant: limits.by_tenant.map(limiter),
            of_all: limiter(limits.of_all),
        }
    }
}

impl Keyed for Throttlecrab {
    fn check(&self, user: &Key) -> bool {
        self.by_user.check(user)
            && self.by_tenant.as_ref().is_none_or(|limiter| limiter.check_text(tenant(user)))
            && self.of_all.check_text(EVERYBODY)
    }

    fn check_alone(&mut self, user: &Key) -> bool {
        self.by_user.check_alone(user)
            && self.by_tenant.as_mut().is_none_or(|limiter| limiter.check_text_alone(tenant(user)))
            && self.of_all.check_text_alone(EVERYBODY)
    }
}

pub struct Limitador {
    limiter: RateLimiter,
    namespace: Namespace,
}

impl Limitador {
    pub fn new(limits: Limits) -> Fallible<Self> {
        let limiter = RateLimiter::new(u64::from(ROOM));
        let add = |allowance: Allowance, variable: Option<&str>| {
            let variable = variable.map(TryInto::try_into).transpose();
            let variable = variable.map_err(|_| "limitador does not take the variable")?;
            let (amount, period_s) = (u64::from(allowance.burst), allowance.period.as_secs());
            limiter.add_limit(Limit::new("bench", amount, period_s, [], variable));
            Ok::<_, Box<dyn std::error::Error>>(())
        };
        add(limits.by_user, Some("user"))?;
        if let Some(by_tenant) = limits.by_tenant {
            add(by_tenant, Some("tenant"))?;
        }
        add(limits.of_all, None)?;
        Ok(Self { limiter, namespace: "bench".into() })
    }
}

impl Keyed for Limitador {
    fn check(&self, user: &Key) -> bool {
        let values = HashMap::from([
            ("user".to_owned(), user.as_string().clone()),
            ("tenant".to_owned(), tenant(user).to_owned()),
        ]);
        self.limiter
            .check_rate_limited_and_update(&self.namespace, &Context::from(values), 1)
            .is_ok_and(|result| !result.limited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_charges_nothing_where_the_last_limit_denies_and_checks_in_turn_do() {
        let limits = Limits { by_user: Allowance::TINY, by_tenant: None, of_all: Allowance::TINY };
        let (one, other) = (Key::numbered(1), Key::numbered(2));
        let ours = Tidegate::new(limits).unwrap();
        assert!(ours.check(&one) && ours.check(&one) && !ours.check(&other));
        assert_eq!(ours.by_user.peek(&other).remaining(), 2);

        let governor = Governor::new(limits).unwrap();
        assert!(governor.check(&one) && governor.check(&one) && !governor.check(&other));
        assert!(governor.by_user.check(&other));
        assert!(!governor.by_user.check(&other), "two units were charged, for one denied request and this");
    }
}

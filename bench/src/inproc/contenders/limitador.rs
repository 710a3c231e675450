//! limitador with its memory store, through the call that its manual recommends. It knows fixed
//! windows only, so a limit becomes `burst` in each `period`; and it evaluates an expression to
//! find the key in the request, which is part of what its users pay.

use super::{Allowance, Keyed, Learning};
use crate::Fallible;
use crate::inproc::keys::Key;
use limitador::RateLimiter;
use limitador::limit::{Context, Limit, Namespace};
use std::collections::HashMap;

pub const NAME: &str = "limitador";

pub struct ByKey {
    limiter: RateLimiter,
    namespace: Namespace,
}

impl ByKey {
    pub fn new(allowance: Allowance, keys: u32) -> Fallible<Self> {
        // Twice the keys: its cache evicts when full, and an evicted key is one that it forgets.
        let limiter = RateLimiter::new(u64::from(keys) * 2);
        let variable = "user".try_into().map_err(|_| "limitador takes no variable named user")?;
        limiter.add_limit(Limit::new(
            "bench",
            u64::from(allowance.burst),
            allowance.period.as_secs(),
            [],
            [variable],
        ));
        Ok(Self { limiter, namespace: "bench".into() })
    }

    fn take(&self, key: &Key, units: u32) -> bool {
        let values = HashMap::from([("user".to_owned(), key.as_string().clone())]);
        let context = Context::from(values);
        self.limiter
            .check_rate_limited_and_update(&self.namespace, &context, u64::from(units))
            .is_ok_and(|result| !result.limited)
    }
}

impl Keyed for ByKey {
    fn check(&self, key: &Key) -> bool {
        self.take(key, 1)
    }
}

impl Learning for ByKey {
    fn learn(&mut self, key: &Key, units: u32) -> bool {
        self.take(key, units)
    }
}

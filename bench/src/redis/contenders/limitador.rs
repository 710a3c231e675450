//! limitador with its Redis stores. It knows fixed windows only (so many units in each period,
//! beginning with a key's first request), and evaluates an expression to find the key in a
//! request. Its plain store reads the counter in one script and adds to it in another, and says in
//! its source that the limit may be exceeded in between; its cached store, with its defaults,
//! counts locally and reports to Redis once a second.

use super::{Contender, Decision, Target};
use crate::Fallible;
use limitador::limit::{Context, Limit, Namespace};
use limitador::storage::redis::{AsyncRedisStorage, CachedRedisStorageBuilder};
use limitador::storage::{AsyncCounterStorage, AsyncStorage};
use limitador::{AsyncRateLimiter, AsyncRateLimiterBuilder};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone)]
pub struct Limitador(Arc<Inner>);

struct Inner {
    limiter: AsyncRateLimiter,
    namespace: Namespace,
}

impl Limitador {
    pub async fn plain(target: &Target) -> Fallible<Self> {
        Self::on(target, Box::new(AsyncRedisStorage::new(&target.url()).await?))
    }

    pub async fn cached(target: &Target) -> Fallible<Self> {
        Self::on(target, Box::new(CachedRedisStorageBuilder::new(&target.url()).build().await?))
    }

    fn on(target: &Target, storage: Box<dyn AsyncCounterStorage>) -> Fallible<Self> {
        let storage = AsyncStorage::with_counter_storage(storage);
        let limiter = AsyncRateLimiterBuilder::new(storage).build();
        let variable = "user".try_into().map_err(|_| "limitador takes no variable named user")?;
        let allowance = target.allowance;
        limiter.add_limit(Limit::new("bench", allowance.units, allowance.period_s, [], [variable]));
        Ok(Self(Arc::new(Inner { limiter, namespace: "bench".into() })))
    }
}

impl Contender for Limitador {
    async fn check(&self, key: &str) -> Decision {
        let context = Context::from(HashMap::from([("user".to_owned(), key.to_owned())]));
        match self.0.limiter.check_rate_limited_and_update(&self.0.namespace, &context, 1).await {
            Ok(result) if result.limited => Decision::Denied,
            Ok(_) => Decision::Allowed,
            Err(_) => Decision::Failed,
        }
    }
}

//! What a server says about itself, looked at regularly while it is used: whether it still
//! is the master, whether its replicas are still linked, and whether it may evict limits.

use crate::store::redis::config::Deployment;
use crate::store::redis::server::RedisServer;
use crate::store::redis::stats::count;
use crate::store::redis::store::RedisClient;
use futures_util::future::{Either, select};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value, from_redis_value_ref};
use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How often a master that sentinels have named is asked for its role.
const ROLE_PERIOD: Duration = Duration::from_millis(500);
/// How often a server is asked for its eviction policy.
const POLICY_PERIOD: Duration = Duration::from_secs(5);
/// How long the sentinels are asked often after a replica was lost, and how often.
const SUSPICIOUS: u32 = 20;
const OFTEN: Duration = Duration::from_millis(100);

/// How many replicas are linked to a master; none of a replica.
pub(crate) async fn replicas(connection: &mut MultiplexedConnection) -> RedisResult<Option<usize>> {
    let answer: Vec<Value> = redis::cmd("ROLE").query_async(connection).await?;
    let role = answer.first().and_then(|role| from_redis_value_ref::<String>(role).ok());
    let replicas = if let Some(Value::Array(replicas)) = answer.get(2) { replicas.len() } else { 0 };
    Ok((role.as_deref() == Some("master")).then_some(replicas))
}

/// Watches a server that is used. Returns why it must not be used any longer.
pub(crate) async fn watch(
    client: &RedisClient,
    server: &RedisServer,
    connection: MultiplexedConnection,
) -> &'static str {
    let looking = pin!(look_for_eviction(server, connection.clone()));
    let leaving = pin!(until_replaced(client, server, connection));
    match select(leaving, looking).await {
        Either::Left((why, _)) => why,
        Either::Right(((), leaving)) => leaving.await,
    }
}

/// Only sentinels can name another master.
async fn until_replaced(
    client: &RedisClient,
    server: &RedisServer,
    connection: MultiplexedConnection,
) -> &'static str {
    let Deployment::Sentinel { login, .. } = &client.config.deployment else {
        return std::future::pending().await;
    };
    let address = server.address();
    let replaced = pin!(client.sentinels.replaced(client, login, &address));
    let demoted = pin!(until_demoted(client, connection));
    match select(replaced, demoted).await {
        Either::Left(_) => {
            count(&client.counters.switches, 1);
            tracing::info!(server = address, "the sentinels name another master: following them");
            "the sentinels name another master"
        }
        Either::Right(_) => "it is no longer a master",
    }
}

/// A planned fail-over begins with a replica that leaves its master: from then on the
/// sentinels are asked more often for a while.
async fn until_demoted(client: &RedisClient, mut connection: MultiplexedConnection) {
    let (mut linked, mut suspicious) = (0, 0);
    loop {
        match timeout(ROLE_PERIOD, replicas(&mut connection)).await {
            Ok(Ok(None)) => return,
            Ok(Ok(Some(replicas))) => {
                if replicas < linked {
                    suspicious = SUSPICIOUS;
                }
                linked = replicas;
            }
            Ok(Err(_)) | Err(_) => {}
        }
        if suspicious > 0 {
            suspicious -= 1;
            client.sentinels.ask();
        }
        sleep(if suspicious > 0 { OFTEN } else { ROLE_PERIOD }).await;
    }
}

/// Keys that are thrown out before their time are limits that start anew.
async fn look_for_eviction(server: &RedisServer, mut connection: MultiplexedConnection) {
    loop {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg("maxmemory*");
        // Not everybody may ask; then nobody is warned.
        let Ok(settings) = command.query_async::<HashMap<String, String>>(&mut connection).await else {
            return;
        };
        let is_bounded = settings.get("maxmemory").is_some_and(|bytes| bytes != "0");
        let policy = settings.get("maxmemory-policy").map_or("", String::as_str);
        let evicts = is_bounded && policy != "noeviction";
        if server.is_new_policy(if evicts { policy } else { "" }) && evicts {
            tracing::warn!(
                server = server.address(),
                policy,
                "Redis may evict limits before their time, and an evicted key starts with a full burst"
            );
        }
        sleep(POLICY_PERIOD).await;
    }
}

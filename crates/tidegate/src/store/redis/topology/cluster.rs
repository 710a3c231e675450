//! The map of hash slots to servers, kept from what a Cluster says: `CLUSTER SLOTS`, asked again
//! when something suggests that it has changed, and redirections.
//!
//! Without a Cluster there is one server, and no map.

use crate::clock::Timestamp;
use crate::store::redis::config::Deployment;
use crate::store::redis::server::connection::{at, connect};
use crate::store::redis::server::{RedisServer, supervise};
use crate::store::redis::store::RedisClient;
use redis::Value;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// The Cluster is asked this often at most, and at least.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_millis(500);
const HASH_SLOTS: usize = 16_384;
/// The index of a hash slot that no server has.
const NOBODY: u16 = u16::MAX;

pub(crate) struct ServerMap {
    /// The one server, where there is no Cluster.
    single: Option<Arc<RedisServer>>,
    cluster: RwLock<ClusterMap>,
    refresh: Notify,
}

struct ClusterMap {
    /// Indexes of `servers`.
    hash_slots: Vec<u16>,
    servers: Vec<Arc<RedisServer>>,
    /// Servers ever known.
    count: usize,
}

impl ServerMap {
    pub(crate) fn new(addresses: Vec<String>, is_cluster: bool, began: Timestamp) -> Self {
        let servers: Vec<Arc<RedisServer>> = addresses
            .into_iter()
            .enumerate()
            .map(|(number, address)| Arc::new(RedisServer::new(address, number, began)))
            .collect();
        Self {
            single: (!is_cluster).then(|| servers[0].clone()),
            cluster: RwLock::new(ClusterMap {
                hash_slots: vec![0; if is_cluster { HASH_SLOTS } else { 0 }],
                count: servers.len(),
                servers,
            }),
            refresh: Notify::new(),
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.single.is_none()
    }

    pub(crate) fn servers(&self) -> Vec<Arc<RedisServer>> {
        self.cluster.read().unwrap_or_else(PoisonError::into_inner).servers.clone()
    }

    fn write(&self) -> RwLockWriteGuard<'_, ClusterMap> {
        self.cluster.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RedisClient {
    /// The server that has this hash slot.
    pub(crate) fn server_of(&self, hash_slot: impl FnOnce() -> u16) -> Option<Arc<RedisServer>> {
        if let Some(single) = &self.map.single {
            return Some(single.clone());
        }
        let map = self.map.cluster.read().unwrap_or_else(PoisonError::into_inner);
        map.servers.get(usize::from(*map.hash_slots.get(usize::from(hash_slot()))?)).cloned()
    }

    /// The server at this address.
    pub(crate) fn server_at(self: &Arc<Self>, address: &str) -> Option<Arc<RedisServer>> {
        // A server that does not know its own name sends an empty one.
        if address.starts_with(':') {
            return None;
        }
        let mut map = self.map.write();
        let at = self.index_of(&mut map, address);
        Some(map.servers[usize::from(at)].clone())
    }

    /// A server says that a hash slot is at this address now.
    pub(crate) fn moved(self: &Arc<Self>, address: &str, hash_slot: u16) -> Option<Arc<RedisServer>> {
        let server = self.server_at(address)?;
        let mut map = self.map.write();
        let at = self.index_of(&mut map, address);
        if let Some(held) = map.hash_slots.get_mut(usize::from(hash_slot)) {
            *held = at;
        }
        Some(server)
    }

    fn index_of(self: &Arc<Self>, map: &mut ClusterMap, address: &str) -> u16 {
        let at = map.servers.iter().position(|server| server.address() == address).unwrap_or_else(|| {
            // It has answered nobody yet: what was admitted elsewhere before counts.
            let server = Arc::new(RedisServer::new(address.to_string(), map.count, self.clock.now()));
            map.count += 1;
            self.handle.spawn(supervise::run(self.clone(), server.clone()));
            map.servers.push(server);
            map.servers.len() - 1
        });
        u16::try_from(at).unwrap_or(NOBODY)
    }

    /// Has the Cluster asked again which server has which hash slot; soon, not now.
    pub(crate) fn refresh_cluster(&self) {
        self.map.refresh.notify_one();
    }

    /// Takes over what `CLUSTER SLOTS` says; false if it makes no sense.
    fn update_map(self: &Arc<Self>, slots: &Value, host: &str) -> bool {
        let Some(owners) = owners(slots, host) else { return false };
        let mut map = self.map.write();
        let mut servers: Vec<Arc<RedisServer>> = Vec::new();
        let mut indexes: HashMap<String, u16> = HashMap::new();
        for (hash_slot, owner) in owners.into_iter().enumerate() {
            let Some(owner) = owner else {
                map.hash_slots[hash_slot] = NOBODY;
                continue;
            };
            let index = *indexes.entry(owner).or_insert_with_key(|owner| {
                let held = self.index_of(&mut map, owner);
                servers.push(map.servers[usize::from(held)].clone());
                u16::try_from(servers.len() - 1).unwrap_or(NOBODY)
            });
            map.hash_slots[hash_slot] = index;
        }
        let before = std::mem::replace(&mut map.servers, servers);
        for server in before.iter().filter(|server| !map.servers.iter().any(|kept| Arc::ptr_eq(server, kept)))
        {
            server.retire();
        }
        true
    }
}

/// The address of the master of each hash slot; none if the answer makes no sense.
fn owners(slots: &Value, host: &str) -> Option<Vec<Option<String>>> {
    let Value::Array(ranges) = slots else { return None };
    let mut owners: Vec<Option<String>> = vec![None; HASH_SLOTS];
    for range in ranges {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = range.as_slice() else {
            return None;
        };
        let [name, Value::Int(port), ..] = master.as_slice() else { return None };
        let name = match name {
            Value::BulkString(name) if !name.is_empty() => String::from_utf8_lossy(name).into_owned(),
            _ => host.to_string(),
        };
        let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
        for owner in owners.iter_mut().take(last + 1).skip(first) {
            *owner = Some(format!("{name}:{port}"));
        }
    }
    owners.iter().any(Option::is_some).then_some(owners)
}

/// Keeps the map of a Cluster.
pub(crate) async fn follow(client: Arc<RedisClient>) {
    let Deployment::Cluster(seeds) = &client.config.deployment else { return };
    while !client.is_closed() {
        // Those that answer first: one that is cut off from the others has an old map.
        let mut servers = client.map.servers();
        servers.sort_by_key(|server| !server.breaker.is_closed());
        let addresses: Vec<String> = servers.iter().map(|server| server.address()).collect();
        let seeded = seeds.iter().map(|seed| seed.addr().to_string());
        for address in addresses.into_iter().chain(seeded) {
            let Ok(info) = at(&seeds[0], &address) else { continue };
            let host = address.rsplit_once(':').map_or("", |(host, _)| host);
            let slots = timeout(ANSWER, async {
                let mut connection = connect(&client, info).await.ok()?;
                redis::cmd("CLUSTER").arg("SLOTS").query_async::<Value>(&mut connection).await.ok()
            });
            if let Ok(Some(slots)) = slots.await
                && client.update_map(&slots, host)
            {
                break;
            }
        }
        sleep(SHORTEST).await;
        // Also without a reason now and then: a server that comes back says so to nobody.
        let _ = timeout(LONGEST, client.map.refresh.notified()).await;
    }
}

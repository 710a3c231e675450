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
use std::sync::atomic::Ordering;
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

pub(crate) struct ServerMap {
    /// The one server, where there is no Cluster.
    single: Option<Arc<RedisServer>>,
    cluster: RwLock<ClusterMap>,
    /// Has the Cluster asked again which server has which hash slot; soon, not now.
    pub(crate) refresh: Notify,
}

struct ClusterMap {
    hash_slots: Vec<Option<Arc<RedisServer>>>,
    servers: Vec<Arc<RedisServer>>,
    /// Servers ever known.
    count: usize,
}

impl ServerMap {
    /// A Cluster's, or of one server.
    pub(crate) fn new(addresses: Vec<String>, is_cluster: bool, began: Timestamp) -> Self {
        let addresses = addresses.into_iter().enumerate();
        let servers: Vec<Arc<RedisServer>> =
            addresses.map(|(number, address)| Arc::new(RedisServer::new(address, number, began))).collect();
        // Whichever is asked first says who has a hash slot.
        let hash_slots = vec![servers.first().cloned(); if is_cluster { HASH_SLOTS } else { 0 }];
        Self {
            single: servers.first().filter(|_| !is_cluster).cloned(),
            cluster: RwLock::new(ClusterMap { hash_slots, count: servers.len(), servers }),
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
    /// True in a process that has the client by `fork`: the thread that talks to Redis did not come
    /// along, and whoever waited for it would wait for ever.
    pub(crate) fn is_inherited(&self) -> bool {
        crate::process::id() != self.process
    }

    /// The server that has this hash slot.
    pub(crate) fn server_of(&self, hash_slot: impl FnOnce() -> u16) -> Option<Arc<RedisServer>> {
        if self.is_inherited() {
            return None;
        }
        if let Some(single) = &self.map.single {
            return Some(single.clone());
        }
        let map = self.map.cluster.read().unwrap_or_else(PoisonError::into_inner);
        map.hash_slots.get(usize::from(hash_slot()))?.clone()
    }

    /// The server at this address.
    pub(crate) fn server_at(self: &Arc<Self>, address: &str) -> Option<Arc<RedisServer>> {
        // A server that does not know its own name sends an empty one.
        (!address.starts_with(':')).then(|| self.known(&mut self.map.write(), address))
    }

    /// A server says that a hash slot is at this address now.
    pub(crate) fn moved(self: &Arc<Self>, address: &str, hash_slot: u16) -> Option<Arc<RedisServer>> {
        let server = self.server_at(address)?;
        if let Some(owner) = self.map.write().hash_slots.get_mut(usize::from(hash_slot)) {
            *owner = Some(server.clone());
        }
        Some(server)
    }

    /// The server at this address, which is looked after from now on.
    fn known(self: &Arc<Self>, map: &mut ClusterMap, address: &str) -> Arc<RedisServer> {
        if let Some(server) = map.servers.iter().find(|server| server.address() == address) {
            return server.clone();
        }
        // It has answered nobody yet: what was admitted elsewhere before counts.
        let server = Arc::new(RedisServer::new(address.to_string(), map.count, self.clock.now()));
        map.count += 1;
        map.servers.push(server.clone());
        self.handle.spawn(supervise::run(self.clone(), server.clone()));
        server
    }

    /// Takes over what `CLUSTER SLOTS` says; false if it makes no sense.
    fn update_map(self: &Arc<Self>, slots: &[Vec<Value>], host: &str) -> bool {
        let Some(mut ranges) = ranges(slots, host).filter(|ranges| !ranges.is_empty()) else { return false };
        ranges.sort_unstable();
        let mut map = self.map.write();
        let mut servers: Vec<Arc<RedisServer>> = Vec::new();
        map.hash_slots.fill(None);
        for (first, last, owner) in ranges {
            let server = self.known(&mut map, &owner);
            map.hash_slots[first..=last].fill(Some(server.clone()));
            if !servers.iter().any(|other| Arc::ptr_eq(other, &server)) {
                servers.push(server);
            }
        }
        let before = std::mem::replace(&mut map.servers, servers);
        for server in before.iter().filter(|server| !map.servers.iter().any(|kept| Arc::ptr_eq(server, kept)))
        {
            server.is_retired.store(true, Ordering::Relaxed);
            server.wake_all();
        }
        true
    }
}

/// The first and the last hash slot of each range, and the address of its master; none if the answer
/// makes no sense.
fn ranges(slots: &[Vec<Value>], host: &str) -> Option<Vec<(usize, usize, String)>> {
    let range = |range: &Vec<Value>| {
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = range.as_slice() else {
            return None;
        };
        let [name, Value::Int(port), ..] = master.as_slice() else { return None };
        let name = match name {
            Value::BulkString(name) if !name.is_empty() => String::from_utf8_lossy(name).into_owned(),
            _ => host.to_string(),
        };
        let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
        (first <= last && last < HASH_SLOTS).then(|| (first, last, format!("{name}:{port}")))
    };
    slots.iter().map(range).collect()
}

/// Keeps the map of a Cluster.
pub(crate) async fn follow(client: Arc<RedisClient>) {
    let Deployment::Cluster(seeds) = &client.config.deployment else { return };
    while !client.is_closed() {
        // Those that answer first: one that is cut off from the others has an old map.
        let mut servers = client.map.servers();
        servers.sort_by_key(|server| !server.is_up());
        let addresses: Vec<String> = servers.iter().map(|server| server.address()).collect();
        let seeded = seeds.iter().map(|seed| seed.addr().to_string());
        for address in addresses.into_iter().chain(seeded) {
            let Ok(info) = at(&seeds[0], &address) else { continue };
            let host = address.rsplit_once(':').map_or("", |(host, _)| host);
            let slots = timeout(ANSWER, async {
                let mut connection = connect(&client, info).await.ok()?;
                redis::cmd("CLUSTER").arg("SLOTS").query_async::<Vec<Vec<Value>>>(&mut connection).await.ok()
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

//! How many nodes share the limits: each sends a heartbeat to Redis and hears how many are alive.

use super::request::UpdateKind;
use super::store::RedisClient;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How often a node sends one, and how long it counts as alive after one.
const PERIOD: Duration = Duration::from_secs(1);
pub(super) const ALIVE_US: u64 = 5_000_000;

pub(super) async fn run(client: Arc<RedisClient>) {
    while !client.is_closed() {
        let heard = timeout(PERIOD, client.send(None, UpdateKind::Heartbeat)).await;
        let pause = if let Ok(Ok(numbers)) = heard
            && let [nodes, counted_us] = numbers.as_slice()
            && let (Ok(nodes), Ok(counted_us)) = (u32::try_from(*nodes), u64::try_from(*counted_us))
        {
            // Fewer is believed only of a server that has counted for as long as a heartbeat
            // counts: one that comes back empty hears the nodes one after the other.
            if nodes >= client.nodes.load(Ordering::Relaxed) || counted_us >= ALIVE_US {
                client.nodes.store(nodes.max(1), Ordering::Relaxed);
            }
            0.5 + client.random()
        } else {
            0.05 + client.random() / 10.0
        };
        sleep(PERIOD.mul_f64(pause)).await;
    }
}

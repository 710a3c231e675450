//! How many nodes share the limits: each sends a heartbeat to Redis and hears how many are alive.

use super::request::UpdateKind;
use super::store::RedisClient;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// How often a node sends one, and how long it counts as alive after one.
const PERIOD: Duration = Duration::from_secs(1);
const ALIVE: Duration = Duration::from_secs(5);

/// Nodes alive, as last heard; zero before that.
#[derive(Default)]
pub(super) struct Nodes(AtomicU32);

impl Nodes {
    pub(super) fn get(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|nodes| *nodes > 0)
    }
}

pub(super) async fn run(client: Arc<RedisClient>) {
    let life_us = u64::try_from(ALIVE.as_micros()).unwrap_or(u64::MAX);
    while !client.is_closed() {
        let (answer, heard) = oneshot::channel();
        let kind = UpdateKind::Heartbeat { node: client.node.clone(), life_us };
        client.send(None, kind, Some(answer));
        let heard = timeout(PERIOD, heard).await;
        let pause = if let Ok(Ok(Ok(numbers))) = heard
            && let [nodes, counted_us] = numbers.as_slice()
            && let (Ok(nodes), Ok(counted_us)) = (u32::try_from(*nodes), u64::try_from(*counted_us))
        {
            // Fewer is believed only of a server that has counted for as long as a heartbeat
            // counts: one that comes back empty hears the nodes one after the other.
            if nodes >= client.nodes.0.load(Ordering::Relaxed) || counted_us >= life_us {
                client.nodes.0.store(nodes.max(1), Ordering::Relaxed);
            }
            0.5 + client.random()
        } else {
            0.05 + client.random() / 10.0
        };
        sleep(PERIOD.mul_f64(pause)).await;
    }
}

//! Servers that die and come back while buyers buy. These tests have servers of their own.

use super::rig::{Servers, at_rest, buyer, check_books, engine, insist, on_sale, phone, until};
use crate::engine::Engine as _;
use crate::order::OrderSn;
use crate::refusal::Refusal;
use crate::servers::{ServersConfig, ServersEngine};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Buyers on two engines, who come one after the other until they are told to stop.
struct Crowd {
    is_over: Arc<AtomicBool>,
    bought: Arc<AtomicU64>,
    buyers: Vec<tokio::task::JoinHandle<Vec<OrderSn>>>,
}

impl Crowd {
    fn come(engines: &[Arc<ServersEngine>; 2]) -> Self {
        let (is_over, bought) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let buyers = (0..8).map(|lane| {
            let (engine, is_over, bought) = (engines[lane % 2].clone(), is_over.clone(), bought.clone());
            tokio::spawn(async move {
                let mut numbers = Vec::new();
                while !is_over.load(Ordering::SeqCst) {
                    let user = format!("user-{lane}-{}", numbers.len());
                    match insist(&engine, &user).await {
                        Ok(sn) => numbers.push(sn),
                        Err(other) => panic!("{other:?}"),
                    }
                    bought.fetch_add(1, Ordering::SeqCst);
                }
                numbers
            })
        });
        let buyers = buyers.collect();
        Self { is_over, bought, buyers }
    }

    /// Waits until so many more have bought.
    async fn go_on(&self, more: u64) {
        let from = self.bought.load(Ordering::SeqCst);
        until("buyers buy", async || self.bought.load(Ordering::SeqCst) >= from + more).await;
    }

    async fn leave(self) -> Vec<OrderSn> {
        self.is_over.store(true, Ordering::SeqCst);
        let mut numbers = Vec::new();
        for buyer in self.buyers {
            numbers.extend(buyer.await.unwrap());
        }
        numbers
    }
}

async fn two(config: &ServersConfig) -> [Arc<ServersEngine>; 2] {
    let engines = [engine(config).await, engine(config).await];
    on_sale(&engines[0], 1_000_000, 5).await;
    until("both know it", async || engines[1].known(&phone()).is_some_and(|known| known.left.is_some()))
        .await;
    engines
}

async fn blocking(work: impl FnOnce() + Send + 'static) {
    tokio::task::spawn_blocking(work).await.unwrap();
}

/// Redis, RabbitMQ and PostgreSQL, one after the other, while buyers buy.
async fn each_is_killed(servers: Servers) {
    let servers = Arc::new(servers);
    let config = servers.config();
    let engines = two(&config).await;
    let unused = buyer(&engines[0], "unused");
    let crowd = Crowd::come(&engines);
    crowd.go_on(50).await;
    for server in 0..3 {
        let inner = servers.clone();
        blocking(move || match server {
            0 => inner.redis.restart(),
            1 => inner.rabbit.restart(),
            _ => inner.postgres.restart(),
        })
        .await;
        crowd.go_on(50).await;
    }
    let answered = crowd.leave().await;
    let books = at_rest(&engines[0]).await;
    check_books(&servers, &config, &books, &answered).unwrap();
    assert!(books.epoch > 1, "Redis was restarted: {books:?}");
    assert_eq!(engines[1].reserve(unused).await, Err(Refusal::WrongPath), "a path of the old epoch");
    // Nothing hangs in between: what was reserved is in the database, or was never told.
    assert_eq!(books.dead, 0, "{books:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_forgets_and_every_other_server_is_killed_while_buyers_buy() {
    let servers = tokio::task::spawn_blocking(Servers::start).await.unwrap();
    each_is_killed(servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_keeps_and_every_other_server_is_killed_while_buyers_buy() {
    let durable = ["--appendonly", "yes", "--appendfsync", "always"];
    let servers = tokio::task::spawn_blocking(move || Servers::with_redis(&durable)).await.unwrap();
    let mut config = servers.config();
    config.answer_after = crate::servers::AnswerAfter::Redis;
    let first = engine(&config).await;
    // Told before the broker has it: the outbox survives with Redis, and is published.
    on_sale(&first, 10, 5).await;
    servers.rabbit.stop();
    until("the broker is gone", async || !first.core.broker.is_up()).await;
    let sn = super::rig::buy(&first, "ann").await.unwrap();
    assert_eq!(first.order(&sn).await.unwrap().unwrap().state, crate::order::OrderState::Processing);
    drop(first);
    let (servers, again) = tokio::task::spawn_blocking(move || {
        servers.redis.restart();
        servers.rabbit.restart();
        (servers, config)
    })
    .await
    .unwrap();
    let second = engine(&again).await;
    until("it is loaded again", async || second.known(&phone()).is_some_and(|known| known.epoch > 1)).await;
    let books = at_rest(&second).await;
    assert_eq!((books.placed, books.left), (1, 9), "{books:?}");
    check_books(&servers, &again, &books, &[sn]).unwrap();
    drop(second);
    each_is_killed(servers).await;
}

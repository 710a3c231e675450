//! Connections that are limited across processes.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;
use testkit::servers::RedisServer;
use tidegate::listener::Listener;
use tidegate::{Limiter, Redis};
use tokio::net::TcpStream;

async fn node(server: &RedisServer) -> Listener {
    let redis = Redis::at(&server.url()).unwrap().deadline(Duration::from_secs(5));
    let limiter = Limiter::builder().redis(redis).build();
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let listener = listener.connections(limiter.gate("connections", "1 concurrent").unwrap()).unwrap();
    listener.connections_by_client(limiter.gate("connections.client", "1 concurrent").unwrap()).unwrap()
}

#[tokio::test]
async fn a_slot_that_one_node_holds_keeps_the_other_from_accepting() {
    let server = RedisServer::start();
    let (mut one, mut other) = (node(&server).await, node(&server).await);
    let _here = TcpStream::connect(one.local_addr().unwrap()).await.unwrap();
    let there = TcpStream::connect(other.local_addr().unwrap()).await.unwrap();
    let held = one.accept().await;
    let stats = other.stats();
    while stats.waited() == 0 {
        let polled = poll_fn(|context| Poll::Ready(other.poll_accept(context))).await;
        assert!(polled.is_pending());
        tokio::task::yield_now().await;
    }
    drop(held);
    assert_eq!(other.accept().await.peer().addr(), there.local_addr().unwrap());
    assert_eq!((stats.waited(), stats.refused()), (1, 0));
}

//! How many connections wait in the system's queue while none is accepted.
//!
//! On Linux a client that finds the queue full is not refused: its system tries again after a
//! second, and after three. None is accepted here, so it would try in vain.

use std::net::SocketAddr;
use std::time::Duration;
use tidegate::listener::Listener;
use tokio::net::{TcpListener, TcpStream};

/// More than the 128 of tokio's own `bind`.
const CROWD: usize = 200;

/// What the system cuts every backlog to.
fn system_max() -> usize {
    std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap()
}

/// Opens so many connections at once; those that were accepted by the system, as soon as all of them
/// are, or after this time.
async fn connected(addr: SocketAddr, count: usize, at_most: Duration) -> Vec<TcpStream> {
    let connecting: Vec<_> = (0..count).map(|_| tokio::spawn(TcpStream::connect(addr))).collect();
    let mut streams = Vec::new();
    let deadline = tokio::time::sleep(at_most);
    let mut deadline = std::pin::pin!(deadline);
    for one in connecting {
        tokio::select! {
            stream = one => streams.push(stream.unwrap().unwrap()),
            () = &mut deadline => break,
        }
    }
    streams
}

#[tokio::test]
async fn many_clients_that_connect_at_once_need_not_retry_after_a_second() {
    let count = CROWD.min(system_max());
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    // Far more time than it takes: with a shorter queue, most of them are never connected.
    let streams = connected(addr, count, Duration::from_secs(10)).await;
    assert_eq!(streams.len(), count, "the queue is too short for a crowd");
}

#[tokio::test]
async fn the_backlog_can_be_set_also_of_a_listener_made_elsewhere() {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listener = Listener::new(tcp).backlog(1).unwrap();
    // Linux queues one more than the backlog.
    let streams = connected(listener.local_addr().unwrap(), 10, Duration::from_millis(200)).await;
    assert_eq!(streams.len(), 2);

    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut listener = Listener::new(tcp).backlog(u32::MAX).unwrap();
    let count = CROWD.min(system_max());
    let streams = connected(listener.local_addr().unwrap(), count, Duration::from_secs(10)).await;
    assert_eq!(streams.len(), count);
    // And it accepts them as before.
    for _ in 0..count {
        listener.accept().await;
    }
}

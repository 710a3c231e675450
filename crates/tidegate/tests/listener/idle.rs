//! Connections that are silent from the start, or become silent.

#[cfg(feature = "axum")]
use super::is_closed;
use super::{connect, connect_with, in_time, listener, read};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tidegate::listener::Connection;
use tidegate::{Limiter, ManualClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The error of a read after the clock has moved.
async fn read_error(connection: &mut Connection) -> String {
    let error = in_time(connection.read(&mut [0; 8])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    error.to_string()
}

async fn is_waiting(connection: &mut Connection) -> bool {
    let mut bytes = [0; 8];
    let mut read = pin!(connection.read(&mut bytes));
    poll_fn(|context| Poll::Ready(read.as_mut().poll(context).is_pending())).await
}

#[tokio::test]
async fn a_silent_connection_keeps_no_slot() {
    let limiter = Limiter::new();
    let gate = limiter.gate("connections", "1 concurrent").unwrap();
    let clock = ManualClock::new();
    let mut listener = listener().await.connections(gate).unwrap().clock(clock.clone());
    let (addr, stats) = (listener.local_addr().unwrap(), listener.stats());
    let _silent = connect(addr).await;
    let mut silent = listener.accept().await;
    let _next = connect(addr).await;
    clock.advance(Duration::from_micros(9_999_999));
    assert!(is_waiting(&mut silent).await);
    // In a task of its own, which the clock wakes.
    let server = tokio::spawn(async move { read_error(&mut silent).await });
    tokio::task::yield_now().await;
    clock.advance(Duration::from_micros(1));
    assert_eq!(in_time(server).await.unwrap(), "no byte came within 10s of the connection");
    assert_eq!((stats.idle(), stats.open()), (1, 0));
    in_time(listener.accept()).await;
}

#[tokio::test]
async fn bytes_in_either_direction_restart_the_idle_timeout() {
    let clock = ManualClock::new();
    let listener = listener().await.clock(clock.clone());
    let mut listener = listener.first_byte_timeout(Duration::MAX).idle_timeout(Duration::from_secs(60));
    let stats = listener.stats();
    let mut there = connect(listener.local_addr().unwrap()).await;
    let mut here = listener.accept().await;
    clock.advance(Duration::from_secs(100_000));
    assert!(is_waiting(&mut here).await, "the first byte may take for ever");
    there.write_all(b"ping").await.unwrap();
    assert_eq!(read(&mut here, 4).await, "ping");
    clock.advance(Duration::from_secs(59));
    assert!(is_waiting(&mut here).await);
    here.write_all(b"pong").await.unwrap();
    clock.advance(Duration::from_secs(59));
    assert!(is_waiting(&mut here).await, "what was sent counts too");
    clock.advance(Duration::from_secs(1));
    assert_eq!(read_error(&mut here).await, "no byte came or went for 60s");
    assert_eq!(read_error(&mut here).await, "no byte came or went for 60s");
    assert_eq!(stats.idle(), 1, "it is one connection");
}

#[tokio::test]
async fn a_reader_and_a_writer_in_two_tasks_both_time_out() {
    let clock = ManualClock::new();
    let mut listener = listener().await.clock(clock.clone()).idle_timeout(Duration::from_secs(60));
    let _there = connect_with(listener.local_addr().unwrap(), b"ping").await; // and never reads
    let mut here = listener.accept().await;
    read(&mut here, 4).await;
    let (mut reader, mut writer) = tokio::io::split(here);
    let reads = tokio::spawn(async move { reader.read(&mut [0; 8]).await.map(drop) });
    let writes = tokio::spawn(async move {
        loop {
            writer.write_all(&[0; 65_536]).await?;
        }
        #[allow(unreachable_code, reason = "states the type")]
        Ok::<(), std::io::Error>(())
    });
    while clock.waiting() < 2 {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_secs(60));
    for end in [reads, writes] {
        assert_eq!(in_time(end).await.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
    }
}

#[tokio::test]
async fn keepalive_is_on_so_that_a_peer_which_disappears_is_detected() {
    let mut listener = listener().await;
    let _there = connect(listener.local_addr().unwrap()).await;
    let here = listener.accept().await;
    assert!(socket2::SockRef::from(here.get_ref()).keepalive().unwrap());
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn axum_closes_a_silent_connection_and_serves_the_next() {
    use axum::{Router, routing::get};

    let limiter = Limiter::new();
    let gate = limiter.gate("connections", "1 concurrent").unwrap();
    let clock = ManualClock::new();
    let listener = listener().await.connections(gate).unwrap().clock(clock.clone());
    let (addr, stats) = (listener.local_addr().unwrap(), listener.stats());
    let app = Router::new().route("/", get(|| async { "served" }));
    let server = tokio::spawn(axum::serve(listener, app).into_future());
    let silent = connect(addr).await;
    let mut next = connect_with(addr, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    // The timeout of the silent connection, and the pause of the listener.
    while stats.waited() == 0 || clock.waiting() < 2 {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_secs(10));
    let mut response = String::new();
    in_time(next.read_to_string(&mut response)).await.unwrap();
    assert!(response.ends_with("served"), "{response}");
    assert!(is_closed(silent).await);
    server.abort();
}

//! The listener when the process has no file left to open. Alone in its process, as the
//! limit is the process's.

#![cfg(all(feature = "listen", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;
use tidegate::ManualClock;
use tidegate::listener::Listener;
use tokio::net::TcpStream;

#[tokio::test]
async fn pauses_when_files_run_out_and_goes_on_when_there_are_some() {
    let clock = ManualClock::new();
    let mut listener = Listener::bind("127.0.0.1:0").await.unwrap().clock(clock.clone());
    let stats = listener.stats();
    let _there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();

    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: limit.maximum }).unwrap();
    let files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!files.is_empty());

    while stats.accept_errors() == 0 {
        let polled = poll_fn(|context| Poll::Ready(listener.poll_accept(context))).await;
        assert!(polled.is_pending());
        tokio::task::yield_now().await;
    }
    // Polled again and again, it does not call `accept` before the pause is over.
    for _ in 0..100 {
        let polled = poll_fn(|context| Poll::Ready(listener.poll_accept(context))).await;
        assert!(polled.is_pending());
    }
    assert_eq!(stats.accept_errors(), 1);

    drop(files);
    let (connection, ()) = tokio::join!(listener.accept(), async {
        clock.advance(Duration::from_millis(100));
    });
    assert_eq!(connection.client().to_string(), "127.0.0.1");
    assert_eq!(stats.accept_errors(), 1);
}

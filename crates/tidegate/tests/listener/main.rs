//! The listener on real sockets of 127.0.0.1: slots, PROXY headers, and clients
//! that are slow or lie.

#![cfg(feature = "listen")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

#[cfg(target_os = "linux")]
mod backlog;
mod idle;

use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tidegate::listener::{Connection, Listener, ListenerStats};
use tidegate::{Denial, GateOptions, Limiter, ManualClock, Overflow, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const V1: &[u8] = b"PROXY TCP4 203.0.113.9 192.0.2.1 56324 443\r\n";

/// A version 2 header of 203.0.113.`last`:1000, with a TLV.
fn v2(last: u8) -> Vec<u8> {
    let fixed = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x10";
    [&fixed[..], &[203, 0, 113, last, 192, 0, 2, 1, 3, 232, 1, 187, 4, 0, 1, 0]].concat()
}

async fn listener() -> Listener {
    Listener::bind("127.0.0.1:0").await.unwrap()
}

async fn connect(addr: SocketAddr) -> TcpStream {
    TcpStream::connect(addr).await.unwrap()
}

/// Connects from another address of this machine.
async fn connect_from(from: &str, addr: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    socket.connect(addr).await.unwrap()
}

async fn connect_with(addr: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = connect(addr).await;
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Polls the listener until the condition holds, which must be before it accepts a connection.
async fn accept_nothing_until(listener: &mut Listener, mut seen: impl FnMut() -> bool) {
    let mut accept = pin!(listener.accept());
    loop {
        let polled = poll_fn(|context| Poll::Ready(accept.as_mut().poll(context))).await;
        assert!(polled.is_pending(), "accepted {polled:?}");
        if seen() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until the listener has closed a connection.
async fn is_closed(mut stream: TcpStream) -> bool {
    match in_time(stream.read(&mut [0; 8])).await {
        Ok(0) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
        Ok(_) => false,
    }
}

/// Fails instead of waiting for ever.
async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("in time")
}

async fn read(connection: &mut Connection, length: usize) -> String {
    let mut bytes = vec![0; length];
    in_time(connection.read_exact(&mut bytes)).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_connection_carries_bytes_both_ways_and_has_its_peer() {
    let mut listener = listener().await;
    let mut there = connect_with(listener.local_addr().unwrap(), b"ping").await;
    let mut here = listener.accept().await;
    assert_eq!(here.peer().addr(), there.local_addr().unwrap());
    assert_eq!(here.peer().via(), None);
    assert_eq!(here.client().to_string(), "127.0.0.1");
    assert!(here.get_ref().nodelay().unwrap());
    assert_eq!(read(&mut here, 4).await, "ping");
    here.write_all(b"pong").await.unwrap();
    here.shutdown().await.unwrap();
    let mut answer = String::new();
    there.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "pong");
}

#[tokio::test]
async fn when_all_slots_are_taken_the_next_connection_waits_for_one() {
    let limiter = Limiter::new();
    let gate = limiter.gate("connections", "2 concurrent").unwrap();
    // The clock stands still: the slot wakes the listener, not a pause.
    let mut listener = listener().await.connections(gate.clone()).unwrap().clock(ManualClock::new());
    let (addr, stats) = (listener.local_addr().unwrap(), listener.stats());
    let mut there = Vec::new();
    for _ in 0..4 {
        there.push(connect(addr).await);
    }
    let (first, second) = (listener.accept().await, listener.accept().await);
    accept_nothing_until(&mut listener, || stats.waited() == 1).await;
    assert_eq!((stats.open(), gate.peek_cost("all", 0).remaining()), (2, 0));

    // It waits in a task of its own, where only the slot that comes back wakes it.
    let waiting = tokio::spawn(async move {
        let third = listener.accept().await;
        (listener, third)
    });
    tokio::task::yield_now().await;
    drop(first);
    let (mut listener, third) = in_time(waiting).await.unwrap();
    assert_eq!(third.peer().addr(), there[2].local_addr().unwrap());
    accept_nothing_until(&mut listener, || stats.waited() == 2).await;
    drop((second, third));
    let fourth = listener.accept().await;
    assert_eq!(fourth.peer().addr(), there[3].local_addr().unwrap());
    assert_eq!((stats.open(), stats.accepted()), (1, 4));
    drop(fourth);
    assert_eq!((stats.open(), gate.peek_cost("all", 0).remaining()), (0, 2));
}

#[tokio::test]
async fn a_raised_limit_is_seen_without_a_connection_closing() {
    let limiter = Limiter::new();
    let gate = limiter.gate("connections", "1 concurrent").unwrap();
    let clock = ManualClock::new();
    let mut listener = listener().await.connections(gate.clone()).unwrap().clock(clock.clone());
    let (addr, stats) = (listener.local_addr().unwrap(), listener.stats());
    let _there = (connect(addr).await, connect(addr).await);
    let _first = listener.accept().await;
    accept_nothing_until(&mut listener, || stats.waited() == 1).await;
    gate.change("2 concurrent").unwrap();
    clock.advance(Duration::from_millis(100));
    listener.accept().await;
}

#[tokio::test]
async fn a_client_with_too_many_is_closed_and_others_are_not() {
    let limiter = Limiter::new();
    let by_client = limiter.gate("by-client", "2 concurrent").unwrap();
    let in_all = limiter.gate("in-all", "3 concurrent").unwrap();
    let listener = listener().await.connections(in_all).unwrap();
    let mut listener = listener.connections_by_client(by_client.clone()).unwrap();
    let (addr, stats) = (listener.local_addr().unwrap(), listener.stats());
    let _there = (connect(addr).await, connect(addr).await);
    let (first, _second) = (listener.accept().await, listener.accept().await);

    let third = connect(addr).await;
    accept_nothing_until(&mut listener, || stats.refused() == 1).await;
    assert!(is_closed(third).await);
    assert_eq!(stats.open(), 2);

    let _other = connect_from("127.0.0.2", addr).await;
    assert_eq!(listener.accept().await.client().to_string(), "127.0.0.2");

    drop(first);
    assert_eq!(by_client.peek_cost("127.0.0.1", 0).remaining(), 1);
    let _third = connect(addr).await;
    assert_eq!(listener.accept().await.client().to_string(), "127.0.0.1");
}

#[tokio::test]
async fn bits_make_neighbours_one_client() {
    let limiter = Limiter::new();
    let gate = limiter.gate("by-network", "1 concurrent").unwrap();
    let mut listener = listener().await.connections_by_client(gate).unwrap().ipv4_bits(24);
    let (addr, stats) = (listener.local_addr().unwrap(), listener.stats());
    let _one = connect_from("127.0.0.5", addr).await;
    let one = listener.accept().await;
    assert_eq!(one.client().to_string(), "127.0.0.0/24");
    let neighbour = connect_from("127.0.0.6", addr).await;
    accept_nothing_until(&mut listener, || stats.refused() == 1).await;
    assert!(is_closed(neighbour).await);
}

#[tokio::test]
async fn a_trusted_proxy_names_the_client_in_either_version() {
    let limiter = Limiter::new();
    let gate = limiter.gate("by-client", "1 concurrent").unwrap();
    let listener = listener().await.proxy_protocol(["loopback"]).unwrap();
    let mut listener = listener.connections_by_client(gate).unwrap();
    let (addr, stats) = (listener.local_addr().unwrap(), listener.stats());
    for (header, named) in [(V1.to_vec(), "203.0.113.9:56324"), (v2(10), "203.0.113.10:1000")] {
        let there = connect_with(addr, &[&header[..], b"GET /"].concat()).await;
        let mut here = listener.accept().await;
        assert_eq!(here.peer().to_string(), named);
        assert_eq!(here.peer().via(), Some(there.local_addr().unwrap()));
        assert_eq!(read(&mut here, 5).await, "GET /");
        // The slots are the client's, not the proxy's.
        let again = connect_with(addr, &header).await;
        let refused = stats.refused();
        accept_nothing_until(&mut listener, || stats.refused() == refused + 1).await;
        assert!(is_closed(again).await);
    }
    for header in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00"] {
        let there = connect_with(addr, header).await;
        let here = listener.accept().await;
        assert_eq!((here.peer().addr(), here.peer().via()), (there.local_addr().unwrap(), None));
    }
}

#[tokio::test]
async fn a_header_may_arrive_in_pieces() {
    let mut listener = listener().await.proxy_protocol(["127.0.0.1"]).unwrap();
    let stats = listener.stats();
    let mut there = connect(listener.local_addr().unwrap()).await;
    there.set_nodelay(true).unwrap();
    let long = [&v2(9)[..14], &[12, 0], &v2(9)[16..28], &[0xee; 3_060]].concat();
    let (long, last_byte) = long.split_at(long.len() - 1);
    for piece in long.chunks(700) {
        there.write_all(piece).await.unwrap();
        accept_nothing_until(&mut listener, || stats.open() == 1).await;
    }
    // No byte after it is read.
    there.write_all(&[last_byte, b"GET /"].concat()).await.unwrap();
    let mut here = listener.accept().await;
    assert_eq!(here.peer().to_string(), "203.0.113.9:1000");
    assert_eq!(read(&mut here, 5).await, "GET /");
}

#[tokio::test]
async fn a_proxy_header_from_elsewhere_is_not_believed() {
    let limiter = Limiter::new();
    let gate = limiter.gate("connections", "1 concurrent").unwrap();
    let listener = listener().await.proxy_protocol(["10.0.0.0/8", "127.0.0.2"]).unwrap();
    let mut listener = listener.connections(gate).unwrap();
    let (addr, stats) = (listener.local_addr().unwrap(), listener.stats());
    let liar = connect_with(addr, V1).await;
    accept_nothing_until(&mut listener, || stats.untrusted() == 1).await;
    assert!(is_closed(liar).await);
    assert_eq!(stats.accepted(), 0);

    let mut proxy = connect_from("127.0.0.2", addr).await;
    proxy.write_all(V1).await.unwrap();
    assert_eq!(listener.accept().await.client().to_string(), "203.0.113.9");
}

#[tokio::test]
async fn garbage_instead_of_a_header_is_closed_and_reported() {
    let mut listener = listener().await.proxy_protocol(["loopback"]).unwrap();
    let (addr, stats) = (listener.local_addr().unwrap(), listener.stats());
    let browser = connect_with(addr, b"GET / HTTP/1.1\r\n\r\n").await;
    let its_addr = browser.local_addr().unwrap();
    accept_nothing_until(&mut listener, || stats.bad_headers() == 1).await;
    assert!(is_closed(browser).await);
    assert_eq!(
        stats.last_bad_header().unwrap(),
        format!("{its_addr}: no PROXY header: the connection begins with something else")
    );
    drop(connect_with(addr, b"PROXY TC").await);
    accept_nothing_until(&mut listener, || stats.bad_headers() == 2).await;
    assert_eq!(stats.open(), 0);
}

#[tokio::test]
async fn a_slow_header_delays_no_other_and_ends_in_time() {
    let clock = ManualClock::new();
    let listener = listener().await.proxy_protocol(["loopback"]).unwrap();
    let mut listener = listener.header_timeout(Duration::from_secs(2)).clock(clock.clone());
    let (addr, stats) = (listener.local_addr().unwrap(), listener.stats());
    let slow = connect_with(addr, b"PROXY TCP4 20").await;
    accept_nothing_until(&mut listener, || stats.open() == 1).await;

    let _quick = connect_with(addr, V1).await;
    let quick = listener.accept().await;
    assert_eq!((quick.client().to_string().as_str(), stats.open()), ("203.0.113.9", 2));

    clock.advance(Duration::from_millis(1_999));
    let _next = connect_with(addr, &v2(10)).await;
    listener.accept().await;
    assert_eq!(stats.late_headers(), 0);
    clock.advance(Duration::from_millis(1));
    accept_nothing_until(&mut listener, || stats.late_headers() == 1).await;
    assert!(is_closed(slow).await);
    assert_eq!(stats.open(), 1);
}

#[tokio::test]
async fn headers_that_are_read_at_once_are_bounded() {
    let clock = ManualClock::new();
    let listener = listener().await.proxy_protocol(["loopback"]).unwrap();
    let mut listener = listener.headers_at_once(2).clock(clock.clone());
    let (addr, stats) = (listener.local_addr().unwrap(), listener.stats());
    let slow = [connect(addr).await, connect(addr).await];
    accept_nothing_until(&mut listener, || stats.open() == 2).await;
    let _quick = connect_with(addr, V1).await;
    let mut rounds = 0;
    accept_nothing_until(&mut listener, || {
        rounds += 1;
        rounds == 100
    })
    .await;
    assert_eq!(stats.open(), 2);
    clock.advance(Duration::from_secs(5));
    assert_eq!(listener.accept().await.client().to_string(), "203.0.113.9");
    for stream in slow {
        assert!(is_closed(stream).await);
    }
}

#[tokio::test]
async fn an_accept_that_is_dropped_loses_no_connection() {
    let limiter = Limiter::new();
    let gate = limiter.gate("connections", "1 concurrent").unwrap();
    let mut listener = listener().await.connections(gate).unwrap().clock(ManualClock::new());
    let (addr, stats) = (listener.local_addr().unwrap(), listener.stats());
    let there = [connect(addr).await, connect(addr).await];
    let first = listener.accept().await;
    accept_nothing_until(&mut listener, || stats.waited() == 1).await; // dropped while one waits
    drop(first);
    assert_eq!(listener.accept().await.peer().addr(), there[1].local_addr().unwrap());
}

#[tokio::test]
async fn a_listener_for_both_families_knows_ipv4_clients_by_ipv4() {
    let Ok(tcp) = TcpListener::bind("[::]:0").await else { return };
    let mut listener = Listener::new(tcp).proxy_protocol(["127.0.0.0/8"]).unwrap();
    let port = listener.local_addr().unwrap().port();
    let _there = connect_with(SocketAddr::from(([127, 0, 0, 1], port)), b"PROXY UNKNOWN\r\n").await;
    assert_eq!(listener.accept().await.client().to_string(), "127.0.0.1");
}

#[tokio::test]
async fn a_store_without_room_is_not_the_clients_fault() {
    let limiter = Limiter::new();
    let options = GateOptions::new().max_keys(1).overflow(Overflow::Refuse);
    let gate = limiter.gate_with("by-client", "1 concurrent", options).unwrap();
    let is_full = |verdict: &Verdict| verdict.decision().denial() == Some(Denial::Full);
    let others = (0..).map(|other| gate.reserve(&format!("other:{other}")));
    let _held: Vec<Verdict> = others.take_while(|verdict| !is_full(verdict)).collect();
    let mut listener = listener().await.connections_by_client(gate).unwrap();
    let (addr, stats) = (listener.local_addr().unwrap(), listener.stats());
    let closed = connect(addr).await;
    accept_nothing_until(&mut listener, || stats.undecided() == 1).await;
    assert!(is_closed(closed).await);
    assert_eq!(stats.refused(), 0);
}

#[tokio::test]
async fn the_error_of_a_wrong_setting_states_what_to_write() {
    let limiter = Limiter::new();
    let rate = limiter.gate("arrivals", "10/s").unwrap();
    let error = listener().await.connections_by_client(rate).unwrap_err();
    assert_eq!(
        error.to_string(),
        "gate `arrivals` is in force as `10/s`, but a connection holds a slot: write a limit such as \
         `20 concurrent`"
    );
    let error = listener().await.proxy_protocol(["haproxy"]).unwrap_err();
    assert!(error.to_string().starts_with("`haproxy` is not a network"), "{error}");
    let error = listener().await.proxy_protocol([""; 0]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`proxy_protocol` names no network, so every connection would be closed: write the load \
         balancer's, such as `10.0.3.0/24`, or leave it out"
    );
}

#[test]
fn what_is_handed_around_can_be() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Connection>();
    shared::<ListenerStats>();
    fn sent<T: Send + 'static>() {}
    sent::<Listener>();
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn axum_serves_it_and_knows_the_peer() {
    use axum::{Router, extract::ConnectInfo, routing::get};
    use tidegate::http::Peer;

    let listener = listener().await.proxy_protocol(["loopback"]).unwrap();
    let (addr, stats) = (listener.local_addr().unwrap(), listener.stats());
    let app =
        Router::new().route("/", get(|ConnectInfo(peer): ConnectInfo<Peer>| async move { peer.to_string() }));
    let service = app.into_make_service_with_connect_info::<Peer>();
    let server = tokio::spawn(axum::serve(listener, service).into_future());
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let mut there = connect_with(addr, &[V1, request].concat()).await;
    let mut answer = String::new();
    there.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.ends_with("203.0.113.9:56324"), "{answer}");
    assert_eq!(stats.accepted(), 1);
    server.abort();
}

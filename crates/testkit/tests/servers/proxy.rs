//! Every way in which the network can misbehave.

use super::{SOON, bulk, ok};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;
use testkit::servers::{Conn, FaultProxy, RedisServer, wait_until};

fn behind() -> (RedisServer, FaultProxy) {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(&redis.addr());
    (redis, proxy)
}

/// A connection that gives up soon.
fn raw(proxy: &FaultProxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    stream
}

fn is_silent(stream: &mut TcpStream) -> bool {
    stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn it_passes_everything_on_also_what_is_large() {
    let (_redis, proxy) = behind();
    assert_eq!(proxy.url(), format!("redis://{}", proxy.addr()));
    let large = "x".repeat(3_000_000);
    let mut conn = Conn::open(&proxy.addr()).unwrap();
    assert_eq!(conn.cmd(&["SET", "key", &large]), ok());
    assert_eq!(conn.cmd(&["GET", "key"]), bulk(&large));
    Conn::open(&proxy.addr()).unwrap().cmd(&["PING"]).accepted();
    assert_eq!(proxy.connections(), 2);
}

#[test]
fn stalled_it_holds_back_questions_and_answers_until_it_passes() {
    let (redis, proxy) = behind();
    let mut before = raw(&proxy);
    before.write_all(b"PING\r\n").unwrap();
    before.read_exact(&mut [0; 7]).unwrap();
    proxy.stall();
    before.write_all(b"SET before 1\r\n").unwrap();
    let mut during = raw(&proxy);
    during.write_all(b"SET during 1\r\n").unwrap();
    assert!(is_silent(&mut before) && is_silent(&mut during));
    assert_eq!(redis.cmd(&["DBSIZE"]).int(), 0, "nothing has arrived");
    proxy.pass();
    for stream in [&mut before, &mut during] {
        let mut answer = [0; 5];
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+OK\r\n");
    }
    assert_eq!(redis.cmd(&["DBSIZE"]).int(), 2);
}

#[test]
fn cut_in_a_reply_the_server_has_done_it_and_the_client_cannot_know() {
    let (redis, proxy) = behind();
    for (nth, bytes) in [0, 1, 3].into_iter().enumerate() {
        let (mut stream, mut other) = (raw(&proxy), raw(&proxy));
        stream.set_read_timeout(Some(SOON)).unwrap();
        proxy.cut_in_reply(bytes);
        stream.write_all(b"INCR n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let whole = format!(":{}\r\n", nth + 1);
        assert_eq!(answer, &whole.as_bytes()[..bytes]);
        assert_eq!(redis.cmd(&["GET", "n"]).int(), i64::try_from(nth + 1).unwrap());
        other.set_read_timeout(Some(SOON)).unwrap();
        other.write_all(b"PING\r\n").unwrap();
        other.read_exact(&mut [0; 7]).unwrap();
    }
    let clients = || redis.cmd(&["CLIENT", "LIST"]).text().lines().count();
    wait_until("the server's side is closed too", SOON, || clients() == 1);
}

#[test]
fn refusing_it_closes_what_is_open_and_what_comes() {
    let (redis, proxy) = behind();
    let mut before = raw(&proxy);
    before.write_all(b"PING\r\n").unwrap();
    before.read_exact(&mut [0; 7]).unwrap();
    proxy.refuse();
    assert!(is_closed(&mut before) && is_closed(&mut raw(&proxy)));
    proxy.stall();
    let mut silent = raw(&proxy);
    assert!(is_silent(&mut silent));
    proxy.refuse();
    assert!(is_closed(&mut silent));
    proxy.pass();
    assert_eq!(Conn::open(&proxy.addr()).unwrap().cmd(&["SET", "key", "value"]), ok());
    assert_eq!((proxy.connections(), redis.cmd(&["GET", "key"])), (4, bulk("value")));
}

#[test]
fn delayed_answers_come_late() {
    let (redis, proxy) = behind();
    let mut stream = raw(&proxy);
    proxy.delay(Duration::from_millis(300));
    stream.write_all(b"SET key value\r\n").unwrap();
    assert!(is_silent(&mut stream), "not within 100 ms");
    assert_eq!(redis.cmd(&["GET", "key"]), bulk("value"), "but the question was in time");
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
}

#[test]
fn a_server_that_is_down_closes_the_connection() {
    let (redis, proxy) = behind();
    redis.kill();
    let mut stream = raw(&proxy);
    stream.set_read_timeout(Some(SOON)).unwrap();
    assert!(is_closed(&mut stream));
    redis.restart();
    Conn::open(&proxy.addr()).unwrap().cmd(&["PING"]).accepted();
}

#[test]
fn dropped_it_leaves_neither_connections_nor_listener() {
    let (redis, proxy) = behind();
    let mut streams = [raw(&proxy), raw(&proxy)];
    streams[0].write_all(b"PING\r\n").unwrap();
    streams[0].read_exact(&mut [0; 7]).unwrap();
    proxy.stall();
    let addr = proxy.addr();
    drop(proxy);
    assert!(streams.iter_mut().all(is_closed));
    // A process that another test is just starting has a copy of the listener for a moment.
    let is_refused =
        || TcpStream::connect(&addr).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    wait_until("nobody listens", SOON, is_refused);
    let clients = || redis.cmd(&["CLIENT", "LIST"]).text().lines().count();
    wait_until("the server is alone again", SOON, || clients() == 1);
}

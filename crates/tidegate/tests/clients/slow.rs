//! Clients whose bodies come slowly, or never.

use crate::support::{SLACK, Server};
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use testkit::servers::pause;
use tidegate::http::Guard;
use tidegate::rules::Rule;
use tidegate::{Clock, Limiter, MonotonicClock};

const TIMEOUT: Duration = Duration::from_millis(300);
const HEAD: &str = "POST /orders HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n";

fn shop() -> (Server, Guard) {
    let rule = Rule::new("goods", "1 concurrent").on("POST /orders").by("json:/goods");
    let guard = Guard::new(&Limiter::new()).rule(rule).build().unwrap();
    let app = Router::new()
        .route("/orders", post(|body: Bytes| async move { body }))
        .layer(guard.layer())
        .layer(guard.json_layer().body_timeout(TIMEOUT));
    (Server::start(app), guard)
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT + SLACK)).unwrap();
    stream
}

/// Reads to the end, which comes within the slack.
fn rest(mut stream: &TcpStream) -> String {
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    rest
}

#[test]
fn a_body_that_stops_is_answered_and_its_connection_closed() {
    let (server, guard) = shop();
    let (clock, stream) = (MonotonicClock::new(), connect(&server));
    let begun = clock.now();
    write!(&stream, "{HEAD}content-length: 100\r\n\r\n{{\"goods\": ").unwrap();
    let answer = rest(&stream);
    assert!(clock.now().since(begun) >= TIMEOUT, "it had its time");
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(answer.contains("the request's body did not come in time"), "{answer}");
    assert_eq!(guard.rules().limiter().get("goods").unwrap().peek("(no json:/goods)").remaining(), 1);

    let stream = connect(&server);
    write!(&stream, "{HEAD}connection: close\r\ncontent-length: 12\r\n\r\n{{\"goods\": 7}}").unwrap();
    let answer = rest(&stream);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(r#"{"goods": 7}"#), "{answer}");
}

#[test]
fn a_byte_now_and_then_gains_no_time() {
    let (server, _guard) = shop();
    let stream = connect(&server);
    write!(&stream, "{HEAD}transfer-encoding: chunked\r\n\r\n").unwrap();
    let writer = stream.try_clone().unwrap();
    let dripping = std::thread::spawn(move || {
        // Ends when the server has closed the connection.
        let drops = (0..200).take_while(|_| {
            pause(TIMEOUT / 20);
            (&writer).write_all(b"1\r\n \r\n").is_ok()
        });
        drops.count()
    });
    // What it goes on to send may be answered with a reset that overtakes the answer.
    let mut answer = Vec::new();
    let _ = (&stream).read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(dripping.join().unwrap() < 200, "the connection was never closed");
}

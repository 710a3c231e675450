//! An nginx: answers on its own port, and gone with its folder.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use testkit::servers::Nginx;

#[test]
fn an_nginx_answers_as_configured_until_it_is_dropped() {
    let nginx = Nginx::http(|port| {
        format!("server {{ listen 127.0.0.1:{port}; location = /tea {{ return 200 warm; }} }}")
    });
    let mut stream = TcpStream::connect(nginx.addr()).unwrap();
    stream.write_all(b"GET /tea HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nwarm"), "{answer}");
    let address = nginx.addr();
    drop(nginx);
    assert!(TcpStream::connect(address).is_err(), "it must not outlive its owner");
}

#[test]
#[should_panic(expected = "unknown directive \"teapot\"")]
fn a_mistake_in_the_configuration_is_shown() {
    Nginx::http(|_| "teapot on;".to_owned());
}

//! A haproxy: passes connections on, and gone with its folder.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use testkit::servers::{Front, Haproxy};

#[test]
fn a_haproxy_passes_connections_on_until_it_is_dropped() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let haproxy = Haproxy::start(Front::Ipv4, server.local_addr().unwrap(), "send-proxy");
    let mut client = TcpStream::connect(haproxy.addr()).unwrap();
    client.write_all(b"tea").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut seen = String::new();
    server.accept().unwrap().0.read_to_string(&mut seen).unwrap();
    let (from, to) = (client.local_addr().unwrap(), haproxy.addr());
    let header = format!("PROXY TCP4 {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port());
    assert_eq!(seen, header + "tea");
    let address = haproxy.addr();
    drop(haproxy);
    assert!(TcpStream::connect(address).is_err(), "it must not outlive its owner");
}

#[test]
#[should_panic(expected = "unknown keyword 'teapot'")]
fn a_mistake_in_the_options_is_shown() {
    Haproxy::start(Front::Ipv4, SocketAddr::from(([127, 0, 0, 1], 1)), "teapot");
}

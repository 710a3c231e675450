//! Free ports, below those that the system gives to outgoing connections.
//!
//! A port from that range would be a trap: while its server is down, a client that keeps
//! trying to connect can be given the same port for its own end. It then is connected to
//! itself, and the server cannot come back.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

/// How many ports lie between the first of one test process and of the next.
const STRIDE: u32 = 61;

/// How often a server is started on other ports. Ports that somebody else takes in the same
/// instant are rare, and never several in a row.
pub(super) const ATTEMPTS: usize = 10;

static GIVEN: AtomicU32 = AtomicU32::new(0);

/// A port on which nobody listens, and which this process has not given out before. Another
/// process may be quicker, so a server that finds it taken has to be started on another.
pub(super) fn free() -> u16 {
    for _ in 0..COUNT {
        let nth = GIVEN.fetch_add(1, Ordering::Relaxed);
        let offset = process::id().wrapping_mul(STRIDE).wrapping_add(nth) % COUNT;
        let port = u16::try_from(FIRST + offset).expect("the last port of the range is below 65536");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("none of the {COUNT} ports from {FIRST} on is free on 127.0.0.1");
}

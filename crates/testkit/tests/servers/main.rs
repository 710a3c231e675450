//! The servers that other tests rely on, and that nothing of them stays behind.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod cluster;
mod haproxy;
mod nginx;
mod postgres;
mod proxy;
mod rabbit;
mod redis;
mod sentinels;
mod tls;

use std::path::PathBuf;
use std::time::Duration;
use testkit::servers::{RedisServer, Reply};

const SOON: Duration = Duration::from_secs(20);

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.into())
}

/// Gone without even a zombie.
fn is_gone(pid: u32) -> bool {
    !PathBuf::from(format!("/proc/{pid}")).exists()
}

fn folder(server: &RedisServer) -> PathBuf {
    PathBuf::from(server.cmd(&["CONFIG", "GET", "dir"]).items()[1].text())
}

//! Real servers for tests, each private to the test that starts it.
//!
//! Every server has its own port on 127.0.0.1 and its own folder, and is gone when it is
//! dropped, when the test panics, and when the whole test process is killed. Between a
//! client and a server a [`FaultProxy`] can stall, cut, delay and refuse.
//!
//! Waiting is for a condition ([`wait_until`]), never for a time. Whatever goes wrong
//! panics with what was expected and what the server's log says.

mod browser;
mod cluster;
mod conn;
mod haproxy;
mod nginx;
mod ports;
mod postgres;
mod process;
mod proxy;
mod rabbit;
mod redis;
mod reply;
mod sentinels;
mod tls;
mod wait;

pub use browser::Browser;
pub use cluster::Cluster;
pub use conn::Conn;
pub use haproxy::{Front, Haproxy};
pub use nginx::Nginx;
pub use postgres::PostgresServer;
pub use proxy::FaultProxy;
pub use rabbit::RabbitServer;
pub use redis::RedisServer;
pub use reply::Reply;
pub use sentinels::Sentinels;
pub use tls::TlsFiles;
pub use wait::{pause, wait_until};

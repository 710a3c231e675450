//! Guards what comes in over the network: whom a request comes from, and how many
//! connections are open.
//!
//! - [`ClientIp`] finds the client's address: the peer's, or what trusted proxies say.
#![cfg_attr(
    feature = "listen",
    doc = "- [`Listener`] limits connections, in all and by client, and reads the PROXY protocol."
)]

mod client_ip;
mod forwarded;
#[cfg(feature = "listen")]
mod listener;
mod network;
mod node;
mod peer;
#[cfg(feature = "listen")]
mod proxy_protocol;

pub use client_ip::{ClientIp, ClientIpError};
#[cfg(feature = "listen")]
pub use listener::{Connection, Listener, ListenerError, ListenerStats};
pub use network::NetworkError;
pub use peer::Peer;

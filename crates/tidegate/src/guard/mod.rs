//! Guards what comes in over the network: whom a request comes from, and how many
//! connections are open.
//!
//! - [`ClientIp`] finds the client's address: the peer's, or what trusted proxies say.

mod client_ip;
mod forwarded;
mod network;
mod node;
mod peer;

pub use client_ip::{ClientIp, ClientIpError};
pub use network::NetworkError;
pub use peer::Peer;

//! Guards for requests: which of them meet which limits under which key, and what those
//! who are refused are told. A tower layer, for axum, tonic, hyper and whatever else
//! speaks [`http`].
//!
//! ```
//! use tidegate::Limiter;
//! use tidegate::guard::{Guard, Rule};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let limiter = Limiter::new();
//! let guard = Guard::new(&limiter)
//!     .rule(Rule::new("search", "1/min").on("GET /search").by("header:x-api-key"))
//!     .build()?;
//!
//! let shop = tower::service_fn(|_: http::Request<()>| async {
//!     Ok::<_, std::convert::Infallible>(http::Response::new(String::from("found")))
//! });
//! let mut shop = ServiceBuilder::new().layer(guard.layer()).service(shop);
//!
//! let search = || http::Request::get("/search?q=tea").header("x-api-key", "k1").body(()).unwrap();
//! let found = shop.ready().await.unwrap().call(search()).await.unwrap();
//! assert_eq!(found.headers()["ratelimit-policy"], "\"search\";q=1;w=60");
//! assert_eq!(found.headers()["ratelimit"], "\"search\";r=0;t=60");
//!
//! let refused = shop.ready().await.unwrap().call(search()).await.unwrap();
//! assert_eq!(refused.status(), 429);
//! assert_eq!(refused.headers()["retry-after"], "60");
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! - A [`Rule`] says which requests ([`Rule::on`]), whose allowance ([`Rule::by`], a
//!   [`KeyExpr`]) and how much. All rules that apply are charged, or none.
//! - Waits are awaited (bounded in number), places of a concurrency limit are held until
//!   the answer's body has ended, and a client that goes away gives back what it reserved.
//! - A refusal is a 429 as `application/problem+json` with `Retry-After`, or what your
//!   [`Render`] makes of it; where [gRPC is served](GuardBuilder::grpc), its requests get
//!   `RESOURCE_EXHAUSTED` with a `RetryInfo`. No refusal is kept by caches.
//! - What is shown of keys is one switch, [`Rule::show_keys`]. By default clients see none of
//!   them, and log and store have secrets by their digest.
//! - An [`Observer`] and the log are told about every verdict as a [`Record`], whose text
//!   is a sentence that explains it.
//! - [`ClientIp`] finds the client's address: the peer's, or what trusted proxies say.
#![cfg_attr(
    feature = "listen",
    doc = "- [`Listener`] limits connections, in all and by client, and reads the PROXY protocol."
)]
//!
//! What a layer here deliberately does not do: authenticate (the app puts a
//! [`User`](crate::User) into the extensions), or limit how long a body may take that no rule
//! asks for.

mod guarded;
mod rule;
mod rules;

mod key;
mod key_bytes;
mod key_secret;
mod key_text;
mod key_value;
mod key_write;

mod checks;
mod facets;
mod list;
mod methods;
mod path;
mod route;
mod route_text;
mod text;

mod client_ip;
mod forwarded;
mod network;
mod node;
mod peer;

#[cfg(feature = "listen")]
mod listener;
#[cfg(feature = "listen")]
mod proxy_protocol;

mod asking;
mod body;
mod decide;
mod decided;
mod judge;
mod layer;

mod json_fields;
mod json_layer;
mod replay;

mod answer;
mod base64;
mod fields;
mod grpc;
mod headers;

mod matched;
mod observe;
mod record;

#[cfg(feature = "axum")]
mod axum;
mod error;

pub use answer::{Refused, Render};
#[cfg(feature = "axum")]
pub use axum::{Admitted, NotGuarded};
pub use body::Body;
pub use client_ip::{ClientIp, ClientIpError};
pub use decided::Decided;
pub use error::GuardError;
pub use facets::Facets;
pub use grpc::GrpcStatus;
pub use guarded::{Guard, GuardBuilder};
pub use headers::Headers;
pub use json_layer::{JsonFuture, JsonLayer, JsonService};
pub use key::{KeyError, KeyExpr};
pub use key_secret::stored_key;
pub use layer::{GuardFuture, GuardLayer, GuardService};
#[cfg(feature = "listen")]
pub use listener::{Connection, Listener, ListenerError, ListenerStats};
pub use matched::{GuardStats, RuleStats};
pub use network::NetworkError;
pub use observe::Observer;
pub use peer::Peer;
pub use record::{Outcome, Record};
pub use replay::Replay;
pub use rule::{Missing, Rule};

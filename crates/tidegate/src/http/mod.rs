//! Guards for requests: which of them meet which limits under which key, and what those
//! who are refused are told. A tower layer, for axum, tonic, hyper and whatever else
//! speaks [`http`].
//!
//! ```
//! use tidegate::Limiter;
//! use tidegate::http::Guard;
//! use tidegate::rules::Rule;
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
//! - A [`Rule`](crate::rules::Rule) says which requests ([`Rule::on`](crate::rules::Rule::on)), whose allowance ([`Rule::by`](crate::rules::Rule::by), a
//!   [`KeyExpr`](crate::rules::KeyExpr)) and how much. All rules that apply are charged, or none.
//! - Waits are awaited (bounded in number), places of a concurrency limit are held until
//!   the answer's body has ended, and a client that goes away gives back what it reserved.
//! - A refusal is a 429 as `application/problem+json` with `Retry-After`, or what your
//!   [`Render`] makes of it; where [gRPC is served](GuardBuilder::grpc), its requests get
//!   `RESOURCE_EXHAUSTED` with a `RetryInfo`. No refusal is kept by caches.
//! - What is shown of keys is one switch, [`Rule::show_keys`](crate::rules::Rule::show_keys). By default clients see none of
//!   them, and log and store have secrets by their digest.
//! - An [`Observer`](crate::rules::Observer) and the log are told about every verdict as a [`Record`](crate::rules::Record), whose text
//!   is a sentence that explains it.
//! - [`ClientIp`] finds the client's address: the peer's, or what trusted proxies say.
#![cfg_attr(
    feature = "listen",
    doc = "- [`Listener`](crate::listener::Listener) limits connections, in all and by client, and reads the PROXY protocol."
)]
//!
//! What a layer here deliberately does not do: authenticate (the app puts a
//! [`User`](crate::User) into the extensions), or limit how long a body may take that no rule
//! asks for.

pub(crate) mod guard;

pub(crate) mod body;
pub(crate) mod future;
pub(crate) mod layer;
pub(crate) mod service;

pub(crate) mod admission;
pub(crate) mod extension;
pub(crate) mod facts;
pub(crate) mod text;

pub(crate) mod client_ip;
pub(crate) mod json;
pub(crate) mod response;

#[cfg(feature = "axum")]
mod axum;

#[cfg(feature = "axum")]
pub use axum::{Admitted, NotGuarded};
pub use body::Body;
pub use client_ip::peer::Peer;
pub use client_ip::{ClientIp, ClientIpError};
pub use extension::Decided;
pub use facts::RequestFacts;
pub use future::GuardFuture;
pub use guard::{Guard, GuardBuilder};
pub use json::layer::{JsonFuture, JsonLayer, JsonService};
pub use json::replay::Replay;
pub use layer::GuardLayer;
pub use response::grpc::GrpcStatus;
pub use response::headers::Headers;
pub use response::{Refused, Render};
pub use service::GuardService;

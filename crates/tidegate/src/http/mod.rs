//! The HTTP front end of [`rules`](crate::rules): a tower layer, for axum, tonic, hyper and
//! everything else that uses the crate [`http`]. It reads the facts of a request, and renders the
//! ruling as response and header fields.
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
//! - A [`Rule`](crate::rules::Rule) has the requests to which it applies
//!   ([`Rule::on`](crate::rules::Rule::on)), the key ([`Rule::by`](crate::rules::Rule::by), a
//!   [`KeyExpr`](crate::rules::KeyExpr)) and the limits. All rules that apply are charged, or none.
//! - Waits are awaited (bounded in number), slots of a concurrency limit are held until the
//!   response's body has ended, and a request whose client goes away gives back what it has reserved.
//! - A refusal is a 429 as `application/problem+json` with `Retry-After`, or what your
//!   [`Render`] makes of it; where [gRPC is served](GuardBuilder::grpc), its requests get
//!   `RESOURCE_EXHAUSTED` with a `RetryInfo`. No cache may store a refusal.
//! - One switch, [`Rule::show_keys`](crate::rules::Rule::show_keys), decides who gets keys. By
//!   default responses have none of them, and log and store have secrets by their digest.
//! - An [`Observer`](crate::rules::Observer) and the log get every verdict as a
//!   [`Record`](crate::rules::Record), whose text is a sentence that explains it.
//! - [`ClientIp`] finds the client's address: the peer's, or the one that trusted proxies state.
#![cfg_attr(
    feature = "listen",
    doc = "- [`Listener`](crate::listener::Listener) limits connections, in all and by client, and reads the PROXY protocol."
)]
//!
//! The layers do not authenticate (the app puts a [`User`](crate::User) into the extensions), and
//! do not limit how long a body may take that no rule needs.

pub(crate) mod guard;

pub(crate) mod body;
pub(crate) mod future;
pub(crate) mod layer;
pub(crate) mod service;

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

//! A flash sale that never oversells and loses no accepted order.
//!
//! The way of a buyer: admission (a token bucket by goods, beside limits by user and by
//! address) hands out a one-time path; the path takes stock and gives an order number, which
//! is answered only once it is durable; the order is written to the database, and its state
//! can be asked for from the moment its number exists.
//!
//! Everything that counts units is an engine's (see `engine.rs`): one process and one
//! SQLite file, or Redis, RabbitMQ and PostgreSQL. The rest is the same for both.

mod goods;
mod order;
mod path;
mod sale;

mod admission;
mod auth;
mod books;
mod embedded;
mod engine;
mod front;
mod http;
mod line;
mod refusal;
mod request_limits;
mod sampled;
mod secret;
mod shared_books;
mod shown;
mod time;

#[cfg(feature = "servers")]
mod servers;
#[cfg(test)]
mod suite;

pub use auth::{AdminToken, AdminTokenError, Authenticator, ProxyHeader, ProxyHeaderError};
pub use books::{Audit, Books, DeadLetter, Difference, Sums};
pub use embedded::SaleOpenError;
pub use front::{SaleBuilder, SaleService, StartError};
pub use goods::{GoodsId, IdError, UserId};
pub use http::{Http, Starting, serve};
pub use order::{Order, OrderSn, OrderSnError, OrderState};
pub use refusal::{Refusal, Text};
pub use sale::{Change, PausedFrom, Sale, SaleError, SaleState};
pub use secret::{Secret, SignedTokens};
#[cfg(feature = "servers")]
pub use servers::{AnswerAfter, ServersConfig};
pub use shown::Shown;

/// The guide is tried out with the other examples.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/sale.md")]
    struct Sale;
}

// What is made beside a deferred function compiles in a crate that denies what it can.
#![deny(warnings, missing_docs, unused, unreachable_pub)]
#![forbid(unsafe_code)]
//! Documented.

use std::sync::Arc;
use tidegate::{Limiter, Refusal, limited};
use tidegate_journal::{Deferred, Journal, Method, Worker};

/// Documented.
#[derive(Debug)]
pub enum Error {
    /// Documented.
    Refused(Refusal),
    /// Documented.
    Deferred(Deferred),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Deferred> for Error {
    fn from(deferred: Deferred) -> Self {
        Self::Deferred(deferred)
    }
}

/// Documented.
#[limited("5/s", otherwise = defer)]
#[tracing::instrument(skip_all)]
pub async fn free<'a>(mut id: u64, name: &'a str) -> Result<u64, Error> {
    #[expect(clippy::assign_op_pattern)]
    {
        id = id + name.len() as u64;
    }
    Ok(id)
}

#[limited("5/s wait 1ms", blocking, key = id, otherwise = defer(key = id, deadline = std::time::Duration::from_secs(60)))]
#[allow(unused_mut)]
fn blocking(mut id: u64) -> Result<u64, Error> {
    Ok(id)
}

// An error that both convert into.
#[limited("5/s", otherwise = defer)]
async fn boxed(id: u64) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    Ok(id)
}

// `Self` of an item within is not its own.
#[limited("5/s", otherwise = defer(method = "items"))]
async fn items(id: u64) -> Result<u64, Error> {
    struct Inner(u64);
    impl Inner {
        fn new(id: u64) -> Self {
            Self(id)
        }
    }
    Ok(Inner::new(id).0)
}

struct Till;

// One name for the one method that the block limits.
#[limited("5/s", otherwise = defer(method = "till"))]
impl Till {
    async fn sell(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[limited("5/s", otherwise = defer(method = "till_back"))]
    async fn take_back(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[limited(off)]
    fn look(&self) {}
}

#[limited("5/s", otherwise = defer)]
#[cfg(any())]
async fn not_there(id: NoSuchType) -> Result<u64, Error> {
    Ok(id)
}

macro_rules! made {
    ($name:ident, $argument:ty, $method:expr) => {
        #[limited("5/s", otherwise = defer(method = $method))]
        async fn $name(argument: $argument) -> Result<String, Error> {
            Ok(argument.to_string())
        }
    };
}

made!(made, &str, "made");

/// Documented.
pub struct Shop {
    limiter: Limiter,
    journal: Journal,
}

impl Shop {
    /// Documented.
    #[limited("5/s", and(limit = "2 concurrent", key = id), limiter = self.limiter, otherwise = defer(journal = &self.journal))]
    pub async fn ship(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    /// Says `Self`.
    #[limited("5/s", otherwise = defer(method = "open"))]
    pub async fn open(id: u64) -> Result<u64, Error> {
        let _ = Self::methods;
        Ok(id)
    }

    /// Names that the generated code has, too.
    #[limited("5/s", key = this, otherwise = defer(key = call, priority = call as u8))]
    pub async fn same_names(&self, this: u64, call: u64, r#type: u8) -> Result<u64, Error> {
        Ok(this + call + u64::from(r#type))
    }

    fn methods(shop: &Arc<Self>) -> [Method; 10] {
        [
            free_deferred(),
            boxed_deferred(),
            blocking_deferred(),
            made_deferred(),
            items_deferred(),
            Till::sell_deferred(Arc::new(Till)),
            Till::take_back_deferred(Arc::new(Till)),
            Self::ship_deferred(shop.clone()),
            Self::open_deferred(),
            Self::same_names_deferred(shop.clone()),
        ]
    }

    fn worker(shop: &Arc<Self>) -> Worker {
        Self::methods(shop).into_iter().fold(Worker::new(&shop.journal), Worker::with)
    }
}

fn main() {
    assert_eq!(blocking(7).unwrap(), 7);
    assert_eq!(free_deferred().name(), "$CRATE::free".replace("$CRATE", module_path!()));
    let _ = (Shop::worker, made, items, boxed, Till::sell, Till::take_back, Till::look);
    let gates = Limiter::global().gates();
    assert_eq!(gates.len(), 1, "nobody was asked but for one call");
}

//! The attribute `#[limited(...)]`; use it as `tidegate::limited`, with the feature `macros`.
//!
//! It reads the limit with the library's own parser, so that a wrong one does not compile,
//! and puts one statement in front of the function's body. What that statement calls is
//! `tidegate::site`; nothing is counted here.

mod arguments;
mod attributes;
mod block;
mod deferral;
mod function;
mod future;
mod options;
mod owned;
mod replay;
mod rule;
mod suggest;

use function::Function;
use proc_macro::TokenStream;
use quote::ToTokens;
use rule::Rules;
use syn::{Error, ImplItem, Item, ItemImpl, Result, TraitItemFn};

/// Limits the calls of a function, a method, or all methods of an `impl` block.
///
/// ```
/// use tidegate::{Refusal, limited};
///
/// #[limited("1000/s burst 20", key = goods_id)]
/// fn stock(goods_id: u64) -> Result<u32, Refusal> {
///     Ok(7)
/// }
/// # assert_eq!(stock(1).unwrap(), 7);
/// ```
///
/// A call that is refused does not run. It returns `Err(E::from(refusal))`, so the function
/// returns a `Result` whose error can be made from a `tidegate::Refusal`, or the attribute
/// says what to do [`otherwise`](#otherwise).
///
/// | option | what it says | without it |
/// |---|---|---|
/// | `"1000/s"`, `limit = "1000/s"` | the limit, as text; a wrong one does not compile | has to be there |
/// | `key = goods_id` | whose allowance: an argument, a field of one, any expression over them that can be shown, or several: `(user_id, goods_id)` | one allowance for all calls |
/// | `by = ip`, `user`, `global`, `custom` | by the caller: `tidegate::Caller::current()`, or what an argument says: `by = ip(address)`, `by = user(account)`; goes with `key`; `(user, ip)` is both | `custom` with a key, `global` without |
/// | `missing = share`, `refuse` | what happens to a caller whom `by` does not find | `share`: all of them share one allowance |
/// | `cost = items.len()` | units that a call takes: any unsigned whole number | 1 |
/// | `name = "checkout"` | the gate's name, in refusals, metrics and `Limiter::get` | the function's full path, `shop::Desk::sell` |
/// | `prefix = "goods:"` | stands before the key, as it is | the function's full path and `/` if there is a `name`; else nothing |
/// | `and(limit = "...", ...)` | another limit with its own `key`, `by`, `missing`, `cost`, `name`, `prefix`; all are charged, or none | |
/// | `limiter = self.limiter` | the limiter: an argument, a field, any expression that is or borrows one | `Limiter::global()` |
/// | `otherwise = ...` | what a refused call returns | `Err(E::from(refusal))` |
/// | `otherwise = defer` | [it is recorded and runs later](#deferred) | |
/// | `blocking` | a function that is not async waits on its thread | a limit that can wait does not compile there |
/// | `crate = path` | where the library is, if it has another name | `::tidegate` |
/// | `off` | on a method of a limited `impl` block: not limited | |
///
/// # Whose allowance
///
/// ```
/// use tidegate::{Caller, Refusal, User, limited};
///
/// struct Order {
///     goods_id: u64,
///     units: u32,
/// }
///
/// #[limited("100/s", key = order.goods_id, cost = order.units)]
/// fn sell(order: &Order) -> Result<(), Refusal> {
///     Ok(())
/// }
///
/// #[limited("1/day", by = user, missing = refuse)]
/// fn export() -> Result<&'static str, Refusal> {
///     Ok("all of it")
/// }
///
/// assert!(sell(&Order { goods_id: 1, units: 2 }).is_ok());
/// assert!(export().is_err(), "nobody knows who calls");
/// let ann = Caller::new().user(User::new("ann"));
/// assert!(ann.enter(export).is_ok());
/// assert_eq!(ann.enter(export).unwrap_err().key(), "user:ann");
/// ```
///
/// A key is written by `Display`, on the stack. Parts of several are told apart whatever
/// they hold. An address counts by its client: IPv6 by its /64.
///
/// **Names and prefixes.** A function without a `name` has a gate of its own, named by its
/// path. Functions with the same `name` and the same limit share a gate (one line in a
/// metric, one thing to change live), but not allowances: each has its path before its
/// keys. With the same `prefix`, `""` for example, they share those, too.
///
/// A path that is longer than a gate's name may be, or holds what none may hold (`&Desk`,
/// `fn 买`), comes after a digest. Two functions of one name in two blocks of the same
/// function have one path: give them names. The compiler makes the path: where processes
/// share limits through Redis and are built by different compilers, say a `name` and a
/// `prefix`.
///
/// # Otherwise
///
/// - A path to a function is called with the function's own arguments (`self` first, in
///   a method) and the refusal. `otherwise = path.await` awaits it.
/// - A closure is called with the refusal, and sees the arguments; it may be `async`.
/// - Anything else is the value to return: `otherwise = None`. (A path is a function if
///   its last word begins with a small letter and no argument has that name.)
///
/// ```
/// use tidegate::{Refusal, limited};
///
/// fn from_cache(query: &str, _: Refusal) -> Vec<String> {
///     vec![format!("an older answer to {query}")]
/// }
///
/// #[limited("1/day", otherwise = from_cache)]
/// fn search(query: &str) -> Vec<String> {
///     vec![format!("a new answer to {query}")]
/// }
///
/// #[limited("1/day", otherwise = |refusal| Err(refusal.to_string()))]
/// fn report() -> Result<u32, String> {
///     Ok(1)
/// }
///
/// assert_eq!(search("tea"), ["a new answer to tea"]);
/// assert_eq!(search("tea"), ["an older answer to tea"]);
/// assert!(report().is_ok());
/// assert!(report().unwrap_err().starts_with("denied by "));
/// ```
///
/// # Deferred
///
/// `otherwise = defer` is for calls that must not be lost. A refused call is recorded, with its
/// arguments by name, in a journal of the crate `tidegate-journal`, and answers
/// `Err(E::from(Deferred))` with the record's guid as soon as that is on the disk. Beside the
/// function stands another one, `ship_deferred`: what it returns is given to a worker, which
/// asks the same limits, with the recorded arguments, and then runs the body, unguarded.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Refusal, limited};
/// use tidegate_journal::{Deferred, Journal, Worker};
///
/// #[derive(Debug)]
/// enum ShipError {
///     Busy(Refusal),
///     Later(Deferred),
/// }
/// # impl From<Refusal> for ShipError { fn from(refusal: Refusal) -> Self { Self::Busy(refusal) } }
/// # impl From<Deferred> for ShipError { fn from(deferred: Deferred) -> Self { Self::Later(deferred) } }
/// # impl std::fmt::Display for ShipError {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, "{self:?}") }
/// # }
///
/// #[limited("2 per 100ms", otherwise = defer(key = order_id, deadline = "1h"))]
/// async fn ship(order_id: u64, to: &str) -> Result<String, ShipError> {
///     Ok(format!("order {order_id} is on its way to {to}"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("calls.db");
/// Journal::set_global(Journal::sqlite(path).await?).expect("there was none");
/// let journal = Journal::global().expect("it was set");
/// let worker = Worker::new(journal).with(ship_deferred()).start();
///
/// for order_id in 1.. {
///     match ship(order_id, "Bern").await {
///         Err(ShipError::Later(deferred)) => {
///             let record = journal.wait(&deferred.guid, Duration::from_secs(10)).await?;
///             let result = record.and_then(|record| record.result);
///             assert_eq!(result, Some(format!(r#""order {order_id} is on its way to Bern""#)));
///             break;
///         }
///         now => assert!(now.is_ok()),
///     }
/// }
/// worker.stop().await;
/// # Ok(()) }
/// ```
///
/// | `defer(...)` | what it says | without it |
/// |---|---|---|
/// | `key = order_id` | the idempotency key, anything that can be shown: the same key of the same method is the same record | each call is a record of its own |
/// | `deadline = "1h"` | what has not started by then expires; a text, or a `Duration` | whenever there is room |
/// | `priority = 9` | 0 to 9, the highest first | 5 |
/// | `method = "ship"` | the method's name in the journal, 64 bytes at most | the function's full path |
/// | `journal = self.journal` | the journal: any expression over the arguments that is or borrows one | `Journal::global()` |
/// | `crate = path` | where the journal's crate is, if it has another name | `::tidegate_journal` |
///
/// - **If it cannot be recorded** (the journal is full, the database is gone, there is no
///   journal, the arguments are too large), the call is refused like any other:
///   `Err(E::from(refusal))`. The `source` of that refusal is the `DeferError`. So `E` is
///   `From<Deferred>` and `From<Refusal>`. A call that can never fit (it costs more than the
///   limit has) is refused, too, not recorded.
/// - **Arguments** implement `Serialize` and `Deserialize`. `&str`, `&[T]`, `&Path` and `&T` are
///   replayed from an owned `String`, `Vec<T>`, `PathBuf` and `T`. An `Option` that a record does
///   not have is none, so one can be added while records are pending. `T` implements `Serialize`:
///   it is the record's result.
/// - **Errors of the body**, when it is replayed, are tried again with backoff, by their
///   `Display`. With `impl From<E> for JobError` the error itself says whether it may pass.
/// - **Methods** take `&self` or `self: Arc<Self>`, and the worker is given what to call them on:
///   `Shop::ship_deferred(shop)` takes an `Arc<Shop>`. Not in the `impl` of a trait, which has no
///   place for what stands beside; and a function without `self` that never says `Self` is taken
///   for a free one, unless the attribute is on its `impl` block.
/// - **A function that is not async** says `blocking`: it waits for the disk on its thread. Its
///   replay runs on a thread for blocking work. With PostgreSQL it cannot wait on the only thread
///   of a runtime: there it is refused.
/// - **Nobody calls** when a call runs later: `by = ip` and `by = user` name an argument.
/// - Names of functions change, records stay: say a `method` where records may be pending while
///   a new release with another path starts.
///
/// # Waiting and places
///
/// An async function awaits the limit's `wait`, under any executor; dropped while it waits,
/// it gives its start back as far as `Permit::cancel` can. A place of a concurrency limit is
/// held until the function's body is over, or its future is dropped. What outlives a body
/// in Rust outlives the place, too: arguments that were not moved, and in edition 2021 the
/// temporaries of its last expression. What must not, is moved or bound inside:
/// `let connection = connection;`.
///
/// ```
/// use tidegate::{Refusal, limited};
///
/// #[limited("10 concurrent queue 50 wait 2s", and(limit = "1000/s burst 1s wait 1s"))]
/// async fn query(sql: &str) -> Result<u64, Refusal> {
///     Ok(1)
/// }
///
/// #[limited("5/s wait 1s", blocking)]
/// fn on_a_thread() -> Result<(), Refusal> {
///     Ok(())
/// }
/// # assert!(on_a_thread().is_ok());
/// ```
///
/// Whether a call may wait is said by the text here, how long by the limit in force. If a
/// limit was changed live to one that waits, a function whose text does not say so goes on
/// refusing at once. On a limiter over Redis, async functions await the answer; others wait for it on
/// their thread, within the store's deadline.
///
/// # On an `impl` block
///
/// ```
/// use tidegate::{Limiter, Refusal, limited};
///
/// struct Api {
///     limiter: Limiter,
/// }
///
/// #[limited("100/s", limiter = self.limiter)]
/// impl Api {
///     fn list(&self) -> Result<Vec<u64>, Refusal> {
///         Ok(vec![])
///     }
///
///     #[limited("5/s", limiter = self.limiter)] // instead of what the block says
///     fn export(&self) -> Result<String, Refusal> {
///         Ok(String::new())
///     }
///
///     #[limited(off)]
///     fn is_healthy(&self) -> bool {
///         true
///     }
/// }
/// # let api = Api { limiter: Limiter::new() };
/// # assert!(api.list().is_ok() && api.export().is_ok() && api.is_healthy());
/// ```
///
/// Each method counts for itself; with a `name` and `prefix = ""` they share one allowance.
/// Methods that a macro makes cannot be seen here: a macro in a limited block does not
/// compile.
///
/// # Other attributes
///
/// Attributes are applied from the top. Put `#[limited]` above those that make another
/// function of it (`#[tokio::main]`), otherwise it sees a function that is not async. With
/// `#[axum::debug_handler]` and `#[tracing::instrument]` any order works, and methods that
/// `#[async_trait]` has boxed are understood, as are functions whose body is nothing but
/// `Box::pin(async move { ... })`, or `async move { ... }` for an `impl Future`.
///
/// # Panics
///
/// The limited function panics at its first call if its gate cannot be put in force: if
/// the same name stands for another limit already, or if the limit is too fine for Redis.
/// The message says which line to change. Nobody is let through unlimited, nor refused
/// for no reason.
///
/// On the process's limiter a function keeps the gate that it found at its first call, also
/// after `Limiter::remove`: change a limit with `Gate::change`.
#[proc_macro_attribute]
pub fn limited(options: TokenStream, item: TokenStream) -> TokenStream {
    let item = proc_macro2::TokenStream::from(item);
    match expand(options, item.clone()) {
        Ok(limited) => limited.into(),
        Err(error) => {
            // The function stays, so that its callers are not reported as wrong, too.
            let mut out = error.into_compile_error();
            out.extend(without_own_attributes(item));
            out.into()
        }
    }
}

fn expand(options: TokenStream, item: proc_macro2::TokenStream) -> Result<proc_macro2::TokenStream> {
    let rules = Rules::new(&syn::parse(options)?)?;
    let place = "`#[limited]` goes on functions, methods and `impl` blocks";
    let wrong = |what: &str| Err(Error::new(rules.span, what));
    match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Fn(mut function)) => {
            attributes::check_once(&function.attrs)?;
            function::check_blocking(&rules, &function.sig)?;
            let beside = function::limit(&rules, &mut Function::item(&mut function))?;
            let mut out = function.into_token_stream();
            beside.iter().for_each(|function| function.to_tokens(&mut out));
            Ok(out)
        }
        Ok(Item::Impl(mut block)) => {
            block::limit(&rules, &mut block)?;
            Ok(block.into_token_stream())
        }
        Ok(Item::Trait(_)) => {
            wrong(&format!("{place}: write it on the `impl`, or on a method that has a body"))
        }
        _ if syn::parse2::<TraitItemFn>(item).is_ok() => {
            wrong("a method without a body cannot be limited: write it where the body is")
        }
        Ok(_) => wrong(place),
        Err(error) => Err(error),
    }
}

/// An `impl` block as it is, but for the attributes that only made sense in a limited one.
fn without_own_attributes(item: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    let Ok(mut block) = syn::parse2::<ItemImpl>(item.clone()) else { return item };
    for item in &mut block.items {
        if let ImplItem::Fn(method) = item {
            method.attrs.retain(|attribute| !attributes::is_limited(attribute));
        }
    }
    block.into_token_stream()
}

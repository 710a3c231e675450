//! Calls that must not be lost.
//!
//! A call that meets a limit, or whose service is down, is recorded by a [`Journal`] before
//! its caller is told "accepted, later". A [`Worker`] replays it as soon as its gate lets it,
//! and it ends visibly: done, failed, expired or cancelled. On SQLite, or on PostgreSQL.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("calls.db");
//! use std::time::Duration;
//! use tidegate_journal::{Call, JobError, Journal, Status, Worker};
//!
//! let journal = Journal::sqlite(path).await?;
//!
//! // Where a call is refused: once this returns, the call survives any crash.
//! let guid = journal.defer(Call::new("ship", &("order", 17))?.key("ship-17")).await?;
//!
//! // Elsewhere, or here: replay what is due.
//! let worker = Worker::new(&journal)
//!     .on("ship", |(what, number): (String, u64)| async move { Ok::<_, JobError>(format!("{what} {number}")) })
//!     .start();
//!
//! let record = journal.wait(&guid, Duration::from_secs(10)).await?.expect("it was recorded");
//! assert_eq!(record.status, Status::Done);
//! assert_eq!(record.result.as_deref(), Some(r#""order 17""#));
//! worker.stop().await;
//! # Ok(()) }
//! ```
//!
//! - A record runs **at least once** or ends visibly, and its end is entered **once**: a lease
//!   has a number, and only its holder can enter anything.
//! - The crate knows nothing of limits: a [`Worker::gate`] says when a replay may start.
//! - `#[limited(..., otherwise = defer)]` of the crate `tidegate` records a function's refused
//!   calls and makes the [`Method`] that replays them.
//! - Everything is bounded: pending records, callers in the queue, records in hand, attempts.
//! - The guide is `docs/journal.md`.

#[cfg(not(any(feature = "sqlite", feature = "postgres")))]
compile_error!("a journal needs a database: turn on the feature `sqlite` or `postgres`");

mod call;
mod guid;
mod journal;
mod record;

mod worker;

mod builder;
mod error;
mod schedule;
mod stats;

#[doc(hidden)]
pub mod site;

#[cfg(feature = "axum")]
mod router;

mod backend;
mod batch;
mod blocking;
mod clock;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod wall;
mod watch;

pub use builder::JournalBuilder;
pub use call::{Call, CallError, KEY_MAX, METHOD_MAX, PARAMS_MAX};
pub use error::{Bound, DeferError, JournalError};
pub use guid::{Guid, GuidError};
pub use journal::{Deferred, Journal, Opened};
pub use record::{Cancelled, Filter, Page, Record, Retried, Status};
#[cfg(feature = "axum")]
pub use router::router;
pub use schedule::{Schedule, ScheduleError};
pub use stats::{JournalStats, MethodDepth, Pass, WorkerStats};
#[cfg(feature = "sqlite")]
pub use wall::TimeSource;
pub use worker::{Go, JobError, Method, Replay, Running, Worker};

/// The examples of the guide are tests.
#[cfg(all(doctest, feature = "sqlite", feature = "postgres", feature = "axum"))]
mod guides {
    #[doc = include_str!("../../../docs/journal.md")]
    struct Guide;
}

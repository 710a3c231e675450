//! Calls that must not be lost.
//!
//! A call that meets a limit, or whose service is down, is recorded by a [`Journal`] before
//! its caller is told "accepted, later".
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("calls.db");
//! use tidegate_journal::{Call, Journal, Status};
//!
//! let journal = Journal::sqlite(path).await?;
//! let guid = journal.defer(Call::new("ship", &("order", 17))?.key("ship-17")).await?;
//! assert_eq!(journal.status(&guid).await?, Some(Status::Pending));
//! # Ok(()) }
//! ```

#[cfg(not(any(feature = "sqlite", feature = "postgres")))]
compile_error!("a journal needs a database: turn on the feature `sqlite` or `postgres`");

mod call;
mod guid;
mod journal;
mod record;

mod builder;
mod error;
mod stats;

mod backend;
mod clock;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod wall;
mod watch;

pub use builder::JournalBuilder;
pub use call::{Call, CallError, KEY_MAX, METHOD_MAX, PARAMS_MAX};
pub use error::{Bound, DeferError, JournalError};
pub use guid::{Guid, GuidError};
pub use journal::{Deferred, Journal};
pub use record::{Cancelled, Filter, Page, Record, Retried, Status};
pub use stats::{JournalStats, MethodDepth, Pass, WorkerStats};
#[cfg(feature = "sqlite")]
pub use wall::TimeSource;

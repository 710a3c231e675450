//! How a journal is set up. Everything has a default; nothing is read from the environment.

#[cfg(feature = "sqlite")]
use crate::wall::{SystemTimeSource, TimeSource};
use crate::{Journal, JournalError};
use std::time::Duration;

/// Sets up a journal. See [`Journal::builder`].
///
/// ```
/// # async fn open() -> Result<(), tidegate_journal::JournalError> {
/// use tidegate_journal::Journal;
///
/// let journal = Journal::builder().pending_max(100_000).method_max(20_000).sqlite("calls.db").await?;
/// # Ok(()) }
/// ```
pub struct JournalBuilder {
    pub(crate) settings: Settings,
    #[cfg(feature = "sqlite")]
    pub(crate) time: Option<Box<dyn TimeSource>>,
}

/// What both databases need to know.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) table: String,
    /// Who may read and write, and who may only read. PostgreSQL only.
    pub(crate) roles: Option<(String, String)>,
    pub(crate) pending_max: u64,
    pub(crate) method_max: u64,
    pub(crate) queue_max: usize,
    pub(crate) batch_max: usize,
    pub(crate) patience: Duration,
    /// Nothing is made: there is a journal, or opening fails.
    pub(crate) must_exist: bool,
}

impl JournalBuilder {
    pub(crate) fn new() -> Self {
        let settings = Settings {
            table: "t_method_limit_log".to_owned(),
            roles: Some(("tidegate_rw".to_owned(), "tidegate_ro".to_owned())),
            pending_max: 1_000_000,
            method_max: 1_000_000,
            queue_max: 10_000,
            batch_max: 1_000,
            patience: Duration::from_secs(5),
            must_exist: false,
        };
        Self {
            settings,
            #[cfg(feature = "sqlite")]
            time: None,
        }
    }

    /// The table's name, `t_method_limit_log` unless said; its companions' names begin with it.
    #[must_use]
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.settings.table = name.into();
        self
    }

    /// On PostgreSQL, the roles that may read and write, and only read: `tidegate_rw` and
    /// `tidegate_ro` unless said. They are made where the user may make roles.
    #[must_use]
    pub fn roles(mut self, read_write: impl Into<String>, read_only: impl Into<String>) -> Self {
        self.settings.roles = Some((read_write.into(), read_only.into()));
        self
    }

    /// On PostgreSQL, neither makes roles nor grants anything.
    #[must_use]
    pub fn without_roles(mut self) -> Self {
        self.settings.roles = None;
        self
    }

    /// How many records may be pending in all; a million unless said. Exact on SQLite, and on
    /// PostgreSQL for a single process; of several, each may exceed it by what it has under way at
    /// once, two batches (2,000 records).
    #[must_use]
    pub fn pending_max(mut self, records: u64) -> Self {
        self.settings.pending_max = records;
        self
    }

    /// How many records of one method may be pending; a million unless said. As exact as
    /// [`pending_max`](Self::pending_max).
    #[must_use]
    pub fn method_max(mut self, records: u64) -> Self {
        self.settings.method_max = records;
        self
    }

    /// How many callers of this process may wait for their commit; 10,000 unless said.
    #[must_use]
    pub fn queue_max(mut self, callers: usize) -> Self {
        self.settings.queue_max = callers.max(1);
        self
    }

    /// How long a locked file or a server that is gone is waited for before the caller is
    /// told; 5 s unless said.
    #[must_use]
    pub fn patience(mut self, time: Duration) -> Self {
        self.settings.patience = time;
        self
    }

    /// Opens only what is a journal already, and makes neither file nor table nor role. For
    /// programs that look at what others recorded: a name that is wrong is told, not made true.
    #[must_use]
    pub fn must_exist(mut self) -> Self {
        self.settings.must_exist = true;
        self.settings.roles = None;
        self
    }

    /// On SQLite, another clock: for tests.
    #[cfg(feature = "sqlite")]
    #[must_use]
    pub fn time_source(mut self, source: impl TimeSource) -> Self {
        self.time = Some(Box::new(source));
        self
    }

    /// Opens a file, and makes it where there is none, for its owner only (0600). One that everybody
    /// may open is closed to them; one that is shared with a group stays so.
    ///
    /// # Errors
    /// Where it cannot be opened, or is no journal.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite(self, path: impl AsRef<std::path::Path>) -> Result<Journal, JournalError> {
        self.check()?;
        let time = self.time.unwrap_or_else(|| Box::new(SystemTimeSource));
        let (backend, opened, notes) =
            crate::sqlite::Sqlite::open(path.as_ref(), &self.settings, time).await?;
        Ok(Journal::over(backend, &self.settings, opened, notes))
    }

    /// Connects to a server: `postgres://user:password@host/database`.
    ///
    /// With the feature `tls`, `?sslmode=` means what it means to libpq: `disable`, `prefer` (the
    /// default), `require`, `verify-ca` and `verify-full`, the last two with the authorities of
    /// the system or those in `&sslrootcert=FILE`. Without the feature nothing is encrypted, and
    /// the last three are refused. For anything else, such as certificates of clients, build a
    /// pool and use [`postgres_pool`](Self::postgres_pool).
    ///
    /// # Errors
    /// Where the address is wrong, the server does not answer in time, or the table cannot be
    /// made.
    #[cfg(feature = "postgres")]
    pub async fn postgres(self, url: &str) -> Result<Journal, JournalError> {
        let pool = crate::postgres::pool(url)?;
        self.postgres_pool(pool).await
    }

    /// Uses a pool of connections, which should hold at least four.
    ///
    /// # Errors
    /// As [`postgres`](Self::postgres).
    #[cfg(feature = "postgres")]
    pub async fn postgres_pool(self, pool: deadpool_postgres::Pool) -> Result<Journal, JournalError> {
        self.check()?;
        let (backend, opened, notes) = crate::postgres::Postgres::open(pool, &self.settings).await?;
        Ok(Journal::over(backend, &self.settings, opened, notes))
    }

    /// Names stand in statements, so only plain ones are let through.
    fn check(&self) -> Result<(), JournalError> {
        let roles = self.settings.roles.iter().flat_map(|(rw, ro)| [rw, ro]);
        for name in roles.chain([&self.settings.table]) {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            let begins = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
            if !begins || name.len() > 40 || !name.bytes().all(is_plain) {
                return Err(JournalError::Named(format!(
                    "`{name}` is no name for a table or a role: use up to 40 of a-z, 0-9 and _, no digit first"
                )));
            }
        }
        Ok(())
    }
}

impl Settings {
    /// What [`must_exist`](JournalBuilder::must_exist) says where the tables are missing.
    pub(crate) fn no_journal(&self) -> JournalError {
        let table = &self.table;
        JournalError::Open(format!(
            "there is no journal with the table `{table}` here; make it with \
             `tidegate journal init`, or let a program open it to record calls"
        ))
    }

    /// The same where they are of an older version, which would have to be changed.
    pub(crate) fn older(&self, found: impl std::fmt::Display, known: impl std::fmt::Display) -> JournalError {
        let table = &self.table;
        JournalError::Open(format!(
            "`{table}` has version {found}, and this program needs {known}; bring it up to date with \
             `tidegate journal init` of this release, or let a program of it open it to record calls"
        ))
    }
}

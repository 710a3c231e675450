//! Where a test's journal lives: the same tests run on both.

use rusqlite::types::Value;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tempfile::TempDir;
use testkit::servers::PostgresServer;
use tidegate_journal::{Call, Guid, Journal, JournalBuilder, JournalError, Status, Worker};

/// For machines that are busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) enum Place {
    Sqlite { folder: TempDir },
    Postgres { url: String },
}

/// One server for all tests of this process; each has a database of its own.
pub(crate) fn server() -> &'static PostgresServer {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    SERVER.get_or_init(PostgresServer::start)
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn postgres() -> Self {
        Self::Postgres { url: server().database() }
    }

    pub(crate) async fn journal(&self) -> Journal {
        self.open(Journal::builder()).await.unwrap()
    }

    pub(crate) async fn open(&self, builder: JournalBuilder) -> Result<Journal, JournalError> {
        match self {
            Self::Sqlite { .. } => builder.sqlite(self.path()).await,
            Self::Postgres { url } => builder.postgres(url).await,
        }
    }

    /// What a child process opens.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Sqlite { .. } => self.path().display().to_string(),
            Self::Postgres { url } => url.clone(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Sqlite { folder } => folder.path().join("journal.db"),
            Self::Postgres { .. } => panic!("a server is no file"),
        }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite { .. })
    }

    /// Runs statements; the rows of the last one, values apart by `|`.
    pub(crate) fn sql(&self, statements: &str) -> String {
        match self {
            Self::Sqlite { .. } => sqlite(&self.path(), statements),
            Self::Postgres { url } => server().sql_in(url, statements),
        }
    }

    pub(crate) fn count(&self, condition: &str) -> u64 {
        self.sql(&format!("SELECT count(*) FROM t_method_limit_log WHERE {condition}")).parse().unwrap()
    }

    /// Makes everything look older.
    pub(crate) fn age(&self, columns: &[&str], by: Duration) {
        for column in columns {
            let older = match self {
                Self::Sqlite { .. } => format!("{column} - {}", by.as_micros()),
                Self::Postgres { .. } => format!("{column} - interval '{} microseconds'", by.as_micros()),
            };
            self.sql(&format!("UPDATE t_method_limit_log SET {column} = {older} WHERE {column} IS NOT NULL"));
        }
    }
}

pub(crate) fn sqlite(path: &std::path::Path, statements: &str) -> String {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.busy_timeout(PATIENCE).unwrap();
    let (first, last) = match statements.trim_end_matches(';').rsplit_once(';') {
        Some((first, last)) => (first, last),
        None => ("", statements),
    };
    conn.execute_batch(first).unwrap();
    let mut statement = conn.prepare(last).unwrap();
    let columns = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let shown = |column| match row.get::<_, Value>(column).unwrap() {
            Value::Null => String::new(),
            Value::Integer(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Text(text) => text,
            Value::Blob(bytes) => format!("{bytes:?}"),
        };
        lines.push((0..columns).map(shown).collect::<Vec<_>>().join("|"));
    }
    lines.join("\n")
}

/// Runs a test in a runtime of its own.
pub(crate) fn run(place: &Place, test: impl AsyncFnOnce(&Place)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(test(place));
}

/// Each of these on SQLite and on PostgreSQL.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $name() { $crate::place::run(&$crate::place::Place::sqlite(), super::$name); })*
        }
        mod postgres {
            $(#[test] fn $name() { $crate::place::run(&$crate::place::Place::postgres(), super::$name); })*
        }
    };
}

pub(crate) fn call(method: &str, params: impl serde::Serialize) -> Call {
    Call::new(method, &params).unwrap()
}

/// A worker that looks often and waits little.
pub(crate) fn worker(journal: &Journal) -> Worker {
    let (first, most) = (Duration::from_millis(1), Duration::from_millis(20));
    Worker::new(journal).poll(Duration::from_millis(5)).backoff(first, most)
}

pub(crate) async fn status(journal: &Journal, guid: &Guid) -> Status {
    journal.status(guid).await.unwrap().unwrap()
}

/// Waits for its end.
pub(crate) async fn end(journal: &Journal, guid: &Guid) -> tidegate_journal::Record {
    let record = journal.wait(guid, PATIENCE).await.unwrap().unwrap();
    assert!(record.status.has_ended(), "{guid} has not ended: {record:?}");
    record
}

/// Asks again and again until it is so, without keeping the runtime from its work.
pub(crate) async fn until<T>(what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, ask).await
}

/// The same, for what takes longer.
pub(crate) async fn until_within<T>(
    patience: Duration,
    what: &str,
    mut ask: impl AsyncFnMut() -> Option<T>,
) -> T {
    let asked = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(patience, asked).await.unwrap_or_else(|_| panic!("waited in vain until {what}"))
}

/// Waits until what a look into memory tells is so.
pub(crate) async fn seen(what: &str, mut look: impl FnMut() -> bool) {
    let looked = async {
        while !look() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looked).await.unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

/// Counts who is inside at once. Nobody leaves before as many as may be have met there.
#[derive(Clone)]
pub(crate) struct Crowd {
    expected: usize,
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Crowd {
    pub(crate) fn of(expected: usize) -> Self {
        Self { expected, now: Arc::default(), most: Arc::default() }
    }

    pub(crate) async fn meet(&self) {
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        seen("they meet", || self.most() >= self.expected).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// How many times more than usual.
pub(crate) fn cases() -> usize {
    std::env::var("TIDEGATE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

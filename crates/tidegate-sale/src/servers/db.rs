//! PostgreSQL: connections, deadlines, and what its errors mean.

use crate::engine::{AdminError, Fault};
use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use std::error::Error as _;
use std::time::Duration;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, NoTls, Row};

/// What a server that is well never needs.
pub(super) const DB_MAX: Duration = Duration::from_secs(5);

pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

/// An error of the moment or the surroundings, or one that would be the same again.
#[derive(Debug, thiserror::Error)]
pub(super) enum DbError {
    #[error("PostgreSQL: {0}")]
    Passing(String),
    #[error("{0}")]
    Refused(String),
}

impl From<tokio_postgres::Error> for DbError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            let text =
                error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
            return Self::Passing(text);
        };
        let text = format!("{} (SQLSTATE {})", db.message(), db.code().code());
        // Only what is wrong with the row itself: a value, a constraint, or what a trigger of the
        // owner's says. A missing right, table or disk is nobody's order's fault, and passes
        // once somebody has seen to it.
        match db.code().code() {
            "P0001" => Self::Refused(text),
            code if code.starts_with("22") || code.starts_with("23") => Self::Refused(text),
            _ => Self::Passing(text),
        }
    }
}

impl From<DbError> for Fault {
    fn from(error: DbError) -> Self {
        Self { what: error.to_string() }
    }
}

impl From<DbError> for AdminError {
    fn from(error: DbError) -> Self {
        Self::Fault(error.into())
    }
}

pub(super) fn fault(what: impl Into<String>) -> Fault {
    Fault { what: what.into() }
}

pub(super) struct Db {
    pool: Pool,
}

impl Db {
    /// At most so many connections.
    pub(super) fn new(url: &str, connections: usize) -> Result<Self, Fault> {
        // Its own error may show the password.
        let config: Result<Config, _> = url.parse();
        let mut config = config.map_err(|_| {
            fault("`postgres` is no address: write postgres://user:password@host:5432/database")
        })?;
        if config.get_application_name().is_none() {
            config.application_name("tidegate-sale");
        }
        config.connect_timeout(DB_MAX);
        // Whoever is cut off gives its locks back.
        config.tcp_user_timeout(2 * DB_MAX);
        let manager =
            Manager::from_config(config, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let prepare = Hook::async_fn(|client: &mut deadpool_postgres::ClientWrapper, _| {
            Box::pin(async move { client.batch_execute(SESSION).await.map_err(HookError::Backend) })
        });
        let builder = Pool::builder(manager).max_size(connections).runtime(Runtime::Tokio1);
        let builder = builder.wait_timeout(Some(DB_MAX)).create_timeout(Some(DB_MAX)).post_create(prepare);
        builder.build().map(|pool| Self { pool }).map_err(|error| fault(error.to_string()))
    }

    pub(super) async fn client(&self) -> Result<Object, DbError> {
        self.pool.get().await.map_err(|error| DbError::Passing(error.to_string()))
    }

    /// One statement.
    pub(super) async fn ask(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, DbError> {
        within(async {
            let client = self.client().await?;
            let statement = client.prepare_cached(sql).await?;
            Ok(client.query(&statement, params).await?)
        })
        .await
    }

    pub(super) fn close(&self) {
        self.pool.close();
    }
}

/// What was acknowledged survives a power cut, unless the server itself was told otherwise;
/// and nobody holds a lock for ever.
const SESSION: &str = "
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
    SET statement_timeout = '10s';
    SET idle_in_transaction_session_timeout = '10s'";

/// At most so long.
pub(super) async fn within<T>(work: impl Future<Output = Result<T, DbError>>) -> Result<T, DbError> {
    let late = || DbError::Passing(format!("no answer within {DB_MAX:?}"));
    tokio::time::timeout(DB_MAX, work).await.unwrap_or_else(|_| Err(late()))
}

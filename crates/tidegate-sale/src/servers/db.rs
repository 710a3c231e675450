//! PostgreSQL: connections, deadlines, and what its errors mean.

use crate::engine::{AdminError, Fault};
use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Metrics, Object, Pool, RecyclingMethod, Runtime,
};
use std::error::Error as _;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, NoTls, Row};

/// What a server that is well never needs.
pub(super) const DB_MAX: Duration = Duration::from_secs(5);

/// The database's clock, in milliseconds since 1970. When an order has to be paid, and whether a
/// sale has opened or closed, is judged by this one clock: those of Redis and of the processes
/// may differ from it.
pub(super) const NOW: &str = "floor(extract(epoch FROM clock_timestamp()) * 1000)::int8";

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
    /// `host:port`.
    pub(super) address: String,
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
        let address = address(&config);
        config.connect_timeout(DB_MAX);
        // A standby lags, and takes no writes.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        // Whoever is cut off gives its locks back.
        config.tcp_user_timeout(2 * DB_MAX);
        let manager =
            Manager::from_config(config, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let silent = Arc::new(Mutex::new(None));
        let is_heard = Hook::async_fn(move |client: &mut ClientWrapper, metrics: &Metrics| {
            let (silent, last_used) = (Arc::clone(&silent), metrics.last_used());
            Box::pin(async move { heard(client, last_used, &silent).await })
        });
        let prepare = Hook::async_fn(|client: &mut ClientWrapper, _| {
            Box::pin(async move { client.batch_execute(SESSION).await.map_err(HookError::Backend) })
        });
        let builder = Pool::builder(manager).max_size(connections).runtime(Runtime::Tokio1);
        let builder = builder.wait_timeout(Some(DB_MAX)).create_timeout(Some(DB_MAX));
        let builder = builder.post_create(prepare).pre_recycle(is_heard);
        builder.build().map(|pool| Self { pool, address }).map_err(|error| fault(error.to_string()))
    }

    pub(super) async fn client(&self) -> Result<Client, DbError> {
        let got = self.pool.get().await;
        got.map(|object| Client(Some(object))).map_err(|error| DbError::Passing(error.to_string()))
    }

    /// One statement.
    pub(super) async fn ask(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, DbError> {
        within(async {
            let client = self.client().await?;
            let statement = client.prepare_cached(sql).await?;
            let rows = client.query(&statement, params).await?;
            client.give_back();
            Ok(rows)
        })
        .await
    }

    pub(super) fn close(&self) {
        self.pool.close();
    }
}

/// Where it is, without user and password.
fn address(config: &Config) -> String {
    let host = |host: &Host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    };
    let hosts: Vec<String> = config.get_hosts().iter().map(host).collect();
    let ports: Vec<String> = config.get_ports().iter().map(ToString::to_string).collect();
    format!("{}:{}", hosts.join(","), if ports.is_empty() { "5432".to_owned() } else { ports.join(",") })
}

/// A connection that is in use. It goes back to the pool once its work has ended; one whose
/// work failed, was late or was given up is closed: it may hang, and the next who gets it would
/// wait for nothing.
pub(super) struct Client(Option<Object>);

const THERE: &str = "a client has its connection until it is given back";

impl Client {
    /// All that it was asked has been answered.
    pub(super) fn give_back(mut self) {
        drop(self.0.take());
    }

    /// Takes it out of the pool.
    pub(super) fn into_own(mut self) -> ClientWrapper {
        Object::take(self.0.take().expect(THERE))
    }
}

impl Deref for Client {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.0.as_ref().expect(THERE)
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Object {
        self.0.as_mut().expect(THERE)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.0.take().map(Object::take));
    }
}

/// A connection that was not used for so long is asked whether it is still there.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// Whether a connection still answers. A peer that is gone without a word acknowledges what it
/// is sent as long as a machine between them does, so only an answer tells. After the first that
/// says nothing, all that were used last before it are closed unasked: they went the same way.
async fn heard(
    client: &ClientWrapper,
    last_used: Duration,
    silent: &Mutex<Option<Instant>>,
) -> Result<(), HookError> {
    let is_suspect = |silent: &Option<Instant>| silent.is_some_and(|at| Instant::now() - last_used < at);
    if is_suspect(&silent.lock().unwrap_or_else(PoisonError::into_inner)) {
        return Err(HookError::message("a connection beside it went silent"));
    }
    if last_used < IDLE_MAX {
        return Ok(());
    }
    match tokio::time::timeout(IDLE_MAX, client.simple_query("")).await {
        Ok(answered) => answered.map(drop).map_err(HookError::Backend),
        Err(_) => {
            *silent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            Err(HookError::message("it went silent"))
        }
    }
}

/// What was acknowledged survives a power cut, unless the server itself was told otherwise;
/// and nobody holds a lock for ever.
const SESSION: &str = "
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
    SET statement_timeout = '10s';
    SET idle_in_transaction_session_timeout = '5s'";

/// At most so long.
pub(super) async fn within<T>(work: impl Future<Output = Result<T, DbError>>) -> Result<T, DbError> {
    let late = || DbError::Passing(format!("no answer within {DB_MAX:?}"));
    tokio::time::timeout(DB_MAX, work).await.unwrap_or_else(|_| Err(late()))
}

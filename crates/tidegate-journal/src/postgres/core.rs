//! Asking the server: one statement a question, tried again for as long as the patience lasts.

use super::address::{Address, Trust};
use super::fault::{Fault, fault_of};
use super::sql::Sql;
use crate::JournalError;
use crate::clock::instant;
use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use std::time::Duration;
#[cfg(feature = "tls")]
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, NoTls, Row};

pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

pub(super) struct Core {
    pub(super) pool: Pool,
    pub(super) sql: Sql,
    pub(super) patience: Duration,
}

/// Connections of a pool that we make: two flights of new records, claims, ends, leases, looks.
const CONNECTIONS: usize = 8;

/// One connection that does not answer is given up after this.
const CONNECT_MAX: Duration = Duration::from_secs(5);

pub(super) fn pool(url: &str) -> Result<Pool, JournalError> {
    let Address { mut config, trust } = Address::parse(url)?;
    if config.get_application_name().is_none() {
        config.application_name("tidegate-journal");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_MAX);
    }
    let manager = manager(config, &trust)?;
    // What was acknowledged survives a power cut, unless the server itself was told otherwise.
    let durable = Hook::async_fn(|client: &mut deadpool_postgres::ClientWrapper, _| {
        Box::pin(async move {
            let set = "SELECT set_config('synchronous_commit', 'on', false)
                       WHERE current_setting('synchronous_commit') = 'off'";
            client.execute(set, &[]).await.map(|_| ()).map_err(HookError::Backend)
        })
    });
    let builder = Pool::builder(manager).max_size(CONNECTIONS).runtime(Runtime::Tokio1).post_create(durable);
    builder.build().map_err(|error| JournalError::Open(error.to_string()))
}

#[cfg(feature = "tls")]
fn manager(config: Config, trust: &Trust) -> Result<Manager, JournalError> {
    if config.get_ssl_mode() == SslMode::Disable {
        return Ok(Manager::from_config(config, NoTls, RECYCLED));
    }
    Ok(Manager::from_config(config, super::tls::Tls::new(trust)?, RECYCLED))
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unnecessary_wraps, reason = "with encryption it may fail")]
fn manager(config: Config, _: &Trust) -> Result<Manager, JournalError> {
    Ok(Manager::from_config(config, NoTls, RECYCLED))
}

const RECYCLED: ManagerConfig = ManagerConfig { recycling_method: RecyclingMethod::Fast };

impl Core {
    /// One statement, within the patience. Whoever asks has to bear that it ran twice, if the
    /// connection broke after the first time.
    pub(super) async fn ask(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, JournalError> {
        self.ask_within(self.patience, sql, params)
            .await
            .map(|answer| answer.rows)
            .map_err(|fault| fault.error)
    }

    pub(super) async fn ask_within(
        &self,
        patience: Duration,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Answer, Fault> {
        let begun = instant();
        let mut wait = Duration::from_millis(20);
        let mut is_repeated = false;
        loop {
            let left = patience.saturating_sub(begun.elapsed()).max(Duration::from_millis(100));
            let fault = match self.ask_once(left, sql, params).await {
                Ok(rows) => return Ok(Answer { rows, is_repeated }),
                Err(fault) => fault,
            };
            is_repeated |= fault.is_unknown;
            let is_full = matches!(fault.error, JournalError::DiskFull(_));
            if !fault.error.is_passing() || is_full || begun.elapsed() + wait >= patience {
                return Err(Fault { is_unknown: is_repeated, ..fault });
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_millis(500));
        }
    }

    async fn ask_once(&self, left: Duration, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        let mut asked = Asked(Some(self.connection(left).await?));
        let Some(client) = &asked.0 else { unreachable!("it was just put there") };
        let answer = tokio::time::timeout(left, async {
            let statement = client.prepare_cached(sql).await?;
            client.query(&statement, params).await
        });
        let answer = answer.await.map_err(|_| Fault {
            error: JournalError::Gone(format!("no answer within {left:?}")),
            is_unknown: true,
        })?;
        asked.is_answered();
        answer.map_err(|error| fault_of(&error))
    }

    pub(super) async fn connection(&self, left: Duration) -> Result<Object, Fault> {
        let not_yet = |error| Fault { error, is_unknown: false };
        match tokio::time::timeout(left, self.pool.get()).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)))) => {
                Err(not_yet(fault_of(&error).error))
            }
            Ok(Err(PoolError::Closed)) => Err(not_yet(JournalError::Closed)),
            Ok(Err(error)) => Err(not_yet(JournalError::Gone(error.to_string()))),
            Err(_) => Err(not_yet(JournalError::Gone(format!("no connection within {left:?}")))),
        }
    }
}

/// A connection that was asked something. One that has not answered is closed instead of going
/// back to the pool, be it late, or that nobody waits for it any more: the next to use it would
/// wait behind a statement that hangs.
struct Asked(Option<Object>);

impl Asked {
    fn is_answered(&mut self) {
        self.0 = None;
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}

/// Rows, and whether the statement may have run before.
pub(super) struct Answer {
    pub(super) rows: Vec<Row>,
    pub(super) is_repeated: bool,
}

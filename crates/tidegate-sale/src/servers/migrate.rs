//! The tables, in versions. Any number of processes may start at once: one makes them.

use super::db::{Db, DbError};
use crate::secret::Secret;
use std::time::Duration;

/// One for all processes that make tables.
const LOCK: i64 = 0x7469_6465_7361_6c65;

/// Each runs once, in this order. What was released is never changed, only added to.
const VERSIONS: [&str; 3] = [include_str!("sql/1.sql"), include_str!("sql/2.sql"), include_str!("sql/3.sql")];

/// An index over the orders of a large shop takes its time.
const MIGRATE_MAX: Duration = Duration::from_secs(600);

pub(super) async fn migrate(db: &Db) -> Result<(), DbError> {
    let migrated = async {
        let mut client = db.client().await?;
        let tx = client.transaction().await?;
        tx.batch_execute("SET LOCAL statement_timeout = 0").await?;
        tx.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
        tx.batch_execute(
            "CREATE TABLE IF NOT EXISTS sale_settings (name text PRIMARY KEY, value text NOT NULL)",
        )
        .await?;
        let row = tx.query_opt("SELECT value FROM sale_settings WHERE name = 'version'", &[]).await?;
        let done: usize = row.and_then(|row| row.get::<_, String>(0).parse().ok()).unwrap_or(0);
        if done > VERSIONS.len() {
            let text =
                format!("the tables are of version {done}, newer than this program ({})", VERSIONS.len());
            return Err(DbError::Refused(text));
        }
        for version in &VERSIONS[done..] {
            tx.batch_execute(version).await?;
        }
        let keep = "INSERT INTO sale_settings VALUES ('version', $1)
                    ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        tx.execute(keep, &[&VERSIONS.len().to_string()]).await?;
        tx.commit().await?;
        client.give_back();
        Ok(())
    };
    let late = |_| Err(DbError::Passing(format!("the tables were not made within {MIGRATE_MAX:?}")));
    tokio::time::timeout(MIGRATE_MAX, migrated).await.unwrap_or_else(late)
}

/// What the first process wrote under this name.
pub(super) async fn setting(db: &Db, name: &str, first: &str) -> Result<String, DbError> {
    let keep = "INSERT INTO sale_settings VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    db.ask(keep, &[&name, &first]).await?;
    let rows = db.ask("SELECT value FROM sale_settings WHERE name = $1", &[&name]).await?;
    rows.first()
        .map(|row| row.get(0))
        .ok_or_else(|| DbError::Passing(format!("the setting `{name}` is gone")))
}

/// The secret that all processes share, in hexadecimal digits: made once, kept in the database.
pub(super) async fn secret(db: &Db) -> Result<String, DbError> {
    let new = Secret::random().map_err(|error| DbError::Refused(error.to_string()))?;
    setting(db, "secret", &new.to_hex()).await
}

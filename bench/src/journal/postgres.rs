//! A private PostgreSQL with `fsync` on, and tables in it.

use crate::Fallible;
use testkit::servers::PostgresServer;
use tidegate_journal::Journal;
use tokio_postgres::{Client, NoTls};

pub struct Server {
    postgres: PostgresServer,
}

impl Server {
    pub fn start() -> Self {
        // Checkpoints of one contender should not fall into another's run.
        let settings = ["max_wal_size=4GB", "checkpoint_timeout=30min", "shared_buffers=512MB"];
        Self { postgres: PostgresServer::with(&settings) }
    }

    /// A new database with the journal's tables.
    pub async fn table(&self) -> Fallible<Table> {
        let url = self.postgres.database();
        let journal = Journal::builder()
            .without_roles()
            .pending_max(1 << 40)
            .method_max(1 << 40)
            .postgres(&url)
            .await?;
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tokio::spawn(connection);
        Ok(Table { journal, client })
    }
}

/// The journal on it, and a connection beside the journal.
pub struct Table {
    pub journal: Journal,
    pub client: Client,
}

impl Table {
    /// Adds records that are due, as if they had been deferred one after the other, long ago: their
    /// guids, as the journal's own, begin with the time.
    pub async fn fill(&self, records: u64) -> Fallible<()> {
        let sql = "WITH added AS (
                     INSERT INTO t_method_limit_log (guid, method_name, method_params, status, next_time)
                     SELECT lpad(to_hex(i), 12, '0') || substr(md5(random()::text), 13), 'call', '{\"task\": 17}', 0, now() - interval '1 hour'
                     FROM generate_series(1, $1::int8) i RETURNING 1)
                   INSERT INTO t_method_limit_log_count AS c (method_name, slot, pending)
                   SELECT 'call', 0, count(*) FROM added
                   ON CONFLICT (method_name, slot) DO UPDATE SET pending = c.pending + excluded.pending";
        self.client.execute(sql, &[&i64::try_from(records)?]).await?;
        self.client.batch_execute("VACUUM ANALYZE t_method_limit_log").await?;
        Ok(())
    }

    /// How many records have this status.
    pub async fn count(&self, status: i16) -> Fallible<u64> {
        let sql = "SELECT count(*) FROM t_method_limit_log WHERE status = $1";
        Ok(u64::try_from(self.client.query_one(sql, &[&status]).await?.get::<_, i64>(0))?)
    }

    pub async fn empty(&self) -> Fallible<()> {
        self.client.batch_execute("TRUNCATE t_method_limit_log, t_method_limit_log_count").await?;
        Ok(())
    }
}

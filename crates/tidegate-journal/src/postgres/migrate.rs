//! Makes the tables, or takes over one that others made.
//!
//! Versioned, in one transaction under a lock of its own: run twice or by several processes at
//! once, the second finds its work done. Columns are only ever added, rows never lost. Without
//! work to do, no right beyond reading is needed.
//!
//! Times were without a time zone. They become `timestamptz`, read in the time zone that the
//! server has set: whoever goes on writing `CURRENT_TIMESTAMP` into them is then right in any
//! time zone. Making the indexes of a large table stops its writers for that time.

use super::core::Core;
use super::fault::fault_of;
use super::sql::{NAMED, RECORDED, holds_key};
use crate::builder::Settings;
use crate::clock::instant;
use crate::{JournalError, Opened};
use deadpool_postgres::GenericClient;
use std::time::Duration;
use tokio_postgres::Error;

/// What this release writes and reads.
const VERSION: i32 = 4;

pub(super) async fn migrate(core: &Core, settings: &Settings) -> Result<Opened, JournalError> {
    let begun = instant();
    loop {
        let outcome = attempt(core, settings).await;
        match outcome {
            Err(error) if error.is_passing() && begun.elapsed() < core.patience => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            outcome => return outcome,
        }
    }
}

async fn attempt(core: &Core, settings: &Settings) -> Result<Opened, JournalError> {
    let table = &settings.table;
    let failed = |error: Error| fault_of(&error).error;
    let mut client = core.connection(core.patience).await.map_err(|fault| fault.error)?;
    let found = version(&client, table).await?;
    if found == VERSION {
        return Ok(Opened::Found);
    }
    if settings.must_exist {
        return Err(if found == 0 { settings.no_journal() } else { settings.older(found, VERSION) });
    }
    let transaction = client.build_transaction().start().await.map_err(failed)?;
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('tidegate-journal ' || $1, 0))";
    transaction.execute(lock, &[&table]).await.map_err(failed)?;
    let found = version(&transaction, table).await?;
    let opened = match found {
        VERSION => Opened::Found,
        0 if exists(&transaction, table).await? => Opened::TakenOver,
        0 => Opened::Made,
        _ => Opened::Upgraded,
    };
    for (step, statements) in [(1, first(table)), (2, second(table)), (3, third(table)), (4, fourth(table))] {
        if found < step {
            transaction.batch_execute(&statements).await.map_err(failed)?;
        }
    }
    if found < VERSION {
        transaction.batch_execute(&comments(table)).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)?;
    Ok(opened)
}

/// The version that is there, 0 for none.
async fn version(client: &impl GenericClient, table: &str) -> Result<i32, JournalError> {
    let failed = |error: Error| fault_of(&error).error;
    let name = format!("{table}_version");
    if !exists(client, &name).await? {
        return Ok(0);
    }
    let version = client.query_one(&format!("SELECT max(version) FROM {name}"), &[]).await.map_err(failed)?;
    match version.get::<_, Option<i32>>(0).unwrap_or(0) {
        known @ 0..=VERSION => Ok(known),
        newer => Err(JournalError::Open(format!(
            "`{table}` has version {newer}, and this program knows {VERSION}: use a newer program"
        ))),
    }
}

async fn exists(client: &impl GenericClient, name: &str) -> Result<bool, JournalError> {
    // Asked of the catalogue itself: `to_regclass` may remember that there was none.
    let exists = "SELECT EXISTS (SELECT FROM pg_class WHERE relname = $1
                  AND relnamespace = ANY (current_schemas(false)::regnamespace[]))";
    let exists = client.query_one(exists, &[&name]).await.map_err(|error| fault_of(&error).error)?;
    Ok(exists.get(0))
}

/// Every name in it was checked to be plain.
fn first(t: &str) -> String {
    let added = [
        "attempts int4 NOT NULL DEFAULT 0",
        "max_attempts int2",
        "lapses int4 NOT NULL DEFAULT 0",
        "priority int2 NOT NULL DEFAULT 5",
        "next_time timestamptz(6) NOT NULL DEFAULT now()",
        "deadline timestamptz(6)",
        "lease_owner varchar(64)",
        "lease_until timestamptz(6)",
        "lease_no int8 NOT NULL DEFAULT 0",
        "idempotency_key varchar(128)",
        "last_error text",
        "result text",
    ];
    let add: Vec<String> = added.iter().map(|column| format!("ADD COLUMN IF NOT EXISTS {column}")).collect();
    let add = add.join(", ");
    format!(
        "CREATE TABLE IF NOT EXISTS {t} (
           is_delete bool NOT NULL DEFAULT false,
           update_time timestamptz(6) NOT NULL DEFAULT now(),
           create_time timestamptz(6) NOT NULL DEFAULT now(),
           method_name varchar(64),
           method_params jsonb,
           guid varchar(32) NOT NULL,
           status int2,
           CONSTRAINT pk_{t}_guid PRIMARY KEY (guid));
         DO $$ BEGIN
           IF EXISTS (SELECT FROM information_schema.columns WHERE table_name = '{t}' AND table_schema = current_schema()
                      AND column_name IN ('create_time', 'update_time') AND data_type = 'timestamp without time zone') THEN
             ALTER TABLE {t}
               ALTER COLUMN create_time TYPE timestamptz(6) USING create_time AT TIME ZONE current_setting('TimeZone'),
               ALTER COLUMN update_time TYPE timestamptz(6) USING update_time AT TIME ZONE current_setting('TimeZone');
           END IF;
         END $$;
         ALTER TABLE {t} {add};
         UPDATE {t} SET status = 0 WHERE status IS NULL;
         UPDATE {t} SET status = 4, last_error = 'it was marked as deleted' WHERE status = 0 AND is_delete;
         UPDATE {t} SET next_time = least(create_time, now()) WHERE status = 0;
         ALTER TABLE {t} ALTER COLUMN status SET DEFAULT 0, ALTER COLUMN status SET NOT NULL;
         CREATE INDEX IF NOT EXISTS idx_{t}_ctime ON {t} (create_time);
         CREATE INDEX IF NOT EXISTS idx_{t}_utime ON {t} (update_time);
         CREATE INDEX idx_{t}_due ON {t} (method_name, priority, next_time) WHERE status = 0 AND NOT is_delete;
         CREATE INDEX idx_{t}_ended ON {t} (update_time) WHERE (status <> 0 OR is_delete);
         CREATE INDEX idx_{t}_deadline ON {t} (deadline) WHERE status = 0 AND NOT is_delete AND deadline IS NOT NULL;
         CREATE UNIQUE INDEX uk_{t}_key ON {t} (method_name, idempotency_key) WHERE idempotency_key IS NOT NULL;
         CREATE TABLE {t}_count (method_name varchar(64) NOT NULL, slot int2 NOT NULL, pending int8 NOT NULL,
                                 PRIMARY KEY (method_name, slot)) WITH (fillfactor = 50);
         INSERT INTO {t}_count SELECT method_name, 0, count(*) FROM {t}
           WHERE status = 0 AND NOT is_delete AND {NAMED} GROUP BY method_name;
         CREATE TABLE {t}_method (method_name varchar(64) PRIMARY KEY, seen_time timestamptz(6) NOT NULL,
                                  missed_since timestamptz(6), missed_time timestamptz(6));
         CREATE TABLE {t}_version (version int4 PRIMARY KEY, applied_time timestamptz(6) NOT NULL DEFAULT now());
         INSERT INTO {t}_version VALUES (1);"
    )
}

/// What ended in vain or was marked as deleted no longer holds its key. How old the oldest
/// pending record is can be told without looking at all of them.
fn second(t: &str) -> String {
    format!(
        "DROP INDEX uk_{t}_key;
         CREATE UNIQUE INDEX uk_{t}_key ON {t} (method_name, idempotency_key)
           WHERE idempotency_key IS NOT NULL AND {};
         CREATE INDEX idx_{t}_oldest ON {t} (method_name, ({RECORDED})) WHERE status = 0 AND NOT is_delete;
         INSERT INTO {t}_version VALUES (2);",
        holds_key(t)
    )
}

/// A claim of many changes no column that an index knows, so PostgreSQL writes none if the rows'
/// new versions fit into their pages. Room is left for that, a little more than the rows take, as
/// they then name their owner; later it takes up what they end as.
fn third(t: &str) -> String {
    format!(
        "ALTER TABLE {t} SET (fillfactor = 45);
         INSERT INTO {t}_version VALUES (3);"
    )
}

/// A lease tells when it began, so its length is known when the clock steps back. Old programs may
/// insert no status, which was legal in the original table. They may write local time: what waits
/// for a `create_time` in the future is due now.
///
/// Its function may be there: it stays when somebody drops the tables.
///
/// The trigger is for inserts only. One for updates would lock each row that any of our own
/// statements changes.
fn fourth(t: &str) -> String {
    format!(
        "ALTER TABLE {t} ADD COLUMN lease_time timestamptz(6);
         CREATE OR REPLACE FUNCTION {t}_no_status() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN NEW.status := 0; RETURN NEW; END $$;
         CREATE TRIGGER tr_{t}_no_status BEFORE INSERT ON {t} FOR EACH ROW WHEN (NEW.status IS NULL)
           EXECUTE FUNCTION {t}_no_status();
         UPDATE {t} SET next_time = now() WHERE status = 0 AND next_time > now() AND next_time = create_time;
         INSERT INTO {t}_version VALUES (4);"
    )
}

/// The data classes of the original table: S2 is for the service's own people, S1 for anybody
/// who works here.
fn comments(t: &str) -> String {
    let columns = [
        ("is_delete", "S1", "marked as deleted, removed later", "软删除标记"),
        ("update_time", "S1", "last change", "最后变更"),
        ("create_time", "S1", "recorded at", "记录时刻"),
        ("method_name", "S2", "method to call", "待调用的方法"),
        ("method_params", "S2", "its parameters", "调用参数"),
        ("guid", "S2", "name of the record", "记录标识"),
        (
            "status",
            "S2",
            "0 pending, 1 done, 2 failed, 3 expired, 4 cancelled",
            "0待执行 1完成 2失败 3过期 4取消",
        ),
        ("attempts", "S1", "times started", "已尝试次数"),
        ("max_attempts", "S1", "times to start at most", "最多尝试次数"),
        ("lapses", "S1", "times in a row that its worker died", "执行者连续失联次数"),
        ("priority", "S1", "0 to 9, highest first", "优先级，大者先"),
        ("next_time", "S1", "next attempt, or end of the lease", "下次尝试时刻"),
        ("deadline", "S1", "has to start by then", "最迟开始时刻"),
        ("lease_owner", "S1", "worker that runs it", "执行者"),
        ("lease_until", "S1", "running until then", "租约到期"),
        ("lease_time", "S1", "begin of the lease, or its last prolongation", "租约开始或最近续期"),
        ("lease_no", "S1", "number of the lease, for fencing", "租约序号"),
        ("idempotency_key", "S2", "same key, same record", "幂等键"),
        ("last_error", "S2", "why the last attempt failed", "最近的错误"),
        ("result", "S2", "what the call returned", "调用结果"),
    ];
    let mut all = format!(
        "COMMENT ON TABLE {t} IS 'S2 | limited calls, kept until they ran | 被限流而留待执行的调用';"
    );
    for (column, class, english, chinese) in columns {
        all += &format!("COMMENT ON COLUMN {t}.{column} IS '{class} | {english} | {chinese}';");
    }
    let indexes = [
        (format!("idx_{t}_ctime"), "by time recorded"),
        (format!("idx_{t}_utime"), "by last change"),
        (format!("idx_{t}_due"), "what a worker takes next"),
        (format!("idx_{t}_ended"), "what retention removes next"),
        (format!("idx_{t}_deadline"), "what expires next"),
        (format!("idx_{t}_oldest"), "what has waited for longest"),
        (format!("uk_{t}_key"), "which record answers for a key"),
    ];
    for (index, text) in indexes {
        all += &format!("COMMENT ON INDEX {index} IS '{text}';");
    }
    all
}

//! Every statement, with the table's name in place. Times are microseconds since 1970.

use super::foreign::{self, micros_of};
use crate::backend::{ERROR_MAX, EXPIRED, EXPIRED_AGAIN, LAST_ERROR, NAMELESS};
use crate::builder::Settings;

/// Made once; the texts are the keys of SQLite's cache of prepared statements.
pub(super) struct Sql {
    pub(super) pending_max: u64,
    pub(super) method_max: u64,
    pub(super) read_clock: String,
    pub(super) write_clock: String,
    pub(super) count_all: String,
    pub(super) count_read: String,
    pub(super) count_write: String,
    pub(super) recount: String,
    pub(super) by_key: String,
    pub(super) insert: String,
    pub(super) claim: String,
    pub(super) count: String,
    pub(super) beat: String,
    pub(super) settle: String,
    pub(super) standing: String,
    pub(super) cancel: String,
    pub(super) retry: String,
    pub(super) announce: String,
    pub(super) missed: String,
    pub(super) orphaned: String,
    pub(super) fail_orphans: String,
    pub(super) fail_nameless: String,
    pub(super) expire: String,
    pub(super) purge: String,
    pub(super) find: String,
    pub(super) is_open: String,
    pub(super) list: String,
    pub(super) depth: String,
    pub(super) overdue: String,
    pub(super) oldest: String,
}

/// A record answers for its idempotency key while it may run, and once it is done.
pub(super) const HOLDS_KEY: &str = "is_delete = 0 AND status IN (0, 1)";

/// Nobody has the record. Whoever sets a lease by hand may write any text: that is none.
fn free_by(time: &str) -> String {
    format!("(NOT (typeof(lease_until) = 'integer' AND lease_until > {time}))")
}

/// What [`super::read::record`] reads, in its order.
fn record() -> String {
    format!(
        "guid, method_name, coalesce(method_params, 'null'), coalesce(status, 0), attempts, priority, {}, {},
         next_time, deadline, lease_owner, idempotency_key, last_error, result, lease_until",
        micros_of("create_time"),
        micros_of("update_time")
    )
}

impl Sql {
    #[expect(clippy::too_many_lines, reason = "a list of statements")]
    pub(super) fn new(settings: &Settings) -> Self {
        let (t, record) = (&settings.table, record());
        Self {
            pending_max: settings.pending_max,
            method_max: settings.method_max,
            read_clock: format!("SELECT now FROM {t}_clock"),
            write_clock: format!("UPDATE {t}_clock SET now = max(now, ?1)"),
            count_all: format!("SELECT coalesce(sum(pending), 0) FROM {t}_count"),
            count_read: format!("SELECT pending FROM {t}_count WHERE method_name = ?1"),
            count_write: format!(
                "INSERT INTO {t}_count (method_name, pending) VALUES (?1, ?2)
                 ON CONFLICT (method_name) DO UPDATE SET pending = excluded.pending"
            ),
            recount: format!(
                "{}
                 DELETE FROM {t}_count;
                 INSERT INTO {t}_count (method_name, pending) SELECT method_name, count(*) FROM {t}
                 WHERE status = 0 AND is_delete = 0 AND method_name <> '' GROUP BY method_name;",
                foreign::by_hand(t)
            ),
            by_key: format!(
                "SELECT guid FROM {t} INDEXED BY uk_{t}_key
                 WHERE method_name = ?1 AND idempotency_key = ?2 AND {HOLDS_KEY}"
            ),
            insert: format!(
                "INSERT INTO {t} (guid, method_name, method_params, status, create_time, update_time,
                                  next_time, deadline, idempotency_key, priority, max_attempts)
                 VALUES (?1, ?2, ?3, 0, ?4, ?4, ?5, ?6, ?7, ?8, ?9)"
            ),
            // ?1 method, ?2 level, ?3 due by, ?4 at most, ?5 owner, ?6 end of the lease.
            claim: format!(
                "UPDATE {t} SET lease_owner = ?5, lease_until = ?6, next_time = ?6, lease_no = lease_no + 1,
                                lapses = lapses + (lease_owner IS NOT NULL)
                 WHERE rowid IN (SELECT rowid FROM {t} INDEXED BY idx_{t}_due
                                 WHERE status = 0 AND is_delete = 0 AND method_name = ?1
                                   AND priority = ?2 AND next_time <= ?3
                                 ORDER BY next_time LIMIT ?4)
                 RETURNING guid, lease_no, method_name, coalesce(method_params, 'null'), priority,
                           attempts, max_attempts, last_error, create_time, deadline, lapses"
            ),
            count: format!(
                "UPDATE {t} SET attempts = ?3
                 WHERE guid = ?1 AND lease_no = ?2 AND status = 0 AND lease_owner IS NOT NULL"
            ),
            // What was given back a moment ago has no owner: a sign of life that comes late must not
            // take it again.
            beat: format!(
                "UPDATE {t} SET lease_until = ?3, next_time = ?3
                 WHERE guid = ?1 AND lease_no = ?2 AND status = 0 AND lease_owner IS NOT NULL"
            ),
            // ?1 guid, ?2 lease, ?3 status, ?4 now, ?5 next time, ?6 result, ?7 error, ?8 counted.
            // What only went back, without an error, is as suspect as before.
            settle: format!(
                "UPDATE {t} SET status = ?3, update_time = ?4, lease_owner = NULL, lease_until = NULL,
                                next_time = ?5, result = ?6, last_error = coalesce(?7, last_error),
                                attempts = attempts + ?8,
                                lapses = CASE WHEN ?3 = 0 AND ?7 IS NULL THEN lapses ELSE 0 END
                 WHERE guid = ?1 AND lease_no = ?2 AND status = 0 AND lease_owner IS NOT NULL
                 RETURNING method_name"
            ),
            standing: format!("SELECT status, lease_until FROM {t} WHERE guid = ?1 AND is_delete = 0"),
            cancel: format!(
                "UPDATE {t} SET status = 4, update_time = ?2, lease_owner = NULL, lease_until = NULL,
                                lease_no = lease_no + 1
                 WHERE guid = ?1 AND status = 0 RETURNING method_name, lease_no"
            ),
            retry: format!(
                "UPDATE {t} SET status = 0, update_time = ?2, next_time = ?2, deadline = NULL, attempts = 0,
                                lapses = 0, result = NULL, lease_owner = NULL, lease_until = NULL, lease_no = lease_no + 1
                 WHERE guid = ?1 AND status NOT IN (0, 1) AND NOT EXISTS (
                   SELECT 1 FROM {t} AS other INDEXED BY uk_{t}_key WHERE other.method_name = {t}.method_name
                     AND other.idempotency_key = {t}.idempotency_key AND {HOLDS_KEY})
                 RETURNING method_name"
            ),
            announce: format!(
                "INSERT INTO {t}_method (method_name, seen_time) VALUES (?1, ?2)
                 ON CONFLICT (method_name) DO UPDATE SET seen_time = ?2, missed_since = NULL"
            ),
            // ?1 now, ?2 how long ago counts as known. Two looks have to miss a method, that far
            // apart and with nobody between them who knows it, however rare looks are: the first
            // one after everything was down misses nobody.
            missed: format!(
                "INSERT INTO {t}_method (method_name, missed_since, missed_time)
                 SELECT method_name, ?1, ?1 FROM {t}_count WHERE pending > 0
                 ON CONFLICT (method_name) DO UPDATE SET
                   missed_since = CASE
                     WHEN seen_time > ?2 THEN NULL
                     ELSE coalesce(missed_since, ?1) END,
                   missed_time = ?1"
            ),
            orphaned: format!("SELECT method_name FROM {t}_method WHERE missed_since <= ?1 AND missed_time = ?2"),
            // ?1 method, ?2 due by, ?3 at most, ?4 now, ?5 reason.
            fail_orphans: format!(
                "UPDATE {t} SET status = 2, update_time = ?4, lease_owner = NULL,
                                lease_until = NULL, lease_no = lease_no + 1,
                                last_error = substr(?5 || CASE WHEN attempts > 0
                                  THEN coalesce('{LAST_ERROR}' || last_error, '') ELSE '' END, 1, {ERROR_MAX})
                 WHERE rowid IN (SELECT rowid FROM {t} INDEXED BY idx_{t}_due WHERE status = 0 AND is_delete = 0
                                   AND method_name = ?1 AND next_time <= ?2 LIMIT ?3)"
            ),
            // ?1 now, ?2 at most, ?3 no name: NULL or empty.
            fail_nameless: format!(
                "UPDATE {t} SET status = 2, update_time = ?1, last_error = '{NAMELESS}'
                 WHERE rowid IN (SELECT rowid FROM {t} INDEXED BY idx_{t}_due WHERE status = 0 AND is_delete = 0
                                   AND method_name IS ?3 LIMIT ?2)"
            ),
            expire: format!(
                "UPDATE {t} SET status = 3, update_time = ?1, lease_owner = NULL,
                                lease_until = NULL, lease_no = lease_no + 1,
                                last_error = CASE WHEN attempts > 0 AND last_error IS NOT NULL
                                  THEN substr('{EXPIRED_AGAIN}' || last_error, 1, {ERROR_MAX}) ELSE '{EXPIRED}' END
                 WHERE rowid IN (SELECT rowid FROM {t} INDEXED BY idx_{t}_deadline
                                 WHERE status = 0 AND is_delete = 0 AND deadline <= ?1
                                   AND {}
                                 ORDER BY deadline LIMIT ?2)
                 RETURNING method_name",
                free_by("?1")
            ),
            // ?1 ended by, ?2 at most, ?3 now. What somebody marked as deleted while it runs may end.
            purge: format!(
                "DELETE FROM {t} WHERE rowid IN (SELECT rowid FROM {t} INDEXED BY idx_{t}_ended
                   WHERE (status <> 0 OR is_delete) AND update_time <= ?1
                     AND {} ORDER BY update_time LIMIT ?2)",
                free_by("?3")
            ),
            find: format!("SELECT {record} FROM {t} WHERE guid = ?1 AND is_delete = 0"),
            is_open: format!("SELECT 1 FROM {t} WHERE guid = ?1 AND is_delete = 0 AND status = 0"),
            // ?1 status or NULL, ?2 method or NULL, ?3 and ?4 position, ?5 at most, ?6 now,
            // ?7 whether a lease is asked for (0, 1) or not (NULL).
            list: format!(
                "SELECT {record} FROM {t} WHERE is_delete = 0
                   AND (?1 IS NULL OR status = ?1) AND (?2 IS NULL OR method_name = ?2)
                   AND (?7 IS NULL OR ?7 <> {})
                   AND (create_time, guid) < (?3, ?4)
                 ORDER BY create_time DESC, guid DESC LIMIT ?5",
                free_by("?6")
            ),
            depth: format!("SELECT method_name, pending FROM {t}_count WHERE pending > 0"),
            overdue: format!(
                "SELECT min(next_time) FROM {t} INDEXED BY idx_{t}_due
                 WHERE status = 0 AND is_delete = 0 AND method_name = ?1 AND priority = ?2"
            ),
            oldest: format!(
                "SELECT min(create_time) FROM {t} INDEXED BY idx_{t}_oldest
                 WHERE status = 0 AND is_delete = 0 AND method_name = ?1"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_may_be_large_goes_through_its_index() {
        let settings = crate::Journal::builder().settings;
        let (conn, sql) = (rusqlite::Connection::open_in_memory().unwrap(), Sql::new(&settings));
        super::super::migrate::migrate(&conn, &settings, &sql, 0).unwrap();
        for text in [
            &sql.claim,
            &sql.expire,
            &sql.purge,
            &sql.fail_orphans,
            &sql.find,
            &sql.settle,
            &sql.overdue,
            &sql.oldest,
            &sql.by_key,
            &sql.retry,
        ] {
            let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
            for nth in 1..=statement.parameter_count() {
                statement.raw_bind_parameter(nth, 1).unwrap();
            }
            let mut rows = statement.raw_query();
            let mut plan = String::new();
            while let Some(row) = rows.next().unwrap() {
                plan += &format!("{}\n", row.get::<_, String>(3).unwrap());
            }
            assert!(
                plan.contains("USING") && plan.contains("INDEX") && !plan.contains("SCAN t_"),
                "{text}\n{plan}"
            );
            assert!(!plan.contains("TEMP B-TREE"), "{text}\n{plan}");
        }
    }
}

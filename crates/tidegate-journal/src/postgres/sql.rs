//! Every statement, with the table's name in place. The server's clock decides: `now()`.
//!
//! Rows to change are locked first, skipping those that others hold, and changed by their
//! place (`ctid`): no statement waits for another's row, and no plan depends on statistics.

use crate::backend::{ERROR_MAX, EXPIRED, EXPIRED_AGAIN, LAST_ERROR, NAMELESS};
use crate::builder::Settings;

/// Made once; the texts are the keys of the cache of prepared statements.
pub(super) struct Sql {
    pub(super) defer: String,
    pub(super) there: String,
    pub(super) claim: String,
    pub(super) count: String,
    pub(super) beat: String,
    pub(super) settle: String,
    pub(super) settled: String,
    pub(super) cancel: String,
    pub(super) retry: String,
    pub(super) standing: String,
    pub(super) find: String,
    pub(super) ended: String,
    pub(super) list: String,
    pub(super) announce: String,
    pub(super) missed: String,
    pub(super) fail_orphans: String,
    pub(super) fail_nameless: String,
    pub(super) clamp_times: String,
    pub(super) clamp_leases: String,
    pub(super) expire: String,
    pub(super) purge: String,
    pub(super) drift: String,
    pub(super) depth: String,
}

/// A record answers for its idempotency key while it may run, and once it is done.
pub(super) fn holds_key(t: &str) -> String {
    format!("NOT {t}.is_delete AND {t}.status IN (0, 1)")
}

/// What the index of the oldest pending records is ordered by: the same as `create_time`, in
/// words that the index over all records does not know. Through that one, the planner would
/// walk over everything that ended since.
pub(super) const RECORDED: &str = "create_time AT TIME ZONE 'UTC'";

/// The row of the counts for what a recount made up for: nobody else waits for it.
const DRIFT_SLOT: i16 = -1;

/// True of a row whose method can be counted: others may write rows without one.
pub(super) const NAMED: &str = "method_name <> ''";

/// Times so far ahead are no sign of a clock that stepped back: statements that run at once have
/// begun at different times.
const CLOCK_SLACK: &str = "interval '1 second'";

/// So many that are claimed at once stay where they are in the index, and none is written; whoever
/// claims after that passes over them, until their next sign of life. Fewer are moved to the end of
/// their lease: many workers who each take a few would pass over what all the others have.
const STAY: u32 = 128;

/// Under a longer lease they are moved, too: its first sign of life comes late.
const STAY_US: u32 = 60_000_000;

/// What [`super::rows::record`] reads, in its order.
const RECORD: &str = "t.guid, t.method_name, coalesce(t.method_params, 'null')::text, t.status, t.attempts, \
    t.priority, t.create_time, t.update_time, greatest(t.next_time, t.lease_until), t.deadline, \
    t.lease_owner, t.idempotency_key, t.last_error, t.result, coalesce(t.lease_until > now(), false)";

/// True of a row `t` whose lease is the one of `g`. In one expression of which the database knows
/// no statistics: a table that was analysed while nothing was leased, as it mostly is, seems to
/// have no such row, and would be read whole, each of its leased rows compared with each of `g`.
const HOLDS_LEASE: &str =
    "CASE WHEN t.lease_no = g.number AND t.status = 0 THEN t.lease_owner IS NOT NULL ELSE false END";

impl Sql {
    #[expect(clippy::too_many_lines, reason = "a list of statements")]
    pub(super) fn new(settings: &Settings) -> Self {
        let t = &settings.table;
        // Takes what `gone` ended off the count, in the slot $1.
        let uncount = format!(
            "INSERT INTO {t}_count AS c (method_name, slot, pending)
             SELECT method_name, $1::int2, -count(*) FROM gone WHERE {NAMED}
             GROUP BY method_name ORDER BY method_name
             ON CONFLICT (method_name, slot) DO UPDATE SET pending = c.pending + excluded.pending"
        );
        let unlease = "lease_owner = NULL, lease_until = NULL, lease_time = NULL";
        // True of a row `c` that nobody has. In one expression of which the database knows no
        // statistics, for the same reason as `HOLDS_LEASE`.
        let free_by = |time: &str| format!("coalesce(c.lease_until <= {time}, true)");
        let free = free_by("least(now(), $5::timestamptz)");
        Self {
            // $1 guids, $2 methods, $3 parameters, $4 keys, $5 priorities, $6 delays, $7 deadlines,
            // $8 attempts, $9 bound a method, $10 bound in all, $11 slot. A call whose key is known,
            // or is in the batch before it, takes no room. Keys are written in one order by all, or
            // two batches that share some would wait for each other.
            defer: format!(
                "WITH input AS (
                   SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int2[], $6::int8[],
                                        $7::int8[], $8::int2[]) WITH ORDINALITY
                     AS i (guid, method, params, key, priority, delay, deadline, attempts, nth)
                 ), held AS (
                   SELECT method_name, sum(pending) AS pending FROM {t}_count GROUP BY method_name
                 ), known AS (
                   SELECT i.*, k.yes IS NOT NULL OR i.key IS NOT NULL
                               AND row_number() OVER (PARTITION BY i.method, i.key ORDER BY i.nth) > 1 AS is_known
                   FROM input i LEFT JOIN LATERAL (
                     SELECT true AS yes FROM {t} o
                     WHERE o.method_name = i.method AND o.idempotency_key = i.key AND {} LIMIT 1) k ON true
                 ), ranked AS (
                   SELECT i.*, count(*) FILTER (WHERE NOT is_known) OVER (PARTITION BY i.method ORDER BY i.nth)
                               + coalesce(h.pending, 0) <= $9::int8 AS fits_method
                   FROM known i LEFT JOIN held h ON h.method_name = i.method
                 ), judged AS (
                   SELECT r.*, count(*) FILTER (WHERE fits_method AND NOT is_known) OVER (ORDER BY nth)
                               + (SELECT coalesce(sum(pending), 0) FROM held) <= $10::int8 AS fits_all
                   FROM ranked r
                 ), fresh AS (
                   INSERT INTO {t} (guid, method_name, method_params, status, create_time, update_time, next_time,
                                    deadline, idempotency_key, priority, max_attempts)
                   SELECT guid, method, params::jsonb, 0, now(), now(), now() + delay * interval '1 microsecond',
                          now() + deadline * interval '1 microsecond', key, priority, attempts
                   FROM judged WHERE fits_method AND fits_all AND NOT is_known ORDER BY method, key, nth
                   ON CONFLICT DO NOTHING RETURNING guid, method_name
                 ), counted AS (
                   INSERT INTO {t}_count AS c (method_name, slot, pending)
                   SELECT method_name, $11::int2, count(*) FROM fresh GROUP BY method_name ORDER BY method_name
                   ON CONFLICT (method_name, slot) DO UPDATE SET pending = c.pending + excluded.pending
                 )
                 SELECT j.guid, f.guid IS NOT NULL, j.fits_method, j.fits_all,
                        (SELECT coalesce(sum(pending), 0)::int8 FROM held),
                        (SELECT coalesce(max(pending), 0)::int8 FROM held)
                 FROM judged j LEFT JOIN fresh f ON f.guid = j.guid",
                holds_key("o")
            ),
            // $1 guids, $2 methods, $3 keys.
            there: format!(
                "SELECT i.guid, t.guid FROM unnest($1::text[]) AS i (guid) JOIN {t} t ON t.guid = i.guid
                 UNION ALL
                 SELECT i.guid, t.guid FROM unnest($1::text[], $2::text[], $3::text[]) AS i (guid, method, key)
                 JOIN {t} t ON t.method_name = i.method AND t.idempotency_key = i.key AND {}",
                holds_key("t")
            ),
            // $1 methods, $2 how many of each, $3 owner, $4 length in µs, $5 due by, or NULL. Where they
            // stay, no column changes that an index knows, unless a dead worker had the record.
            claim: format!(
                "WITH taken AS MATERIALIZED (
                   SELECT ARRAY(
                     SELECT due.place FROM unnest($1::text[], $2::int8[]) AS w (method, want) CROSS JOIN LATERAL (
                       SELECT one.place FROM generate_series(9, 0, -1) AS level CROSS JOIN LATERAL (
                         SELECT c.ctid AS place FROM {t} c
                         WHERE c.status = 0 AND NOT c.is_delete AND c.method_name = w.method
                           AND c.priority = level AND c.next_time <= least(now(), $5::timestamptz)
                           AND {free}
                         ORDER BY c.next_time LIMIT w.want FOR UPDATE SKIP LOCKED
                       ) one LIMIT w.want
                     ) due
                   ) AS places
                 )
                 UPDATE {t} AS t SET lease_owner = $3, lease_until = now() + $4::int8 * interval '1 microsecond',
                   lease_time = now(),
                   next_time = CASE WHEN cardinality((SELECT places FROM taken)) >= {STAY} AND $4::int8 <= {STAY_US}
                                    THEN coalesce(t.lease_until, t.next_time)
                                    ELSE now() + $4::int8 * interval '1 microsecond' END,
                   lease_no = t.lease_no + 1,
                   lapses = CASE WHEN t.lease_owner IS NULL THEN t.lapses ELSE t.lapses + 1 END
                 WHERE t.ctid = ANY ((SELECT places FROM taken)::tid[])
                 RETURNING t.guid, t.lease_no, t.method_name, coalesce(t.method_params, 'null')::text, t.priority,
                           t.attempts, t.max_attempts, t.last_error, t.create_time,
                           (extract(epoch FROM t.deadline - now()) * 1000000)::int8, t.lapses"
            ),
            // The number itself, not one more: it may run twice.
            count: format!(
                "UPDATE {t} SET attempts = $3::int4
                 WHERE guid = $1 AND lease_no = $2 AND status = 0 AND lease_owner IS NOT NULL RETURNING 1"
            ),
            // $1 guids, $2 numbers, $3 length. Rows that are being changed at this moment are
            // skipped: the next sign of life finds out what became of them. What was given back a
            // moment ago has no owner: a sign of life that comes late must not take it again.
            beat: format!(
                "WITH given AS (SELECT * FROM unnest($1::text[], $2::int8[]) AS g (guid, number)),
                 mine AS (
                   SELECT t.ctid AS place FROM given g JOIN {t} t ON t.guid = g.guid AND {HOLDS_LEASE}
                   FOR UPDATE OF t SKIP LOCKED
                 ), prolonged AS (
                   UPDATE {t} SET lease_until = now() + $3::int8 * interval '1 microsecond', lease_time = now(),
                                  next_time = now() + $3::int8 * interval '1 microsecond'
                   WHERE ctid = ANY (ARRAY(SELECT place FROM mine)) RETURNING guid
                 )
                 SELECT guid, true FROM prolonged
                 UNION ALL
                 SELECT g.guid, false FROM given g LEFT JOIN {t} t ON t.guid = g.guid
                 WHERE t.guid IS NULL OR t.lease_no <> g.number OR t.status <> 0"
            ),
            // $1 slot, $2 guids, $3 numbers, $4 statuses, $5 delays, $6 results, $7 errors, $8 counted.
            // What only went back, without an error, is as suspect as before. Without an owner it was
            // entered already: the statement may run twice.
            settle: format!(
                "WITH changed AS (
                   UPDATE {t} AS t SET status = g.status, update_time = now(), {unlease},
                     next_time = CASE WHEN g.delay < 0 THEN least(t.next_time, now() + g.delay * interval '1 microsecond')
                                      ELSE now() + g.delay * interval '1 microsecond' END,
                     result = g.result,
                     last_error = coalesce(g.error, t.last_error), attempts = t.attempts + g.counted,
                     lapses = CASE WHEN g.status = 0 AND g.error IS NULL THEN t.lapses ELSE 0 END
                   FROM unnest($2::text[], $3::int8[], $4::int2[], $5::int8[], $6::text[], $7::text[], $8::int4[])
                     AS g (guid, number, status, delay, result, error, counted)
                   WHERE t.guid = g.guid AND {HOLDS_LEASE}
                   RETURNING t.guid, t.method_name, t.status
                 ), gone AS (SELECT method_name FROM changed WHERE status <> 0), counted AS ({uncount})
                 SELECT guid FROM changed"
            ),
            // What a statement entered whose answer was lost.
            settled: format!(
                "SELECT t.guid FROM unnest($1::text[], $2::int8[], $3::int2[]) AS g (guid, number, status)
                 JOIN {t} t ON t.guid = g.guid AND t.lease_no = g.number AND t.status = g.status
                 WHERE t.lease_owner IS NULL"
            ),
            cancel: format!(
                "WITH found AS (
                   SELECT guid, coalesce(lease_until > now(), false) AS is_leased FROM {t}
                   WHERE guid = $2 AND status = 0 AND NOT is_delete FOR UPDATE
                 ), gone AS (
                   UPDATE {t} AS t SET status = 4, update_time = now(), {unlease}, lease_no = t.lease_no + 1
                   FROM found f WHERE t.guid = f.guid RETURNING t.method_name, f.is_leased, t.lease_no
                 ), counted AS ({uncount})
                 SELECT is_leased, lease_no FROM gone"
            ),
            retry: format!(
                "WITH back AS (
                   UPDATE {t} AS t SET status = 0, update_time = now(), next_time = now(), deadline = NULL,
                     attempts = 0, lapses = 0, result = NULL, {unlease}, lease_no = t.lease_no + 1
                   WHERE guid = $2 AND status NOT IN (0, 1) AND NOT is_delete AND NOT EXISTS (
                     SELECT FROM {t} o WHERE o.method_name = t.method_name
                       AND o.idempotency_key = t.idempotency_key AND {})
                   RETURNING method_name
                 ), counted AS (
                   INSERT INTO {t}_count AS c (method_name, slot, pending)
                   SELECT method_name, $1::int2, 1 FROM back WHERE {NAMED}
                   ON CONFLICT (method_name, slot) DO UPDATE SET pending = c.pending + 1
                 )
                 SELECT 1 FROM back",
                holds_key("o")
            ),
            standing: format!(
                "SELECT status, coalesce(lease_until > now(), false) FROM {t} WHERE guid = $1 AND NOT is_delete"
            ),
            find: format!("SELECT {RECORD} FROM {t} t WHERE t.guid = $1 AND NOT t.is_delete"),
            ended: format!(
                "SELECT g.guid FROM unnest($1::text[]) AS g (guid) LEFT JOIN {t} t ON t.guid = g.guid
                 WHERE t.guid IS NULL OR t.status <> 0 OR t.is_delete"
            ),
            // $1 status, $2 method, $3 and $4 position, $5 at most, $6 whether leased; or NULL.
            list: format!(
                "SELECT {RECORD} FROM {t} t WHERE NOT t.is_delete
                   AND ($1::int2 IS NULL OR t.status = $1) AND ($2::text IS NULL OR t.method_name = $2)
                   AND ($6::bool IS NULL OR $6 = coalesce(t.lease_until > now(), false))
                   AND ($3::timestamptz IS NULL OR t.create_time < $3 OR t.create_time = $3 AND t.guid < $4)
                 ORDER BY t.create_time DESC, t.guid DESC LIMIT $5"
            ),
            // The latest time is kept: it shows `clamp_leases` that the clock stepped back.
            announce: format!(
                "INSERT INTO {t}_method AS m (method_name, seen_time) SELECT name, now() FROM unnest($1::text[]) AS g (name)
                 ORDER BY name
                 ON CONFLICT (method_name) DO UPDATE SET seen_time = greatest(m.seen_time, now()), missed_since = NULL"
            ),
            // $1 how long without anybody. Two looks have to miss a method, that far apart and with
            // nobody between them who knows it, however rare looks are: the first one after
            // everything was down misses nobody.
            missed: format!(
                "INSERT INTO {t}_method AS m (method_name, seen_time, missed_since, missed_time)
                 SELECT method_name, '-infinity', now(), now() FROM {t}_count
                 GROUP BY method_name HAVING sum(pending) > 0 ORDER BY method_name
                 ON CONFLICT (method_name) DO UPDATE SET
                   missed_since = CASE
                     WHEN m.seen_time > now() - $1::int8 * interval '1 microsecond' THEN NULL
                     ELSE coalesce(m.missed_since, now()) END,
                   missed_time = now()
                 RETURNING CASE WHEN m.missed_since <= now() - $1::int8 * interval '1 microsecond'
                                THEN m.method_name END"
            ),
            // $1 slot, $2 methods, $3 how long, $4 at most, $5 reason.
            fail_orphans: format!(
                "WITH gone AS (
                   UPDATE {t} SET status = 2, update_time = now(), {unlease}, lease_no = lease_no + 1,
                     last_error = left($5 || CASE WHEN attempts > 0 THEN coalesce('{LAST_ERROR}' || last_error, '')
                                                  ELSE '' END, {ERROR_MAX})
                   WHERE ctid = ANY (ARRAY(
                     SELECT one.place FROM unnest($2::text[]) AS m (method) CROSS JOIN LATERAL (
                       SELECT c.ctid AS place FROM {t} c
                       WHERE c.status = 0 AND NOT c.is_delete AND c.method_name = m.method
                         AND c.next_time <= now() - $3::int8 * interval '1 microsecond'
                         AND {}
                       LIMIT $4 FOR UPDATE SKIP LOCKED) one LIMIT $4))
                   RETURNING method_name
                 ), counted AS ({uncount})
                 SELECT method_name, count(*) FROM gone GROUP BY method_name",
                free_by("now() - $3::int8 * interval '1 microsecond'")
            ),
            fail_nameless: format!(
                "WITH gone AS (
                   UPDATE {t} SET status = 2, update_time = now(), last_error = '{NAMELESS}'
                   WHERE ctid = ANY (ARRAY(
                     SELECT ctid FROM {t}
                     WHERE status = 0 AND NOT is_delete AND (method_name IS NULL OR method_name = '')
                     LIMIT $1 FOR UPDATE SKIP LOCKED))
                   RETURNING 1)
                 SELECT count(*) FROM gone"
            ),
            // $1 at most. Rows that were changed in the future: the clock has stepped back since. What
            // they wait for comes after their own delay from now, at the latest, and not when the clock
            // is where it was. So does a deadline, unless it lies before the change: then it is by another clock
            // than the change, such as that of a writer in local time. All of it is counted from the change,
            // which is now afterwards, so a second step finds nothing of the first. The oldest first, so that
            // they stay in order.
            clamp_times: format!(
                "WITH clamped AS (
                   UPDATE {t} SET update_time = now(),
                     next_time = CASE WHEN lease_owner IS NULL
                                      THEN least(next_time, now() + greatest(next_time - update_time, interval '0'))
                                      ELSE next_time END,
                     deadline = CASE WHEN deadline > update_time THEN now() + (deadline - update_time)
                                     ELSE deadline END
                   WHERE ctid = ANY (ARRAY(
                     SELECT ctid FROM {t} WHERE update_time > now() + {CLOCK_SLACK}
                     ORDER BY update_time LIMIT $1 FOR UPDATE SKIP LOCKED))
                   RETURNING 1)
                 SELECT count(*) FROM clamped"
            ),
            // The same for leases, which no index knows: only if a worker was seen in the future are they
            // looked for among all pending records. A lease ends its own length from now, not earlier:
            // its owner may live.
            clamp_leases: format!(
                "WITH ahead AS (
                   UPDATE {t}_method SET seen_time = least(seen_time, now()),
                     missed_since = CASE WHEN missed_since > now() THEN now() ELSE missed_since END
                   WHERE seen_time > now() + {CLOCK_SLACK} OR missed_since > now() + {CLOCK_SLACK} RETURNING 1
                 ), clamped AS (
                   UPDATE {t} SET lease_until = now() + (lease_until - lease_time), lease_time = now(),
                                  next_time = least(next_time, now() + (lease_until - lease_time))
                   WHERE status = 0 AND NOT is_delete AND lease_time > now() + {CLOCK_SLACK}
                     AND (SELECT count(*) FROM ahead) > 0
                   RETURNING 1)
                 SELECT count(*) FROM clamped"
            ),
            // $1 slot, $2 at most.
            expire: format!(
                "WITH gone AS (
                   UPDATE {t} SET status = 3, update_time = now(), {unlease}, lease_no = lease_no + 1,
                     last_error = CASE WHEN attempts > 0 AND last_error IS NOT NULL
                                       THEN left('{EXPIRED_AGAIN}' || last_error, {ERROR_MAX}) ELSE '{EXPIRED}' END
                   WHERE ctid = ANY (ARRAY(
                     SELECT ctid FROM {t} c WHERE status = 0 AND NOT is_delete AND deadline <= now() AND {}
                     ORDER BY deadline LIMIT $2 FOR UPDATE SKIP LOCKED))
                   RETURNING method_name
                 ), counted AS ({uncount})
                 SELECT method_name, count(*) FROM gone GROUP BY method_name",
                free_by("now()")
            ),
            // What somebody marked as deleted while it runs may end.
            purge: format!(
                "WITH gone AS (
                   DELETE FROM {t} WHERE ctid = ANY (ARRAY(
                     SELECT ctid FROM {t} c WHERE (status <> 0 OR is_delete)
                       AND update_time <= now() - $1::int8 * interval '1 microsecond' AND {}
                     ORDER BY update_time LIMIT $2 FOR UPDATE SKIP LOCKED))
                   RETURNING 1)
                 SELECT count(*) FROM gone",
                free_by("now()")
            ),
            // Table and counts as of the same moment; what they differ by is made up for, by one
            // at a time: the block's second statement sees what the one before it has set right.
            drift: format!(
                "DO $$ BEGIN
                 PERFORM pg_advisory_xact_lock(hashtextextended('tidegate-journal count {t}', 0));
                 WITH counted AS (
                   SELECT method_name, count(*) AS pending FROM {t}
                   WHERE status = 0 AND NOT is_delete AND {NAMED} GROUP BY method_name
                 ), kept AS (SELECT method_name, sum(pending)::int8 AS pending FROM {t}_count GROUP BY method_name),
                 drift AS (
                   SELECT method_name, coalesce(c.pending, 0) - coalesce(k.pending, 0) AS by
                   FROM counted c FULL JOIN kept k USING (method_name)
                   WHERE coalesce(c.pending, 0) <> coalesce(k.pending, 0)
                 )
                 INSERT INTO {t}_count AS c (method_name, slot, pending)
                 SELECT method_name, {DRIFT_SLOT}, by FROM drift ORDER BY method_name
                 ON CONFLICT (method_name, slot) DO UPDATE SET pending = c.pending + excluded.pending;
                 END $$"
            ),
            depth: format!(
                "SELECT k.method_name, k.pending, (extract(epoch FROM now() - d.due) * 1000000)::int8,
                        (extract(epoch FROM now() - o.create_time) * 1000000)::int8
                 FROM (SELECT method_name, sum(pending)::int8 AS pending FROM {t}_count
                       GROUP BY method_name HAVING sum(pending) > 0) k
                 CROSS JOIN LATERAL (
                   SELECT min(one.next_time) AS due FROM generate_series(0, 9) AS level CROSS JOIN LATERAL (
                     SELECT c.next_time FROM {t} c WHERE c.status = 0 AND NOT c.is_delete
                       AND c.method_name = k.method_name AND c.priority = level AND {}
                     ORDER BY c.next_time LIMIT 1) one) d
                 LEFT JOIN LATERAL (
                   SELECT c.create_time FROM {t} c
                   WHERE c.status = 0 AND NOT c.is_delete AND c.method_name = k.method_name
                   ORDER BY c.{RECORDED} LIMIT 1) o ON true",
                free_by("now()")
            ),
        }
    }
}

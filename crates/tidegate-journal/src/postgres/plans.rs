//! Tests: what a claim costs must not grow with what is pending, so it goes through the index.

use super::sql::Sql;
use crate::Journal;
use testkit::servers::PostgresServer;

/// A server, the address of a database with an empty journal, and the journal's statements.
async fn made() -> (PostgresServer, String, Sql) {
    let server = PostgresServer::start();
    let url = server.database();
    let builder = Journal::builder();
    let sql = Sql::new(&builder.settings);
    builder.postgres(&url).await.unwrap();
    (server, url, sql)
}

/// A statement with its parameters, explained.
fn explained(server: &PostgresServer, url: &str, sql: &str, types: &str, given: &str) -> String {
    server.sql_in(
        url,
        &format!(
            "PREPARE it ({types}) AS {sql}; BEGIN; EXPLAIN (ANALYZE, BUFFERS) EXECUTE it ({given}); ROLLBACK"
        ),
    )
}

const CLAIM_TYPES: &str = "text[], int8[], text, int8, timestamptz";

fn claim(server: &PostgresServer, url: &str, sql: &Sql) -> String {
    let given = "ARRAY['ship', 'bill'], ARRAY[100, 100], 'me', 1000000, NULL";
    explained(server, url, &sql.claim, CLAIM_TYPES, given)
}

/// The pages that the whole statement touched: the first figure of the plan.
fn pages(plan: &str) -> u64 {
    let line = plan.lines().find(|line| line.contains("Buffers: shared")).unwrap();
    let hits = line.split("hit=").nth(1).unwrap_or("0");
    hits.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn claims_go_through_the_index_and_cost_the_same_however_much_is_pending() {
    let (server, url, sql) = made().await;
    let fill = |from: u32, to: u32, due: &str| {
        server.sql_in(
            &url,
            &format!(
                "INSERT INTO t_method_limit_log (guid, method_name, method_params, status, next_time, priority)
                 SELECT 'p-' || i, CASE WHEN i % 4 = 0 THEN 'bill' ELSE 'ship' END, '1', 0, now() {due}, i % 3
                 FROM generate_series({from}, {to}) i"
            ),
        );
    };
    let is_indexed = |plan: &str| {
        plan.contains("Index Scan using idx_t_method_limit_log_due")
            && plan.contains("Tid Scan")
            && !plan.contains("Seq Scan")
    };
    fill(1, 10_000, "- interval '1 hour'");
    let plan = claim(&server, &url, &sql);
    assert!(is_indexed(&plan), "without statistics:\n{plan}");
    server.sql_in(&url, "ANALYZE t_method_limit_log");
    let plan = claim(&server, &url, &sql);
    assert!(is_indexed(&plan), "{plan}");
    let few = pages(&claim(&server, &url, &sql));
    // Twenty times as many, and as many again whose time has not come.
    fill(10_001, 200_000, "- interval '1 minute'");
    fill(200_001, 400_000, "+ interval '1 hour'");
    server.sql_in(&url, "ANALYZE t_method_limit_log");
    claim(&server, &url, &sql);
    let plan = claim(&server, &url, &sql);
    assert!(is_indexed(&plan), "{plan}");
    assert!(
        pages(&plan) <= 2 * few,
        "{few} pages with 10,000 pending, {} with 200,000:\n{plan}",
        pages(&plan)
    );
    let plan = server.sql_in(&url, &format!("EXPLAIN {}", sql.depth));
    assert!(plan.contains("Scan using idx_t_method_limit_log_oldest"), "{plan}");
    let types = "text[], text[], text[], text[], int2[], int8[], int8[], int2[], int8, int8, int2";
    let given =
        "ARRAY['new'], ARRAY['ship'], ARRAY['1'], ARRAY['key'], ARRAY[5::int2], ARRAY[0], ARRAY[NULL::int8],
                 ARRAY[NULL::int2], 1000000, 1000000, 0::int2";
    let plan = explained(&server, &url, &sql.defer, types, given);
    assert!(
        plan.contains("uk_t_method_limit_log_key") && !plan.contains("Seq Scan on t_method_limit_log o"),
        "{plan}"
    );
    let plan = explained(&server, &url, &sql.purge, "int8, int8", "1000000, 1000");
    assert!(plan.contains("idx_t_method_limit_log_ended") && !plan.contains("Seq Scan"), "{plan}");
    let plan = explained(&server, &url, &sql.fail_nameless, "int8", "1000");
    assert!(!plan.contains("Seq Scan") && pages(&plan) < 40, "{plan}");
    // Where the clock did not step back, the end of one index is all that is looked at.
    let plan = explained(&server, &url, &sql.clamp_times, "int8", "1000");
    assert!(plan.contains("idx_t_method_limit_log_utime") && pages(&plan) < 20, "{plan}");
    let plan = server.sql_in(&url, &format!("BEGIN; EXPLAIN ANALYZE {}; ROLLBACK", sql.clamp_leases));
    let scan = plan.lines().find(|line| line.contains(" on t_method_limit_log ") && line.contains("Scan"));
    assert!(scan.is_some_and(|scan| scan.contains("never executed")), "{plan}");
    let plan = explained(&server, &url, &sql.expire, "int2, int8", "1::int2, 1000");
    assert!(plan.contains("idx_t_method_limit_log_deadline"), "{plan}");
}

/// Claimed rows stay in the index where they were, and are passed over by who comes later.
#[tokio::test]
async fn a_claim_of_many_writes_no_index_and_the_next_passes_over_them() {
    let (server, url, sql) = made().await;
    let row = "'ship', jsonb_build_object('order', i), 0, now() - interval '1 hour'";
    server.sql_in(
        &url,
        &format!(
            "INSERT INTO t_method_limit_log (guid, method_name, method_params, status, next_time)
             SELECT lpad(i::text, 32, '0'), {row} FROM generate_series(1, 20000) i;
             ANALYZE t_method_limit_log"
        ),
    );
    // One message of several statements is one transaction.
    let told = |most: u32, us: u64| {
        let given = format!("ARRAY['ship'], ARRAY[{most}], 'worker-12345-0123abcd', {us}, NULL");
        let told = server.sql_in(
            &url,
            &format!(
                "PREPARE it ({CLAIM_TYPES}) AS {}; EXECUTE it ({given});
                 SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 't_method_limit_log'",
                sql.claim
            ),
        );
        let counts = told.lines().last().unwrap().split('|').map(|count| count.parse().unwrap());
        counts.collect::<Vec<u32>>()
    };
    let (minute, hour) = (60_000_000, 3_600_000_000);
    assert_eq!(told(127, minute), [127, 0], "few are moved out of the others' way");
    assert_eq!(told(1_000, hour), [1_000, 0], "so are those that are long without a sign of life");
    let plan = claim(&server, &url, &sql);
    assert!(!plan.contains("Rows Removed by Filter"), "{plan}");
    let [all, without_index] = told(5_000, minute)[..] else { panic!("two figures") };
    assert_eq!(all, 5_000);
    assert!(without_index >= 4_500, "{without_index}");
    let plan = claim(&server, &url, &sql);
    assert!(plan.contains("Rows Removed by Filter"), "{plan}");
    // Its own rows take a few each, and what it passes over as many as it lies on.
    assert!(pages(&plan) <= 2_000, "{plan}");

    // Leases that have ended hide nothing of how long others wait.
    told(5_000, 0);
    let depth = server.sql_in(
        &url,
        &format!("INSERT INTO t_method_limit_log_count VALUES ('ship', 0, 20000); {}", sql.depth),
    );
    let overdue: u64 = depth.lines().last().unwrap().split('|').nth(2).unwrap().parse().unwrap();
    assert!(overdue >= hour, "{depth}");
}

/// A table is mostly analysed while little is leased. Then it seemed that no row could have a
/// lease, and each end was looked for in all rows that had one.
#[tokio::test]
async fn ends_and_signs_of_life_are_found_by_their_guid_whatever_the_statistics_say() {
    let (server, url, sql) = made().await;
    server.sql_in(
        &url,
        "INSERT INTO t_method_limit_log (guid, method_name, method_params, status)
         SELECT 'p-' || i, 'ship', '1', 0 FROM generate_series(1, 20000) i;
         ANALYZE t_method_limit_log;
         UPDATE t_method_limit_log SET lease_owner = 'me', lease_until = now() + interval '1 minute', lease_no = 1
         WHERE guid IN (SELECT 'p-' || i FROM generate_series(1, 1000) i)",
    );
    let each = |what: &dyn Fn(u32) -> String| {
        format!("ARRAY[{}]", (1..=200).map(what).collect::<Vec<_>>().join(", "))
    };
    let same = |what: &str| each(&|_| what.to_owned());
    let (guids, numbers) = (each(&|nth| format!("'p-{nth}'")), same("1::int8"));
    let (status, delay, text, counted) =
        (same("1::int2"), same("0::int8"), same("NULL::text"), same("1::int4"));
    let settle = format!("0::int2, {guids}, {numbers}, {status}, {delay}, {text}, {text}, {counted}");
    let types = "int2, text[], int8[], int2[], int8[], text[], text[], int4[]";
    let settled = explained(&server, &url, &sql.settle, types, &settle);
    let beaten =
        explained(&server, &url, &sql.beat, "text[], int8[], int8", &format!("{guids}, {numbers}, 1000000"));
    for plan in [settled, beaten] {
        assert!(plan.contains("rows=200"), "{plan}");
        assert!(!plan.contains("Rows Removed by Join Filter"), "{plan}");
    }
}

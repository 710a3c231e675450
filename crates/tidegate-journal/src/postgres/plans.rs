//! Tests: what a claim costs must not grow with what is pending, so it goes through the index.

use super::sql::Sql;
use crate::Journal;
use testkit::servers::PostgresServer;

/// A statement with its parameters, explained.
fn explained(server: &PostgresServer, url: &str, sql: &str, types: &str, given: &str) -> String {
    server.sql_in(
        url,
        &format!(
            "PREPARE it ({types}) AS {sql}; BEGIN; EXPLAIN (ANALYZE, BUFFERS) EXECUTE it ({given}); ROLLBACK"
        ),
    )
}

fn claim(server: &PostgresServer, url: &str, sql: &Sql) -> String {
    let types = "text[], int8[], text, int8, timestamptz";
    let given = "ARRAY['ship', 'bill'], ARRAY[100, 100], 'me', 1000000, NULL";
    explained(server, url, &sql.claim, types, given)
}

/// The pages that the whole statement touched: the first figure of the plan.
fn pages(plan: &str) -> u64 {
    let line = plan.lines().find(|line| line.contains("Buffers: shared")).unwrap();
    let hits = line.split("hit=").nth(1).unwrap_or("0");
    hits.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn claims_go_through_the_index_and_cost_the_same_however_much_is_pending() {
    let server = PostgresServer::start();
    let url = server.database();
    let builder = Journal::builder();
    let sql = Sql::new(&builder.settings);
    builder.postgres(&url).await.unwrap();
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
    let plan = explained(&server, &url, &sql.expire, "int2, int8", "1::int2, 1000");
    assert!(plan.contains("idx_t_method_limit_log_deadline"), "{plan}");
}

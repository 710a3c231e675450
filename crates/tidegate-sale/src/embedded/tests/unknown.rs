//! Operators' changes of which nobody knows whether they were written: memory sells nothing
//! that the file may not want sold, and both say the same once the sale goes on.

use super::{Commit, OnFile};
use crate::engine::{AdminError, Engine};
use crate::goods::GoodsId;
use crate::order::{OrderSn, OrderState};
use crate::refusal::Refusal;
use crate::sale::{Change, Sale, SaleState};
use crate::suite::{Harness as _, ask, at_rest, books, buy, change, open, phone, sale, settled};
use rusqlite::Connection;
use std::sync::Arc;

const BOTH: [Commit; 2] = [Commit::UnknownButDone, Commit::UnknownAndUndone];

fn pause() -> Change {
    Change::Pause { reason: "a look".into() }
}

/// What is done to a sale that stands here.
fn cases() -> Vec<(Vec<Change>, Change)> {
    use Change::{AddStock, Close, Open, Rate, Resume, Schedule, Warm};
    vec![
        (vec![], Warm),
        (vec![Warm], Open),
        (vec![Warm, Open], pause()),
        (vec![Warm, Open, pause()], Resume),
        (vec![Warm, Open], Close),
        (vec![Warm, Open], AddStock { units: 7 }),
        (vec![Warm, Open], Rate { limit: "7/s".parse().unwrap() }),
        (vec![Warm, Open], Schedule { opens_at: Some(1), closes_at: Some(u64::from(u32::MAX) * 1000) }),
    ]
}

/// Where the file says that the sale stands, and how it is defined.
fn in_file(conn: &Connection, goods: &GoodsId) -> (Sale, SaleState) {
    let sql = "SELECT sale, state FROM sale_goods WHERE goods = ?1";
    conn.query_row(sql, [goods.as_str()], |row| {
        let json = |nth| row.get::<_, String>(nth);
        Ok((serde_json::from_str(&json(0)?).unwrap(), serde_json::from_str(&json(1)?).unwrap()))
    })
    .unwrap()
}

fn in_memory(engine: &dyn Engine) -> (Sale, SaleState) {
    let known = engine.known(&phone()).unwrap();
    (known.sale.clone(), known.state.clone())
}

fn next_commit(place: &OnFile, commit: Commit) {
    place.engine.parts.commits.lock().unwrap().push(commit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_unknown_commit_of_an_operator_memory_does_not_go_on_selling() {
    for (commit, (before, asked)) in
        BOTH.into_iter().flat_map(|commit| cases().into_iter().map(move |case| (commit, case)))
    {
        let what = format!("{asked:?}, {commit:?}");
        let mut place = OnFile::start().await;
        let engine = place.engine();
        engine.create(sale(100), "test").await.unwrap();
        for step in before {
            change(&*engine, &phone(), step).await;
        }
        next_commit(&place, commit);
        let unknown = engine.change(&phone(), asked.clone(), "test").await;
        assert!(matches!(unknown, Err(AdminError::Fault(_))), "{what}: {unknown:?}");
        let refused = engine.reserve(ask(&*engine, "ann", 1)).await;
        assert!(matches!(refused, Err(Refusal::Paused { .. } | Refusal::Closed)), "{what}: {refused:?}");
        assert_eq!(in_memory(&*engine).1, in_file(&place.conn(), &phone()).1, "{what}");
        // Whoever is told to try again does so; stock waits until the books are read.
        match asked {
            Change::AddStock { .. } => {
                let refused = engine.change(&phone(), asked, "test").await;
                assert!(
                    matches!(&refused, Err(AdminError::Refused(why)) if why.contains("resume")),
                    "{refused:?}"
                );
            }
            Change::Close => {
                change(&*engine, &phone(), Change::Close).await;
                assert_eq!(in_memory(&*engine).1, SaleState::Closed, "{what}");
            }
            _ => {}
        }
        let resumed = engine.change(&phone(), Change::Resume, "test").await;
        assert!(resumed.is_ok() || in_memory(&*engine).1 == SaleState::Closed, "{what}: {resumed:?}");
        let after = in_memory(&*engine);
        assert_eq!(after, in_file(&place.conn(), &phone()), "{what}");
        assert_eq!(books(&*engine).await.total, after.0.total, "{what}");
        drop(engine);
        place.reopen().await;
        assert_eq!(in_memory(&*place.engine()), after, "{what}: a restart finds the same");
        if after.1 == SaleState::Open {
            buy(&*place.engine(), "ann", 1).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_stays_closed_although_nobody_said_that_it_was_written() {
    let place = OnFile::start().await;
    let engine = place.engine();
    open(&*engine, sale(100)).await;
    next_commit(&place, Commit::UnknownButDone);
    engine.change(&phone(), Change::Close, "test").await.unwrap_err();
    change(&*engine, &phone(), Change::Resume).await;
    assert_eq!(in_memory(&*engine).1, SaleState::Closed, "closed is for good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_unknown_commit_of_create_the_sale_is_served_or_can_be_created() {
    for commit in BOTH {
        let place = OnFile::start().await;
        let engine = place.engine();
        next_commit(&place, commit);
        let unknown = engine.create(sale(100), "test").await;
        assert!(matches!(unknown, Err(AdminError::Fault(_))), "{unknown:?}");
        let again = engine.create(sale(100), "test").await;
        match commit {
            Commit::UnknownButDone => assert!(matches!(again, Err(AdminError::Refused(_))), "{again:?}"),
            Commit::UnknownAndUndone => assert!(again.is_ok(), "{again:?}"),
        }
        change(&*engine, &phone(), Change::Warm).await;
        change(&*engine, &phone(), Change::Open).await;
        buy(&*engine, "ann", 1).await;
        assert_eq!(at_rest(&*engine, 0).await.left, 99);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_that_could_not_be_looked_for_is_served_once_it_is_created_again() {
    let place = OnFile::start().await;
    let engine = place.engine();
    // The file has it, and memory does not.
    let draft = serde_json::to_string(&SaleState::Draft).unwrap();
    let defined = serde_json::to_string(&sale(100)).unwrap();
    let insert = "INSERT INTO sale_goods (goods, sale, state, epoch, total, stock) VALUES ('phone', ?1, ?2, 1, 100, 100)";
    place.conn().execute(insert, [defined, draft]).unwrap();
    let again = engine.create(sale(100), "test").await;
    assert!(matches!(again, Err(AdminError::Refused(_))), "{again:?}");
    change(&*engine, &phone(), Change::Warm).await;
}

/// A dead letter of three units.
async fn letter(place: &OnFile) -> (Arc<dyn Engine>, OrderSn) {
    let engine = place.engine();
    open(&*engine, sale(100)).await;
    place.poison().await;
    let sn = engine.reserve(ask(&*engine, "poison", 3)).await.unwrap();
    assert_eq!(settled(&*engine, &sn).await.state, OrderState::Failed);
    place.cure().await;
    (engine, sn)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_unknown_commit_of_replay_and_drop_the_books_are_read_again() {
    for (commit, again) in BOTH.into_iter().flat_map(|commit| [(commit, true), (commit, false)]) {
        let place = OnFile::start().await;
        let (engine, sn) = letter(&place).await;
        next_commit(&place, commit);
        let unknown = engine.bury(&sn, again, "test").await;
        assert!(matches!(unknown, Err(AdminError::Fault(_))), "{unknown:?}");
        let refused = engine.reserve(ask(&*engine, "ann", 1)).await;
        assert!(matches!(refused, Err(Refusal::Paused { .. })), "{refused:?}");
        change(&*engine, &phone(), Change::Resume).await;
        engine.bury(&sn, again, "test").await.unwrap();
        let books = at_rest(&*engine, 0).await;
        assert!(books.is_balanced(), "{books:?}");
        assert_eq!((books.placed, books.dead), (if again { 3 } else { 0 }, 0), "{commit:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_unknown_commit_of_repair_it_can_be_repaired_again() {
    for commit in BOTH {
        let place = OnFile::start().await;
        let engine = place.engine();
        open(&*engine, sale(100)).await;
        buy(&*engine, "ann", 5).await;
        change(&*engine, &phone(), pause()).await;
        place.inflate(6).await;
        next_commit(&place, commit);
        let unknown = engine.repair(&phone(), "test").await;
        assert!(matches!(unknown, Err(AdminError::Fault(_))), "{unknown:?}");
        let again = engine.repair(&phone(), "test").await.unwrap();
        assert_eq!(again.is_wrong(), commit == Commit::UnknownAndUndone);
        change(&*engine, &phone(), Change::Resume).await;
        let books = at_rest(&*engine, 0).await;
        assert!(books.is_balanced() && (books.placed, books.left) == (6, 94), "{books:?}");
        buy(&*engine, "bob", 1).await;
    }
}

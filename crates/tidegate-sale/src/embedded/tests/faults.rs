//! A file that fails.

use super::{Commit, OnFile};
use crate::books::Books;
use crate::engine::{AdminError, Engine, Reserve, Turn};
use crate::goods::GoodsId;
use crate::refusal::Refusal;
use crate::sale::{Change, Sale, SaleState};
use crate::suite::{Harness, ask, at_rest, books, buy, buy_all, change, open, phone, sale, until};
use futures_util::future::join_all;

/// Pages that the file may have, beyond those that it has.
async fn room(place: &OnFile, pages: u32) {
    let look = move |desk: &super::super::desk::Desk| {
        let count = |sql: &str| desk.conn.query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap();
        let now = count("PRAGMA page_count");
        count(&format!("PRAGMA max_page_count = {}", now + pages));
    };
    place.engine.parts.writer.look(look).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_gives_everything_back_and_goes_on_later() {
    let mut place = OnFile::start().await;
    let engine = place.engine();
    open(&*engine, sale(100_000)).await;
    room(&place, 20).await;
    let (mut sold, mut busy) = (0, 0);
    while busy == 0 {
        for bought in buy_all(&engine, &[3; 100]).await {
            match bought.answer {
                Ok(_) => sold += 1,
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::Busy);
                    busy += 1;
                }
            }
        }
    }
    assert!(sold > 0);
    // A single one may still find room on a page that is there.
    let refused = loop {
        let ask = ask(&*engine, "late", 3);
        match engine.reserve(ask.clone()).await {
            Ok(_) => sold += 1,
            Err(refusal) => break (refusal, ask),
        }
    };
    assert_eq!(refused.0, Refusal::Busy);
    let why = engine.ready().expect_err("it should get no new buyers");
    assert!(why.contains("cannot be written") && why.contains("full"), "{why}");
    let full = at_rest(&*engine, 0).await;
    assert_eq!((full.orders, full.placed, full.left), (sold, 3 * sold, 100_000 - 3 * sold));
    assert!(full.is_balanced() && full.state == "open", "{full:?}");
    assert_eq!(place.count("sale_orders"), sold);
    room(&place, 10_000).await;
    until("it is ready without an order to try with", async || engine.ready().ok()).await;
    engine.reserve(refused.1).await.expect("the same path is good once there is room");
    drop(engine);
    place.reopen().await;
    assert_eq!(at_rest(&*place.engine(), 0).await.orders, sold + 1);
}

async fn unknown(commit: Commit) -> (OnFile, Books) {
    let place = OnFile::start().await;
    let engine = place.engine();
    let known = open(&*engine, sale(100)).await;
    buy(&*engine, "ann", 1).await;
    place.engine.parts.commits.lock().unwrap().push(commit);
    let lost = ask(&*engine, "bob", 2);
    assert_eq!(engine.reserve(lost.clone()).await, Err(Refusal::Busy));
    let paused = engine.known(&phone()).unwrap();
    assert!(
        matches!(&paused.state, SaleState::Paused { reason, .. } if reason.contains("did not say")),
        "{paused:?}"
    );
    let other = engine.reserve(ask(&*engine, "cid", 1)).await;
    assert!(matches!(other, Err(Refusal::Paused { .. })), "{other:?}");
    assert_eq!(engine.reserve(lost.clone()).await, Err(Refusal::Busy), "nobody knows");
    let resumed = change(&*engine, &phone(), Change::Resume).await;
    assert!(resumed.epoch > known.epoch);
    let told = engine.reserve(lost).await;
    match commit {
        Commit::UnknownButDone => assert!(told.is_ok(), "its order is there: {told:?}"),
        Commit::UnknownAndUndone => assert_eq!(told, Err(Refusal::WrongPath), "a new path is needed"),
    }
    let books = at_rest(&*engine, 0).await;
    (place, books)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_end_pauses_and_going_on_reads_what_was_written() {
    let (place, books) = unknown(Commit::UnknownButDone).await;
    assert_eq!((books.orders, books.placed, books.left, books.is_balanced()), (2, 3, 97, true));
    buy(&*place.engine(), "dan", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_end_pauses_and_going_on_reads_what_was_not_written() {
    let (place, books) = unknown(Commit::UnknownAndUndone).await;
    assert_eq!((books.orders, books.placed, books.left, books.is_balanced()), (1, 1, 99, true));
    buy(&*place.engine(), "bob", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_that_is_closed_in_doubt_finds_out_what_was_written() {
    for closes_first in [false, true] {
        let place = OnFile::start().await;
        let engine = place.engine();
        open(&*engine, sale(100)).await;
        let ann = buy(&*engine, "ann", 1).await;
        if closes_first {
            change(&*engine, &phone(), Change::Close).await;
        }
        place.engine.parts.commits.lock().unwrap().push(Commit::UnknownButDone);
        if closes_first {
            // Giving an order up moves units of a closed sale, too.
            assert!(engine.turn(&ann.order_sn, Turn::Cancel).await.is_err());
            change(&*engine, &phone(), Change::Resume).await;
        } else {
            assert_eq!(engine.reserve(ask(&*engine, "bob", 2)).await, Err(Refusal::Busy));
            change(&*engine, &phone(), Change::Close).await;
        }
        let books = at_rest(&*engine, 0).await;
        let placed = if closes_first { 0 } else { 3 };
        assert_eq!((books.placed, books.is_balanced()), (placed, true), "{books:?}");
        assert_eq!(engine.known(&phone()).unwrap().state, SaleState::Closed);
        assert!(!place.engine.shelf(&phone()).unwrap().with(|ledger| ledger.is_in_doubt));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stock_that_another_changed_pauses_the_sale() {
    let place = OnFile::start().await;
    let engine = place.engine();
    open(&*engine, sale(100)).await;
    place.conn().execute_batch("UPDATE sale_goods SET version = version + 1").unwrap();
    let bought = buy_all(&engine, &[1; 20]).await;
    for bought in &bought {
        assert!(matches!(bought.answer, Err(Refusal::Paused { .. })), "{bought:?}");
    }
    let books = at_rest(&*engine, 0).await;
    assert!(books.is_balanced() && books.left == 100, "all is given back: {books:?}");
    assert_eq!(place.count("sale_orders"), 0);
    assert_eq!(engine.audit(&phone(), 1).await.unwrap()[0].by, "tidegate");
    change(&*engine, &phone(), Change::Resume).await;
    buy(&*engine, "ann", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goods_in_doubt_hold_up_no_others() {
    let place = OnFile::start().await;
    let engine = place.engine();
    let watch: GoodsId = "watch".parse().unwrap();
    open(&*engine, sale(100)).await;
    open(&*engine, Sale { goods: watch.clone(), ..sale(100) }).await;
    let others = "UPDATE sale_goods SET version = version + 1 WHERE goods = 'phone'";
    place.conn().execute_batch(others).unwrap();
    let asks = (0..40).map(|nth| {
        let ask = ask(&*engine, &format!("user-{nth}"), 1);
        if nth % 2 == 0 { ask } else { Reserve { goods: watch.clone(), ..ask } }
    });
    // Together in one queue, so that they meet in one transaction.
    for (nth, answer) in join_all(asks.map(|ask| engine.reserve(ask))).await.into_iter().enumerate() {
        match answer {
            Ok(_) => assert_eq!(nth % 2, 1),
            Err(refusal) => assert!(nth % 2 == 0 && matches!(refusal, Refusal::Paused { .. })),
        }
    }
    let books = engine.books(&watch).await.unwrap().unwrap();
    assert_eq!((books.orders, books.state.as_str(), books.is_balanced()), (20, "open", true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_difference_between_memory_and_file_pauses_the_sale() {
    let place = OnFile::start().await;
    let engine = place.engine();
    open(&*engine, sale(100)).await;
    buy(&*engine, "ann", 5).await;
    place.engine.shelf(&phone()).unwrap().with(|ledger| ledger.left += 1);
    let reason = paused(&*engine).await;
    assert!(reason.contains("100 units in all, 5 placed, 0 in flight, 96 left"), "{reason}");
    change(&*engine, &phone(), Change::Resume).await;
    let books = books(&*engine).await;
    assert!(books.is_balanced() && books.left == 95, "going on has read the file: {books:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_row_pauses_the_sale_until_it_is_repaired() {
    let place = OnFile::start().await;
    let engine = place.engine();
    open(&*engine, sale(100)).await;
    buy(&*engine, "ann", 5).await;
    place.conn().execute_batch("DELETE FROM sale_orders").unwrap();
    let reason = paused(&*engine).await;
    assert!(reason.contains("5 units of 1 orders are stored, 0 of 0 are found"), "{reason}");
    assert!(reason.contains("`repair`"), "it says what to do: {reason}");
    let refused = engine.change(&phone(), Change::Resume, "test").await;
    assert!(matches!(&refused, Err(AdminError::Refused(why)) if why.contains("balance")), "{refused:?}");
    engine.repair(&phone(), "test").await.unwrap();
    change(&*engine, &phone(), Change::Resume).await;
    assert_eq!(at_rest(&*engine, 0).await.left, 100);
}

async fn paused(engine: &dyn Engine) -> String {
    until("the sale is paused", async || match &engine.known(&phone()).unwrap().state {
        SaleState::Paused { reason, .. } => Some(reason.clone()),
        _ => None,
    })
    .await
}

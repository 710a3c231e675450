//! kill -9 in the middle of a crowd, round after round on the same file: every number that
//! was answered is a row, no unit is sold twice, none is lost.

use super::Embedded;
use crate::engine::{Engine, Reserve, Turn};
use crate::suite::{PATIENCE, ask, at_rest, open, phone, sale};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use testkit::rng::Rng;
use testkit::servers::pause;

const ROUNDS: u32 = 12;
const TOTAL: u64 = 1_000_000;
const BUYERS: u32 = 32;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_answered_before_a_kill_is_a_row_after_it() {
    let (rounds, wrong) = rounds("durable", ROUNDS).await;
    assert_eq!(wrong, Vec::<String>::new());
    assert!(rounds > 100, "{rounds} answers are too few to mean anything");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_answered_before_its_commit_is_seen() {
    let (_, wrong) = rounds("early", ROUNDS).await;
    assert!(wrong.iter().any(|wrong| wrong.contains("there is no such row")), "{wrong:?}");
}

/// How many numbers were answered in all rounds, and what is wrong with them.
async fn rounds(variant: &str, rounds: u32) -> (usize, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let (file, notes) = (folder.path().join("sale.db"), folder.path().join("notes"));
    let first = Embedded::open(&file).await.unwrap();
    open(&first, sale(TOTAL)).await;
    first.stop().await;
    let mut rng = Rng::new(7);
    for round in 1..=rounds {
        let mut child = child(&file, &notes, variant, round);
        // Somewhere between its first answers and a crowd of them.
        let enough = answers(&notes).len() + usize::try_from(rng.between(1, 300)).unwrap();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while answers(&notes).len() < enough {
            assert!(child.try_wait().unwrap().is_none(), "the child has ended by itself");
            assert!(tokio::time::Instant::now() < deadline, "too few answers within {PATIENCE:?}");
            pause(Duration::from_micros(rng.below(3000)));
        }
        if round == 1 {
            let refused = Embedded::open(&file).await.err().expect("the child serves it").to_string();
            assert!(refused.contains("another process serves this file"), "{refused}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let answers = answers(&notes);
    let wrong = violations(&file, &answers).await;
    (answers.len(), wrong)
}

/// What the children noted: numbers, and whether they were given up.
fn answers(notes: &Path) -> BTreeMap<String, Vec<String>> {
    let mut answers = BTreeMap::<String, Vec<String>>::new();
    let text = std::fs::read_to_string(notes).unwrap_or_default();
    // A line without its end was not written whole.
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let (what, sn) = line.split_once(' ').unwrap();
        answers.entry(sn.to_owned()).or_default().push(what.to_owned());
    }
    answers
}

async fn violations(file: &Path, answers: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let engine = Embedded::open(file).await.unwrap();
    let mut wrong = Vec::new();
    for (sn, noted) in answers {
        if noted.iter().filter(|what| *what == "answered").count() > 1 {
            wrong.push(format!("{sn} was answered to two buyers"));
        }
        match engine.order(&sn.parse().unwrap()).await.unwrap() {
            None => wrong.push(format!("{sn} was answered, and there is no such row")),
            Some(order) if noted.iter().any(|what| what == "cancelled") && order.state.is_live() => {
                wrong.push(format!("{sn} was given up, and it is {:?}", order.state));
            }
            Some(_) => {}
        }
    }
    let books = at_rest(&engine, 0).await;
    if !books.is_balanced() || books.total != TOTAL {
        wrong.push(format!("the books do not balance: {books:?}"));
    }
    engine.stop().await;
    let conn = rusqlite::Connection::open(file).unwrap();
    let sum = "SELECT coalesce(sum(quantity), 0) FROM sale_orders WHERE state IN (1, 2)";
    let sold: u64 = conn.query_row(sum, [], |row| row.get(0)).unwrap();
    if sold + books.left != TOTAL {
        wrong.push(format!("{sold} sold and {} left are not {TOTAL}", books.left));
    }
    let mut paths = conn.prepare("SELECT hex(path) FROM sale_orders").unwrap();
    let paths: Vec<String> = paths.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    if paths.iter().collect::<BTreeSet<_>>().len() != paths.len() {
        wrong.push("a path has two orders".into());
    }
    wrong
}

fn child(file: &Path, notes: &Path, variant: &str, round: u32) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "embedded::tests::crashes::sells_until_it_is_killed", "--ignored", "--nocapture"])
        .env("TIDEGATE_SALE", file)
        .env("TIDEGATE_NOTES", notes)
        .env("TIDEGATE_VARIANT", variant)
        .env("TIDEGATE_ROUND", round.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "a child of another test"]
fn sells_until_it_is_killed() {
    let Ok(file) = std::env::var("TIDEGATE_SALE") else { return };
    let var = |name: &str| std::env::var(name).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = Embedded::open(Path::new(&file)).await.unwrap();
        engine.parts.answers_early.store(var("TIDEGATE_VARIANT") == "early", Ordering::Relaxed);
        let engine: Arc<dyn Engine> = Arc::new(engine);
        assert!(engine.known(&phone()).is_some());
        let notes = var("TIDEGATE_NOTES");
        let round = var("TIDEGATE_ROUND");
        let buyers: Vec<_> = (0..BUYERS)
            .map(|nth| tokio::spawn(buy(engine.clone(), notes.clone(), format!("user-{round}-{nth}"))))
            .collect();
        for buyer in buyers {
            buyer.await.unwrap();
        }
    });
}

/// Buys for ever; some orders are asked for twice, some are given up.
async fn buy(engine: Arc<dyn Engine>, notes: String, user: String) {
    let mut notes = OpenOptions::new().create(true).append(true).open(notes).unwrap();
    for nth in 0.. {
        let ask = Reserve { key: Some(format!("key-{nth}").into()), ..ask(&*engine, &user, 1 + nth % 3) };
        let sn = engine.reserve(ask.clone()).await.unwrap();
        // One write, so that a line is there whole or not at all.
        notes.write_all(format!("answered {sn}\n").as_bytes()).unwrap();
        if nth % 3 == 0 {
            assert_eq!(engine.reserve(ask).await, Ok(sn.clone()));
        }
        if nth % 5 == 0 && engine.turn(&sn, Turn::Cancel).await.is_ok() {
            notes.write_all(format!("cancelled {sn}\n").as_bytes()).unwrap();
        }
    }
}

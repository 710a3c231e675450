//! Servers that go away, disks that fill up, files that are locked: told clearly, survived.

use crate::place::{PATIENCE, Place, call, server, status, until, worker};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use testkit::servers::{FaultProxy, PostgresServer, wait_until};
use tidegate_journal::{DeferError, JobError, Journal, JournalError, Status};
use tokio::sync::Notify;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(future)
}

#[test]
fn postgres_may_be_killed_and_started_again_in_the_middle() {
    let server = PostgresServer::start();
    block_on(async {
        let journal = Journal::builder().patience(PATIENCE).postgres(&server.url()).await.unwrap();
        let running = worker(&journal)
            .lease(Duration::from_secs(2))
            .on("ship", |_: u64| async { Ok::<_, JobError>(()) })
            .start();
        let (is_over, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let callers: Vec<_> = (0..16)
            .map(|caller| {
                let (journal, is_over, acknowledged) =
                    (journal.clone(), is_over.clone(), acknowledged.clone());
                tokio::spawn(async move {
                    let mut guids = Vec::new();
                    while !is_over.load(Ordering::SeqCst) {
                        guids.push(journal.defer(call("ship", caller)).await.unwrap());
                        acknowledged.fetch_add(1, Ordering::SeqCst);
                    }
                    guids
                })
            })
            .collect();
        for round in 0..3 {
            let before = acknowledged.load(Ordering::SeqCst);
            until("calls are recorded", async || {
                (acknowledged.load(Ordering::SeqCst) > before + 100).then_some(())
            })
            .await;
            if round == 1 {
                server.stop();
            }
            tokio::task::block_in_place(|| server.restart());
        }
        is_over.store(true, Ordering::SeqCst);
        let mut guids = Vec::new();
        for caller in callers {
            guids.extend(caller.await.unwrap());
        }
        for guid in &guids {
            let record = journal.wait(guid, PATIENCE).await.unwrap();
            assert_eq!(record.map(|record| record.status), Some(Status::Done), "{guid}");
        }
        running.stop().await;
        assert_eq!(journal.stats().await.unwrap().pending, 0);
        // The guid is ours: whatever was repeated was written once.
        let rows: usize = server.sql("SELECT count(*) FROM t_method_limit_log").parse().unwrap();
        assert_eq!(rows, guids.len());
    });
}

#[test]
fn a_server_that_is_gone_is_told_and_nothing_was_recorded_and_it_comes_back() {
    let server = PostgresServer::start();
    block_on(async {
        let patience = Duration::from_millis(300);
        let journal = Journal::builder().patience(patience).postgres(&server.url()).await.unwrap();
        journal.defer(call("ship", 1)).await.unwrap();
        server.stop();
        // The connections of the pool broke before anything was sent, or while it was.
        let error = journal.defer(call("ship", 2)).await.unwrap_err();
        assert!(
            matches!(error, DeferError::NotRecorded(JournalError::Gone(_)) | DeferError::Unknown { .. }),
            "{error:?}"
        );
        let error = journal.defer(call("ship", 3)).await.unwrap_err();
        assert!(matches!(error, DeferError::NotRecorded(JournalError::Gone(_))), "{error:?}");
        assert!(journal.stats().await.unwrap_err().is_passing());
        let error = Journal::builder().patience(patience).postgres(&server.url()).await.unwrap_err();
        assert!(matches!(error, JournalError::Gone(_)), "{error}");
        tokio::task::block_in_place(|| server.restart());
        journal.defer(call("ship", 4)).await.unwrap();
        assert_eq!(server.sql("SELECT count(*) FROM t_method_limit_log"), "2");
    });
}

#[test]
fn a_commit_whose_answer_never_comes_is_unknown_and_safe_to_repeat_with_its_key() {
    let server = PostgresServer::start();
    let proxy = FaultProxy::start(&server.addr());
    block_on(async {
        let url = format!("postgres://postgres@{}/postgres", proxy.addr());
        let journal = Journal::builder().patience(Duration::from_millis(500)).postgres(&url).await.unwrap();
        journal.defer(call("ship", 1)).await.unwrap();
        proxy.stall();
        let error = journal.defer(call("ship", 2).key("17")).await.unwrap_err();
        let DeferError::Unknown { .. } = &error else { panic!("{error:?}") };
        assert!(error.to_string().contains("repeat it with its idempotency key"), "{error}");
        proxy.pass();
        let guid = until("it answers", async || journal.defer(call("ship", 2).key("17")).await.ok()).await;
        assert_eq!(journal.defer(call("ship", 2).key("17")).await.unwrap(), guid);
        until("once", async || (server.sql("SELECT count(*) FROM t_method_limit_log") == "2").then_some(()))
            .await;
    });
}

#[test]
fn a_commit_whose_answer_was_cut_off_is_found_again_and_not_written_twice() {
    let server = PostgresServer::start();
    let proxy = FaultProxy::start(&server.addr());
    block_on(async {
        let url = format!("postgres://postgres@{}/postgres", proxy.addr());
        let journal = Journal::builder().patience(PATIENCE).postgres(&url).await.unwrap();
        let rows = || server.sql("SELECT count(*) FROM t_method_limit_log");
        journal.defer(call("ship", 0)).await.unwrap();
        for nth in 1..=5 {
            proxy.cut_in_reply(1);
            let deferring = {
                let journal = journal.clone();
                tokio::spawn(async move { journal.defer(call("ship", nth)).await.unwrap() })
            };
            let committed = (nth + 1).to_string();
            until("the server has committed", async || (rows() == committed).then_some(())).await;
            proxy.pass();
            let guid = deferring.await.unwrap();
            assert_eq!(status(&journal, &guid).await, Status::Pending);
            assert_eq!(rows(), committed);
        }
        assert_eq!(journal.stats().await.unwrap().pending, 6);
    });
}

#[test]
fn an_end_whose_commit_nobody_heard_of_is_entered_and_not_lost() {
    let server = PostgresServer::start();
    let proxy = FaultProxy::start(&server.addr());
    block_on(async {
        let url = format!("postgres://postgres@{}/postgres", proxy.addr());
        let patience = Duration::from_millis(500);
        let journal = Journal::builder().patience(patience).postgres(&url).await.unwrap();
        let (began, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let running = {
            let (began, go_on) = (began.clone(), go_on.clone());
            // It asks for nothing more meanwhile.
            worker(&journal).poll(PATIENCE).on("ship", move |_: u32| {
                let (began, go_on) = (began.clone(), go_on.clone());
                async move {
                    began.notify_one();
                    go_on.notified().await;
                    Ok::<_, JobError>(())
                }
            })
        }
        .start();
        let guid = journal.defer(call("ship", 1)).await.unwrap();
        began.notified().await;
        // Connections for the tries to come.
        futures_util::future::try_join_all((0..8).map(|_| journal.stats())).await.unwrap();
        // In time for the statement to be prepared, too late for the answer to it.
        proxy.delay(patience * 3 / 5);
        go_on.notify_one();
        let done = format!("SELECT count(*) FROM t_method_limit_log WHERE guid = '{guid}' AND status = 1");
        until("the server has committed", async || (server.sql(&done) == "1").then_some(())).await;
        tokio::time::sleep(patience).await;
        proxy.pass();
        until("it is entered", async || (running.stats().held == 0).then_some(())).await;
        let stats = running.stats();
        assert_eq!((stats.total.done, stats.lost), (1, 0));
        running.stop().await;
    });
}

#[test]
fn a_locked_file_is_told_and_works_again_when_it_is_free() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let journal = place.open(Journal::builder().patience(Duration::from_millis(50))).await.unwrap();
        let other = rusqlite::Connection::open(place.path()).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let error = journal.defer(call("ship", 1)).await.unwrap_err();
        assert!(matches!(error, DeferError::NotRecorded(JournalError::Locked(_))), "{error:?}");
        assert_eq!(journal.stats().await.unwrap().pending, 0, "looking needs no lock");
        other.execute_batch("ROLLBACK").unwrap();
        let guid = journal.defer(call("ship", 1)).await.unwrap();
        assert_eq!((status(&journal, &guid).await, place.count("1 = 1")), (Status::Pending, 1));
    });
}

#[test]
fn a_file_that_is_no_journal_says_so() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text.db");
        std::fs::write(&path, "this is no database at all, and rather long, too").unwrap();
        let error = Journal::sqlite(&path).await.unwrap_err();
        assert!(
            error.to_string().contains("not a database") && error.to_string().contains("text.db"),
            "{error}"
        );
        let error = Journal::sqlite(folder.path().join("no/such/folder.db")).await.unwrap_err();
        assert!(matches!(error, JournalError::Open(_)), "{error}");
        let error = Journal::postgres("postgres//nonsense with a password=secret").await.unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    });
}

#[test]
fn a_full_disk_is_told_loses_nothing_and_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path()) else {
        eprintln!("only root can mount a small disk; a file that may not grow is tested beside the writer");
        return;
    };
    block_on(async {
        let journal = Journal::builder().sqlite(folder.path().join("journal.db")).await.unwrap();
        let large = "x".repeat(20_000);
        let mut guids = Vec::new();
        let error = loop {
            match journal.defer(call("ship", &large)).await {
                Ok(guid) => guids.push(guid),
                Err(error) => break error,
            }
            assert!(guids.len() < 10_000, "the disk never fills up");
        };
        assert!(matches!(error, DeferError::NotRecorded(JournalError::DiskFull(_))), "{error:?}");
        assert!(!guids.is_empty());
        for guid in &guids {
            assert_eq!(status(&journal, guid).await, Status::Pending);
        }
        disk.grow();
        guids.push(journal.defer(call("ship", &large)).await.unwrap());
        let pass = worker(&journal)
            .on("ship", |_: String| async { Ok::<_, JobError>(()) })
            .run_once()
            .await
            .unwrap();
        assert_eq!(pass.done, guids.len() as u64);
    });
}

/// A file system of 4 MiB.
struct SmallDisk<'a> {
    folder: &'a Path,
}

impl<'a> SmallDisk<'a> {
    /// Nothing where we may not mount one.
    fn mount(folder: &'a Path) -> Option<Self> {
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(folder).output();
        mount.is_ok_and(|output| output.status.success()).then_some(Self { folder })
    }

    fn grow(&self) {
        let grown = Command::new("mount").args(["-o", "remount,size=64m"]).arg(self.folder).status();
        assert!(grown.unwrap().success());
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder).status();
    }
}

/// Whoever asked went away, and its statement hung on: the next to use the connection waited
/// behind it.
#[test]
fn a_question_that_nobody_waits_for_blocks_no_connection() {
    let place = Place::postgres();
    block_on(async {
        let journal = place.open(Journal::builder().patience(Duration::from_secs(10))).await.unwrap();
        let guid = journal.defer(call("ship", 1)).await.unwrap();
        let blocks = "BEGIN; LOCK TABLE t_method_limit_log IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(100)";
        let sessions = |like: &str| {
            place.sql(&format!(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND pid <> pg_backend_pid() AND {like}"
            ))
        };
        std::thread::scope(|scope| {
            scope.spawn(|| server().try_sql_in(&place.address(), blocks));
            wait_until("the table is locked", PATIENCE, || sessions("wait_event = 'PgSleep'") == "1");
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(async {
                    // More than there are connections.
                    for _ in 0..20 {
                        let asked =
                            tokio::time::timeout(Duration::from_millis(50), journal.find(&guid)).await;
                        assert!(asked.is_err(), "it hangs: {asked:?}");
                    }
                    let begun = tokio::time::Instant::now();
                    journal.now().await.unwrap();
                    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
                });
            });
            place.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
        });
        assert!(journal.find(&guid).await.unwrap().is_some());
    });
}

//! kill -9 of enqueuers and workers at every step, round after round on the same database:
//! every record that was acknowledged ends once in the books, every done one ran, and no lease
//! ever had two owners. Whoever dies at a step notes it: a run that misses one shows too little.
//!
//! `TIDEGATE_CASES=10` makes it hundreds of rounds.

use crate::place::{PATIENCE, Place, call, cases, until, until_within, worker};
use rustix::process::{Signal, getpid, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use testkit::rng::Rng;
use testkit::servers::pause;
use tidegate_journal::{Go, JobError, Journal, Replay, Status, Worker};

const ROUNDS: usize = 30;
const LEASE: Duration = Duration::from_millis(300);

on_both! {
    whatever_is_killed_every_acknowledged_record_ends_once_and_no_lease_has_two_owners,
    a_record_that_kills_its_workers_ends_failed_and_takes_no_other_along,
}

async fn whatever_is_killed_every_acknowledged_record_ends_once_and_no_lease_has_two_owners(place: &Place) {
    let journal = place.journal().await;
    audit(place);
    let folder = tempfile::tempdir().unwrap();
    let notes = Notes::new(folder.path());
    let mut rng = Rng::new(5);
    for round in 0..ROUNDS * cases() {
        let steps = [Step::Gate, Step::Begin, Step::Worked, Step::Never, Step::Entered];
        let enqueuer_dies = [Step::Never, Step::Deferring, Step::Acknowledged][round % 3];
        let worker_dies = steps[round % steps.len()];
        let mut children = [
            child(place, &notes, "enqueue", enqueuer_dies, rng.between(1, 100)),
            child(place, &notes, "work", worker_dies, rng.between(1, 40)),
            child(place, &notes, "work", Step::Never, 0),
        ];
        // In turn, one of those that kill themselves is let live until it does.
        let spared = round % 2;
        let is_spared = [enqueuer_dies, worker_dies][spared] != Step::Never;
        // The others at any moment of their lives, from their start on.
        let mut order: Vec<_> = (0..children.len()).filter(|nth| !is_spared || *nth != spared).collect();
        while !order.is_empty() {
            pause(Duration::from_micros(rng.below(120_000)));
            let nth = order.swap_remove(usize::try_from(rng.below(order.len() as u64)).unwrap());
            children[nth].kill().unwrap();
            children[nth].wait().unwrap();
        }
        if is_spared {
            // Nobody else is left to give it work.
            until("it has killed itself", async || {
                let call = call("effect", rng.below(320)).max_attempts(50);
                notes.write("acknowledged", journal.defer(call).await.unwrap());
                children[spared].try_wait().unwrap()
            })
            .await;
        }
    }
    let pending = async || journal.stats().await.unwrap().pending;
    let running = handlers(worker(&journal).lease(LEASE), &notes, Fuse::new(Step::Never, 0, &notes)).start();
    let patience = PATIENCE * u32::try_from(cases()).unwrap();
    until_within(patience, "all has ended", async || (place.count("status = 0") == 0).then_some(())).await;
    running.stop().await;
    assert_eq!(pending().await, 0, "the kept count agrees");
    let books = notes.books(place);
    let (acknowledged, ran) = (books.acknowledged.len(), books.runs.len());
    let owners = books.runs.iter().map(|run| &run.owner).collect::<BTreeSet<_>>().len();
    let died = STEPS.map(|step| (step, notes.died_at(step)));
    let [done, failed, expired] = [1, 2, 3].map(|status| books.ended_as(status));
    println!("{acknowledged} acknowledged of {}, {ran} runs by {owners}", books.statuses.len());
    println!("{done} done, {failed} failed, {expired} expired; died at {died:?}");
    let enough = ROUNDS * cases();
    // On a busy machine few but those that are let live come to run anything.
    assert!(
        acknowledged > enough && ran > enough && owners > enough / 4,
        "{acknowledged} acknowledged, {ran} runs by {owners}: too few to mean anything"
    );
    let is_missed = |(step, times): &(Step, usize)| *step != Step::Never && *times < cases();
    assert_eq!(died.into_iter().find(is_missed), None, "a step at which too few died to mean anything");
    assert!(
        [done, failed, expired].iter().all(|records| *records > cases()),
        "{done} done, {failed} failed, {expired} expired: too few to mean anything"
    );
    assert_eq!(books.violations(), Vec::<String>::new());
}

async fn a_record_that_kills_its_workers_ends_failed_and_takes_no_other_along(place: &Place) {
    let journal = place.journal().await;
    let folder = tempfile::tempdir().unwrap();
    let notes = Notes::new(folder.path());
    let poison = journal.defer(call("effect", POISON).max_attempts(3)).await.unwrap();
    // They are slow enough to be under way whenever the poison kills, and in the same hands.
    let others: Vec<_> = (0..40).map(|_| journal.defer(call("effect", SLOW).max_attempts(3))).collect();
    let others = futures_util::future::join_all(others).await;
    let mut lives = 0;
    while place.count("status = 0") > 0 {
        let mut worker = child(place, &notes, "work", Step::Never, 0);
        let is_over =
            async || (worker.try_wait().unwrap().is_some() || place.count("status = 0") == 0).then_some(());
        until("it has killed its worker, or all has ended", is_over).await;
        worker.kill().unwrap();
        worker.wait().unwrap();
        lives += 1;
    }
    let record = journal.find(&poison).await.unwrap().unwrap();
    assert_eq!((record.status, record.attempts), (Status::Failed, 3));
    let reason = record.last_error.unwrap();
    assert_eq!(reason, "gave up after 3 attempts: none of them told how it ended");
    for guid in others {
        let record = journal.find(&guid.unwrap()).await.unwrap().unwrap();
        assert_eq!(record.status, Status::Done, "{record:?}");
    }
    assert!((4..=6).contains(&lives), "the first try, three that are counted, and the end: {lives}");
}

/// Parameters of a call that kills its process, and of one that takes its time.
const POISON: u64 = 1_000_001;
const SLOW: u64 = 1_000_002;

/// Where a child kills itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Never,
    /// The call is with the journal, its commit is under way.
    Deferring,
    /// The commit was acknowledged, and nobody was told.
    Acknowledged,
    /// Claimed, not begun.
    Gate,
    /// The handler has begun.
    Begin,
    /// The handler has done its work, and its end is not entered.
    Worked,
    /// Ends are being entered.
    Entered,
}

const STEPS: [Step; 7] =
    [Step::Never, Step::Deferring, Step::Acknowledged, Step::Gate, Step::Begin, Step::Worked, Step::Entered];

fn child(place: &Place, notes: &Notes, role: &str, dies: Step, after: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crashes::lives_until_it_is_killed", "--ignored", "--nocapture"])
        .env("TIDEGATE_JOURNAL", place.address())
        .env("TIDEGATE_NOTES", &notes.folder)
        .env("TIDEGATE_ROLE", role)
        .env("TIDEGATE_DIES", format!("{dies:?}"))
        .env("TIDEGATE_AFTER", after.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "a child of another test"]
fn lives_until_it_is_killed() {
    let Ok(address) = std::env::var("TIDEGATE_JOURNAL") else { return };
    let var = |name: &str| std::env::var(name).unwrap();
    let dies = *STEPS.iter().find(|step| format!("{step:?}") == var("TIDEGATE_DIES")).unwrap();
    let notes = Notes::new(Path::new(&var("TIDEGATE_NOTES")));
    let fuse = Fuse::new(dies, var("TIDEGATE_AFTER").parse().unwrap(), &notes);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let journal = if address.starts_with("postgres:") {
            Journal::postgres(&address).await.unwrap()
        } else {
            Journal::sqlite(&address).await.unwrap()
        };
        if var("TIDEGATE_ROLE") == "enqueue" {
            enqueue(&journal, &notes, &fuse).await;
        } else {
            // Some take many at once, which then stay where they are in PostgreSQL's index.
            let places = if dies == Step::Never { 64 } else { 256 };
            let name = format!("worker-{}", std::process::id());
            let worker = worker(&journal).lease(LEASE).concurrency(places).name(&name);
            let _running = handlers(worker, &notes, fuse).start();
            tokio::time::sleep(PATIENCE).await;
        }
    });
}

/// Several callers at once, each telling what was acknowledged to it.
async fn enqueue(journal: &Journal, notes: &Notes, fuse: &Fuse) {
    let callers: Vec<_> = (0..8u64)
        .map(|caller| {
            let (journal, notes, fuse) = (journal.clone(), notes.clone(), fuse.clone());
            tokio::spawn(async move {
                for nth in 0..40 {
                    let call = call("effect", caller * 40 + nth).max_attempts(50);
                    // Some expire: their time is over, or shorter than a crash is long.
                    let call = match nth % 10 {
                        0 => call.deadline_in(Duration::ZERO),
                        9 => call.deadline_in(LEASE / 2),
                        _ => call,
                    };
                    let deferring = tokio::spawn({
                        let journal = journal.clone();
                        async move { journal.defer(call).await }
                    });
                    tokio::task::yield_now().await;
                    fuse.at(Step::Deferring);
                    let guid = deferring.await.unwrap().unwrap();
                    fuse.at(Step::Acknowledged);
                    notes.write("acknowledged", &guid);
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    tokio::time::sleep(PATIENCE).await;
}

fn handlers(worker: Worker, notes: &Notes, fuse: Fuse) -> Worker {
    let (notes, gate) = (notes.clone(), fuse.clone());
    worker
        .on_replay("effect", move |replay: Replay, n: u64| {
            notes.write("ran", format!("{} {} {}", replay.guid, replay.lease, std::process::id()));
            let fuse = fuse.clone();
            async move {
                fuse.at(Step::Begin);
                tokio::task::yield_now().await;
                fuse.at(Step::Worked);
                if fuse.step == Step::Entered {
                    // Dies a moment later, wherever the commit of these ends is by then.
                    let fuse = fuse.clone();
                    std::thread::spawn(move || {
                        pause(Duration::from_micros(n * 37 % 5_000));
                        fuse.at(Step::Entered);
                    });
                }
                if n == POISON {
                    kill_process(getpid(), Signal::KILL).unwrap();
                }
                if n == SLOW {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                match n % 10 {
                    3 => Err(JobError::permanent("never")),
                    4 if replay.attempt == 1 => Err(JobError::retry("not the first time")),
                    _ => Ok(n),
                }
            }
        })
        .gate(move |_| {
            gate.at(Step::Gate);
            std::future::ready(Go::now())
        })
}

/// Kills its process when it comes to a step for the last time it is allowed to.
#[derive(Clone)]
struct Fuse {
    step: Step,
    left: Arc<AtomicI64>,
    notes: Notes,
}

impl Fuse {
    fn new(step: Step, times: u64, notes: &Notes) -> Self {
        let left = Arc::new(AtomicI64::new(i64::try_from(times).unwrap()));
        Self { step, left, notes: notes.clone() }
    }

    fn at(&self, step: Step) {
        // One thread alone brings it to nothing: a death is noted once.
        if step == self.step && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.notes.write("died", format!("{step:?}"));
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    }
}

/// What processes wrote down, each line in one write: it is there when they are killed.
#[derive(Clone)]
struct Notes {
    folder: PathBuf,
}

impl Notes {
    fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    fn write(&self, file: &str, line: impl Display) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.folder.join(file)).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// How many processes killed themselves there.
    fn died_at(&self, step: Step) -> usize {
        self.lines("died").into_iter().filter(|line| *line == format!("{step:?}")).count()
    }

    fn books(&self, place: &Place) -> Books {
        let runs = self.lines("ran").into_iter().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            Run { guid: words[0].to_owned(), lease: words[1].parse().unwrap(), owner: words[2].to_owned() }
        });
        let pairs = |sql: &str| -> Vec<(String, u64)> {
            let rows = place.sql(sql);
            let pair = |line: &str| {
                line.split_once('|').map(|(guid, number)| (guid.to_owned(), number.parse().unwrap()))
            };
            rows.lines().filter_map(pair).collect()
        };
        Books {
            acknowledged: self.lines("acknowledged").into_iter().collect(),
            runs: runs.collect(),
            statuses: pairs("SELECT guid, status FROM t_method_limit_log").into_iter().collect(),
            ends: pairs("SELECT guid, count(*) FROM ends GROUP BY guid").into_iter().collect(),
        }
    }
}

struct Run {
    guid: String,
    lease: i64,
    owner: String,
}

/// Everything that happened, to be held against what was promised.
struct Books {
    acknowledged: BTreeSet<String>,
    runs: Vec<Run>,
    statuses: BTreeMap<String, u64>,
    /// How often an end was entered.
    ends: BTreeMap<String, u64>,
}

impl Books {
    fn ended_as(&self, status: u64) -> usize {
        self.statuses.values().filter(|one| **one == status).count()
    }

    fn violations(&self) -> Vec<String> {
        let mut all = Vec::new();
        for guid in self.acknowledged.iter().filter(|guid| !self.statuses.contains_key(*guid)) {
            all.push(format!("{guid} was acknowledged, and is not there"));
        }
        let mut owners: BTreeMap<(&str, i64), Vec<&str>> = BTreeMap::new();
        let mut ran = BTreeSet::new();
        for run in &self.runs {
            owners.entry((&run.guid, run.lease)).or_default().push(&run.owner);
            ran.insert(run.guid.as_str());
        }
        for (guid, status) in &self.statuses {
            let ends = self.ends.get(guid).copied().unwrap_or(0);
            match status {
                1..=3 if ends == 1 => {}
                _ => all.push(format!("{guid} has status {status} and ended {ends} times")),
            }
            if *status == 1 && !ran.contains(guid.as_str()) {
                all.push(format!("{guid} is done, and never ran"));
            }
        }
        for ((guid, lease), owners) in owners.iter().filter(|(_, owners)| owners.len() > 1) {
            all.push(format!("lease {lease} of {guid} ran {} times, by {owners:?}", owners.len()));
        }
        all
    }
}

/// Writes down every end that is entered, whoever enters it.
fn audit(place: &Place) {
    place.sql(if place.is_sqlite() {
        "CREATE TABLE ends (guid text, status integer);
         CREATE TRIGGER ended AFTER UPDATE OF status ON t_method_limit_log WHEN new.status <> 0
         BEGIN INSERT INTO ends VALUES (new.guid, new.status); END;
         SELECT 1"
    } else {
        "CREATE TABLE ends (guid text, status int);
         CREATE FUNCTION ended() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN INSERT INTO ends VALUES (new.guid, new.status); RETURN new; END $$;
         CREATE TRIGGER ended AFTER UPDATE OF status ON t_method_limit_log FOR EACH ROW
           WHEN (new.status <> 0) EXECUTE FUNCTION ended()"
    });
}

/// The job as it was sketched first: loads what is pending, runs it, sets its status.
fn as_first_sketched(place: &Place, notes: &Notes, owner: &str, both_loaded: &std::sync::Barrier) {
    let pending = place.sql("SELECT guid, lease_no FROM t_method_limit_log WHERE status = 0");
    both_loaded.wait();
    for line in pending.lines() {
        let (guid, lease) = line.split_once('|').unwrap();
        notes.write("ran", format!("{guid} {lease} {owner}"));
        place.sql(&format!("UPDATE t_method_limit_log SET status = 1 WHERE guid = '{guid}'; SELECT 1"));
    }
}

#[test]
fn the_checker_finds_what_the_first_sketch_does_wrong() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let journal = place.journal().await;
        audit(place);
        let folder = tempfile::tempdir().unwrap();
        let notes = Notes::new(folder.path());
        for nth in 0..3 {
            notes.write("acknowledged", journal.defer(call("effect", nth)).await.unwrap());
        }
        // Killed before it has set the status, and then run by two at once.
        let both_loaded = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| as_first_sketched(place, &notes, "one", &both_loaded));
            scope.spawn(|| as_first_sketched(place, &notes, "other", &both_loaded));
        });
        notes.write("acknowledged", "lost");
        notes.write("acknowledged", journal.defer(call("effect", 9)).await.unwrap());
        let violations = notes.books(place).violations();
        let count = |text: &str| violations.iter().filter(|one| one.contains(text)).count();
        assert_eq!(count("lost was acknowledged, and is not there"), 1, "{violations:?}");
        assert_eq!(count("has status 1 and ended 2 times"), 3, "{violations:?}");
        assert_eq!(count("has status 0 and ended 0 times"), 1, "{violations:?}");
        assert_eq!(count("ran 2 times, by"), 3, "{violations:?}");
        place.sql("UPDATE t_method_limit_log SET status = 1 WHERE status = 0; SELECT 1");
        assert!(notes.books(place).violations().iter().any(|one| one.contains("is done, and never ran")));
    });
}

//! What a database has to do for the journal. Two do: SQLite and PostgreSQL.
//!
//! Every change of a record is a compare-and-set: on `status = 0` for those who only hold its
//! guid, and on the lease's number too for its worker. The number grows with each claim,
//! cancellation and revival, so a number names one owner for ever.

use crate::call::FOREVER;
use crate::clock::{Micros, micros, since_boot};
use crate::{Call, Cancelled, DeferError, Filter, Guid, JournalError, Page, Record, Retried};
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, JournalError>> + Send + 'a>>;

/// What [`Backend::defer`] answers: the record's guid, and whether it was there before.
pub(crate) type Deferral = Result<(Guid, Repeated), DeferError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeated {
    Yes,
    No,
}

/// What became of leases that were to be prolonged.
#[derive(Default)]
pub(crate) struct Beat {
    pub(crate) prolonged: Vec<Guid>,
    pub(crate) lost: Vec<Guid>,
}

pub(crate) trait Backend: Send + Sync + 'static {
    /// Records a call; answers once its commit is durable.
    fn defer(&self, call: Call) -> Pin<Box<dyn Future<Output = Deferral> + Send + '_>>;

    /// True if [`defer`](Self::defer) needs the runtime of tokio to go on meanwhile.
    fn needs_runtime(&self) -> bool {
        false
    }

    /// This process's clock, by which it knows when its leases end. It counts what `Instant` does
    /// not, the time that the machine was suspended.
    fn clock(&self) -> Duration {
        since_boot()
    }

    /// For how long a lease of this length is surely ours, by that clock.
    fn surely(&self, lease: Duration) -> Duration {
        lease
    }

    /// Takes due records for a worker, the highest priority first, then the longest due.
    fn claim(&self, ask: Claim) -> Answer<'_, Vec<Claimed>>;

    /// Writes down how many attempts there were, before the next begins or because it did not;
    /// answers whether the lease still holds.
    fn count(&self, lease: Lease, attempts: u32) -> Answer<'_, bool>;

    /// Prolongs leases; of those that somebody changes at this moment it knows nothing.
    fn beat(&self, leases: Vec<Lease>, length: Duration) -> Answer<'_, Beat>;

    /// Enters what came of replays; answers which could be entered.
    fn settle(&self, outcomes: Vec<Settled>) -> Answer<'_, Vec<Guid>>;

    /// If there was something to cancel, also answers a number: leases before it had smaller ones.
    fn cancel(&self, guid: Guid) -> Answer<'_, (Cancelled, Option<i64>)>;

    fn retry(&self, guid: Guid) -> Answer<'_, Retried>;

    fn find(&self, guid: Guid) -> Answer<'_, Option<Record>>;

    /// Those of these records that have ended, or are gone.
    fn ended(&self, guids: Vec<Guid>) -> Answer<'_, Vec<Guid>>;

    fn list(&self, filter: Filter, page: Page) -> Answer<'_, Vec<Record>>;

    /// A worker lives that knows these methods.
    fn announce(&self, methods: Vec<String>) -> Answer<'_, ()>;

    /// Ends up to `batch` records whose deadline has passed.
    fn expire(&self, batch: u32) -> Answer<'_, Ended>;

    /// Ends up to `batch` records of methods that no worker knew for `after`.
    fn fail_orphans(&self, after: Duration, batch: u32) -> Answer<'_, Ended>;

    /// Where the database's clock can step back: brings what lies further ahead than its own delay
    /// or its own lease back to that from now. Answers how many records, up to `batch`.
    fn clamp_times(&self, _batch: u32) -> Answer<'_, u64> {
        Box::pin(async { Ok(0) })
    }

    /// Removes up to `batch` records that ended longer ago than `keep`.
    fn purge(&self, keep: Duration, batch: u32) -> Answer<'_, u64>;

    /// Sets the kept counts right, should others have written into the table.
    fn recount(&self) -> Answer<'_, ()>;

    fn depth(&self) -> Answer<'_, Vec<Depth>>;

    /// The time that counts.
    fn now(&self) -> Answer<'_, SystemTime>;
}

/// How many records of which method were ended; others may have written some without one.
#[derive(Debug, Default)]
pub(crate) struct Ended(pub(crate) Vec<(Option<String>, u64)>);

impl Ended {
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    pub(crate) fn tell(&self, mut told: impl FnMut(Option<&str>, u64)) {
        self.0
            .iter()
            .filter(|(_, count)| *count > 0)
            .for_each(|(method, count)| told(method.as_deref(), *count));
    }
}

/// What a worker asks for.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) owner: String,
    pub(crate) lease: Duration,
    /// How many of each method, at most.
    pub(crate) wants: Vec<(String, u32)>,
    /// Only what was due then.
    pub(crate) as_of: Option<SystemTime>,
}

/// A record in a worker's hands.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) lease: Lease,
    pub(crate) method: String,
    pub(crate) params: String,
    pub(crate) priority: u8,
    /// Before this one.
    pub(crate) attempts: u32,
    /// How often in a row a lease of it lapsed: its worker died, with or because of it.
    pub(crate) lapses: u32,
    pub(crate) max_attempts: Option<u16>,
    pub(crate) last_error: Option<String>,
    pub(crate) create_time: SystemTime,
    /// Time left until its deadline, when it was claimed.
    pub(crate) left: Option<Duration>,
}

/// One turn of one owner at one record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) guid: Guid,
    pub(crate) number: i64,
}

/// What came of a turn.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) lease: Lease,
    pub(crate) end: End,
    /// An attempt was made that is not counted yet.
    pub(crate) is_counted: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum End {
    Done {
        result: Option<String>,
        note: Option<String>,
    },
    Failed {
        reason: String,
    },
    Expired {
        reason: String,
    },
    /// Pending again, after a while.
    Again {
        reason: String,
        after: Duration,
    },
    /// Pending again after a while, without an attempt: its gate did not let it start.
    PutOff {
        after: Duration,
    },
    /// Pending again at once, and in the order as it was: due for so long already.
    Returned {
        due_for: Duration,
    },
}

impl End {
    /// The status to write, in how many microseconds it is due, the result and the error.
    pub(crate) fn columns(&self) -> (i16, Micros, Option<&str>, Option<&str>) {
        let ahead = |time: &Duration| micros((*time).min(FOREVER));
        match self {
            Self::Done { result, note } => (1, 0, result.as_deref(), note.as_deref()),
            Self::Failed { reason } => (2, 0, None, Some(reason)),
            Self::Expired { reason } => (3, 0, None, Some(reason)),
            Self::Again { reason, after } => (0, ahead(after), None, Some(reason)),
            Self::PutOff { after } => (0, ahead(after), None, None),
            Self::Returned { due_for } => (0, -ahead(due_for), None, None),
        }
    }
}

impl End {
    /// The same end without its words, for a database that refuses them; nothing if it has none.
    pub(crate) fn without_words(&self) -> Option<Self> {
        let (.., result, error) = self.columns();
        if result.is_none() && error.is_none_or(|error| error == NOT_KEPT) {
            return None;
        }
        let reason = NOT_KEPT.to_owned();
        Some(match self {
            Self::Done { .. } => Self::Done { result: None, note: Some(reason) },
            Self::Failed { .. } => Self::Failed { reason },
            Self::Expired { .. } => Self::Expired { reason },
            Self::Again { after, .. } => Self::Again { reason, after: *after },
            Self::PutOff { .. } | Self::Returned { .. } => return None,
        })
    }
}

/// How much of a method is pending.
#[derive(Clone, Debug)]
pub(crate) struct Depth {
    pub(crate) method: String,
    pub(crate) pending: u64,
    /// How long the one that is longest due has been due.
    pub(crate) overdue: Option<Duration>,
    /// How long ago the oldest of them was recorded.
    pub(crate) oldest: Option<Duration>,
}

/// Why a record ends that nobody could replay. The same words on every database.
pub(crate) fn orphan_reason(after: Duration) -> String {
    format!(
        "no worker knows this method, and none did for {after:?}; start one that does, then retry the record"
    )
}

const NOT_KEPT: &str = "what it said was not kept: the database refuses it";

pub(crate) const EXPIRED: &str = "its deadline passed before it could start";

/// Before the error of the attempt before, which says more about why than the deadline does.
pub(crate) const EXPIRED_AGAIN: &str = "its deadline passed before it could start again; last error: ";

pub(crate) const LAST_ERROR: &str = "; last error: ";

/// What is kept of an error, in characters.
pub(crate) const ERROR_MAX: usize = 2_000;

/// Why a record ends whose deadline passed. The same words on every database.
pub(crate) fn expired_reason(attempts: u32, last_error: Option<&str>) -> String {
    match last_error {
        Some(last) if attempts > 0 => format!("{EXPIRED_AGAIN}{last}").chars().take(ERROR_MAX).collect(),
        _ => EXPIRED.to_owned(),
    }
}

pub(crate) const NAMELESS: &str = "it was recorded without the name of a method";

#[cfg(all(test, feature = "sqlite", feature = "postgres"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

    use super::*;
    use crate::Journal;
    use crate::clock::instant;
    use std::collections::BTreeMap;

    /// A worker's messages may come late, or twice where a connection broke.
    async fn messages_that_come_late_change_nothing(journal: Journal) {
        let backend = journal.backend();
        let guid = journal.defer(Call::new("ship", &17).unwrap()).await.unwrap();
        let lease = Duration::from_secs(30);
        let claim = || Claim { owner: "me".into(), lease, wants: vec![("ship".into(), 10)], as_of: None };
        let claimed = backend.claim(claim()).await.unwrap().remove(0);
        let beat = backend.beat(vec![claimed.lease.clone()], lease).await.unwrap();
        assert_eq!((beat.prolonged, beat.lost), (vec![guid.clone()], vec![]));

        let after = Duration::from_secs(600);
        let again = End::Again { reason: "not yet".into(), after };
        let settled = Settled { lease: claimed.lease.clone(), end: again, is_counted: true };
        backend.settle(vec![settled.clone()]).await.unwrap();
        let before = journal.find(&guid).await.unwrap().unwrap();
        assert!(backend.beat(vec![claimed.lease.clone()], lease).await.unwrap().prolonged.is_empty());
        assert!(!backend.count(claimed.lease.clone(), 7).await.unwrap());
        backend.settle(vec![settled]).await.unwrap();
        let now = journal.find(&guid).await.unwrap().unwrap();
        assert_eq!(now.attempts, 1);
        assert_eq!((now.next_time, now.status), (before.next_time, before.status));
    }

    /// Whether a claim takes few or many: those may stay where they are in the index, and then only
    /// their lease keeps others away.
    async fn a_lease_keeps_others_away_and_the_order_as_it_was(journal: Journal, each: u32, stay: bool) {
        let backend = journal.backend();
        let claim_of = async |most: u32, lease: Duration, as_of: Option<SystemTime>| {
            let ask = Claim { owner: "me".into(), lease, wants: vec![("ship".into(), most)], as_of };
            let claimed = backend.claim(ask).await.unwrap().into_iter().map(|one| one.lease);
            claimed.map(|lease| (lease.guid, lease.number)).collect::<BTreeMap<_, _>>()
        };
        let give_back = async |leases: &BTreeMap<Guid, i64>, due_for: Duration| {
            let returned = leases.iter().map(|(guid, number)| Settled {
                lease: Lease { guid: guid.clone(), number: *number },
                end: End::Returned { due_for },
                is_counted: false,
            });
            assert_eq!(backend.settle(returned.collect()).await.unwrap().len(), leases.len());
        };
        let defer = async || {
            let calls = (0..each).map(|nth| Call::new("ship", &nth).unwrap());
            let guids = journal.defer_all(calls).await.into_iter().map(Result::unwrap);
            guids.map(|guid| (guid, 1)).collect::<BTreeMap<_, i64>>()
        };
        let later = |leases: &BTreeMap<Guid, i64>, by: i64| {
            leases.iter().map(|(guid, number)| (guid.clone(), number + by)).collect::<BTreeMap<_, _>>()
        };
        let long = Duration::from_secs(60);

        let first = defer().await;
        assert_eq!(claim_of(2 * each, long, None).await, first);
        let taken = instant();
        for guid in first.keys() {
            let record = journal.find(guid).await.unwrap().unwrap();
            assert!(record.next_time > record.create_time + long / 2, "looked at again when its lease ends");
            assert_eq!(record.update_time, record.create_time);
        }
        let second = defer().await;
        assert_eq!(claim_of(2 * each, long, None).await, second);
        assert_eq!(journal.stats().await.unwrap().overdue, None, "what runs is not waiting");
        assert_eq!(backend.fail_orphans(Duration::ZERO, 10).await.unwrap().count(), 0);
        assert!(claim_of(2 * each, long, None).await.is_empty());

        // Whatever was told of the time since then, those that stayed have their place.
        let tiny = Duration::from_micros(1);
        give_back(&second, tiny).await;
        give_back(&first, if stay { tiny } else { taken.elapsed() }).await;
        assert_eq!(claim_of(each, long, None).await, later(&first, 1), "the first are the first again");
        give_back(&later(&first, 1), tiny).await;
        // A lease that ends at once: its worker died, as far as others can tell. A pass that began
        // before that leaves it to the next.
        let before = backend.now().await.unwrap();
        assert_eq!(claim_of(2 * each, Duration::ZERO, None).await.len(), 2 * each as usize);
        assert!(claim_of(2 * each, long, Some(before)).await.is_empty());
        let all = claim_of(2 * each, long, None).await;
        assert_eq!(all, later(&first, 3).into_iter().chain(later(&second, 2)).collect());
    }

    #[tokio::test]
    async fn on_sqlite() {
        let folder = tempfile::tempdir().unwrap();
        let journal = async |name: &str| Journal::sqlite(folder.path().join(name)).await.unwrap();
        messages_that_come_late_change_nothing(journal("late.db").await).await;
        for each in [1, 200] {
            let journal = journal(&format!("{each}.db")).await;
            a_lease_keeps_others_away_and_the_order_as_it_was(journal, each, false).await;
        }
    }

    #[tokio::test]
    async fn on_postgres() {
        let server = testkit::servers::PostgresServer::start();
        let journal = async || Journal::postgres(&server.database()).await.unwrap();
        messages_that_come_late_change_nothing(journal().await).await;
        for (each, stay) in [(1, false), (200, true)] {
            a_lease_keeps_others_away_and_the_order_as_it_was(journal().await, each, stay).await;
        }
    }
}

//! A shop whose methods are deferred when they are refused.

use crate::place::PATIENCE;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::error::Error as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use testkit::servers::wait_until;
use tidegate::{Limiter, ManualClock, Refusal, limited};
use tidegate_journal::{DeferError, Deferred, Guid, JobError, Journal, Replay};
use tokio::sync::{Semaphore, SemaphorePermit};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ShopError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Deferred(#[from] Deferred),
    #[error("no courier today")]
    NoCourier,
    #[error("there is no such order")]
    NoOrder,
}

impl From<ShopError> for JobError {
    fn from(error: ShopError) -> Self {
        match error {
            ShopError::NoOrder => Self::permanent(error),
            other => Self::retry(other),
        }
    }
}

impl ShopError {
    pub(crate) fn guid(self) -> Guid {
        match self {
            Self::Deferred(deferred) => deferred.guid,
            other => panic!("not deferred: {other}"),
        }
    }

    /// Why it was not deferred.
    pub(crate) fn reason(self) -> String {
        let Self::Refused(refusal) = self else { panic!("not refused: {self}") };
        let reason = refusal.source().expect("a refusal with a reason");
        assert!(reason.is::<DeferError>());
        reason.to_string()
    }
}

/// Knows nothing of the journal's errors: its text counts.
#[derive(Debug)]
pub(crate) struct Plain(pub(crate) String);

impl std::fmt::Display for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Refusal> for Plain {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.to_string())
    }
}

impl From<Deferred> for Plain {
    fn from(deferred: Deferred) -> Self {
        Self(deferred.guid.to_string())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: u64,
    pub(crate) items: Vec<String>,
}

pub(crate) struct Shop {
    pub(crate) limiter: Limiter,
    pub(crate) journal: Journal,
    done: Mutex<Vec<String>>,
    now: AtomicUsize,
    pub(crate) most: AtomicUsize,
    pub(crate) open: Semaphore,
    /// A replay that weighs has heard that it does not count any more.
    pub(crate) is_stale: AtomicBool,
}

impl Shop {
    pub(crate) fn new(journal: Journal) -> Arc<Self> {
        Arc::new(Self {
            // Nothing comes free by itself.
            limiter: Limiter::builder().clock(ManualClock::new()).build(),
            journal,
            done: Mutex::default(),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            open: Semaphore::new(0),
            is_stale: AtomicBool::new(false),
        })
    }

    pub(crate) fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }

    fn note(&self, what: String) -> usize {
        let mut done = self.done.lock().unwrap();
        done.push(what);
        done.len()
    }

    #[allow(clippy::too_many_arguments, reason = "every kind of argument")]
    #[limited("1/day", name = "ship", prefix = "", key = to, limiter = self.limiter, otherwise = defer(journal = self.journal))]
    pub(crate) async fn ship(
        &self,
        order: &Order,
        to: &str,
        mut copies: u8,
        labels: &[u16],
        file: &Path,
        note: Option<String>,
        r#type: Cow<'_, str>,
        huge: u128,
    ) -> Result<usize, ShopError> {
        copies += 1;
        let (id, items, file) = (order.id, order.items.join("+"), file.display());
        Ok(self.note(format!("{id} {items} to {to}, {copies} {labels:?} {file} {note:?} {type} {huge}")))
    }

    #[limited("1 concurrent", name = "pack", limiter = self.limiter, otherwise = defer(journal = self.journal))]
    pub(crate) async fn pack(&self, nth: u32) -> Result<u32, ShopError> {
        self.most.fetch_max(self.now.fetch_add(1, SeqCst) + 1, SeqCst);
        self.open.acquire().await.unwrap().forget();
        self.now.fetch_sub(1, SeqCst);
        Ok(nth)
    }

    #[limited("1 concurrent", limiter = self.limiter, blocking, otherwise = defer(journal = self.journal))]
    pub(crate) fn weigh(&self, nth: u32) -> Result<u32, ShopError> {
        self.most.fetch_max(self.now.fetch_add(1, SeqCst) + 1, SeqCst);
        wait_until("it is open", PATIENCE, || {
            if Replay::current().is_some_and(|replay| !replay.lease_holds()) {
                self.is_stale.store(true, SeqCst);
            }
            self.open.try_acquire().map(SemaphorePermit::forget).is_ok()
        });
        self.now.fetch_sub(1, SeqCst);
        Ok(nth)
    }

    pub(crate) fn weighing(&self) -> usize {
        self.now.load(SeqCst)
    }

    #[limited(
        "1/day",
        name = "cancel",
        prefix = "",
        limiter = self.limiter,
        cost = units,
        otherwise = defer(
            journal = self.journal,
            method = "cancel",
            key = format!("cancel {order_id}"),
            deadline = "1h30min",
            priority = 8,
        ),
    )]
    pub(crate) async fn cancel(&self, order_id: u64, units: u32) -> Result<(), ShopError> {
        match order_id {
            0 => Err(ShopError::NoOrder),
            1 => Err(ShopError::NoCourier),
            id => {
                self.note(format!("cancelled {id} of {units}"));
                Ok(())
            }
        }
    }

    #[limited("1/day", limiter = self.limiter, otherwise = defer(journal = self.journal, method = "plain"))]
    pub(crate) async fn plain(&self, text: String) -> Result<String, Plain> {
        Err(Plain(text))
    }

    #[limited("1/day", limiter = self.limiter, blocking, otherwise = defer(journal = self.journal))]
    pub(crate) fn print(&self, text: &str) -> Result<String, ShopError> {
        assert_ne!(text, "a bug");
        Ok(text.to_uppercase())
    }

    #[limited("1/day", limiter = self.limiter, otherwise = defer(journal = self.journal))]
    pub(crate) async fn in_an_arc(self: Arc<Self>, nth: u32) -> Result<usize, ShopError> {
        Ok(self.note(format!("arc {nth}")))
    }
}

/// Limited as a block.
pub(crate) struct Desk<T> {
    pub(crate) limiter: Limiter,
    pub(crate) journal: Journal,
    pub(crate) till: T,
}

#[limited("1/day", limiter = self.limiter, otherwise = defer(journal = self.journal))]
impl<T: std::fmt::Debug> Desk<T> {
    pub(crate) async fn sell(&self, goods: String) -> Result<String, ShopError> {
        Ok(format!("{goods} at {:?}", self.till))
    }

    #[limited(off)]
    pub(crate) fn new(limiter: &Limiter, journal: &Journal, till: T) -> Arc<Self> {
        Arc::new(Self { limiter: limiter.clone(), journal: journal.clone(), till })
    }
}

/// On the limiter and the journal of the process.
#[limited("1/day", otherwise = defer)]
pub(crate) async fn notify(user: &str, times: u32) -> Result<String, ShopError> {
    Ok(format!("{user} {times}"))
}

#[limited("1/day", blocking, otherwise = defer(key = const { 7 }))]
pub(crate) fn sweep() -> Result<(), ShopError> {
    Ok(())
}

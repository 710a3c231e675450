//! What the script is asked to do.

use super::charge::{Charge, Holder, member};
use super::gate::RedisGate;
use super::lane::lane;
use super::name;
use super::plan::{Mark, Version};
use super::promise::Promise;
use crate::algorithm::Mode;
use crate::clock::Timestamp;
use crate::decision::Decision;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex};

/// One key of one gate, under one version of its limit.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) meter: Arc<RedisGate>,
    pub(crate) version: Arc<Version>,
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) hash: u64,
}

impl Key {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.version, &other.version)
            && Arc::ptr_eq(&self.meter, &other.meter)
            && self.bytes == other.bytes
    }
}

/// How a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Take(Mode),
    Peek,
    /// As `Take` would, without taking anything: what is said beside a refusal.
    Look(Mode),
}

impl How {
    pub(super) fn number(self) -> u64 {
        match self {
            Self::Take(Mode::Check) => 0,
            Self::Take(Mode::Reserve) => 1,
            Self::Peek | Self::Look(_) => 2,
            Self::Take(Mode::Hold) => 3,
        }
    }

    pub(super) fn takes(self) -> bool {
        matches!(self, Self::Take(_))
    }

    pub(super) fn mode(self, version: &Version) -> Mode {
        match self {
            Self::Take(mode) | Self::Look(mode) => mode,
            // A look at places is a look at whether one is free.
            Self::Peek if version.is_place() => Mode::Reserve,
            Self::Peek => Mode::Check,
        }
    }
}

/// One request of one caller.
pub(crate) struct Request {
    pub(crate) how: How,
    /// A cost for each key of the group.
    pub(crate) costs: SmallVec<[u64; 1]>,
    /// True if the caller may give back what it is granted.
    pub(crate) wants_charges: bool,
    /// The number of its first place; the others follow.
    pub(crate) places_from: u64,
    pub(crate) since: Timestamp,
    pub(crate) promise: Promise<Result<Told, Fault>>,
}

impl Request {
    pub(super) fn number(&self, place: usize) -> u64 {
        self.places_from + place as u64
    }
}

/// The answer to a request.
pub(crate) struct Told {
    pub(crate) decisions: SmallVec<[Decision; 1]>,
    /// The server's time of the decision.
    pub(crate) now_us: u64,
    pub(crate) charges: SmallVec<[Charge; 1]>,
}

impl Told {
    /// Denied without asking.
    pub(crate) fn denied(decision: Decision) -> Self {
        Self { decisions: SmallVec::from_elem(decision, 1), now_us: 0, charges: SmallVec::new() }
    }
}

/// The store did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// When it is tried again.
    pub(crate) retry_us: u64,
}

impl Default for Fault {
    fn default() -> Self {
        Self { retry_us: 100_000 }
    }
}

/// Requests about the same keys, decided in their order.
pub(crate) struct Group {
    pub(crate) keys: SmallVec<[Key; 1]>,
    pub(crate) requests: Vec<Request>,
}

/// Something else that is done to a key.
pub(crate) struct Change {
    /// None for a heartbeat.
    pub(crate) key: Option<Key>,
    pub(crate) what: What,
    pub(crate) since: Timestamp,
    pub(crate) promise: Option<Promise<Result<SmallVec<[i64; 2]>, Fault>>>,
}

/// Units of one charge that come back.
pub(crate) struct GivenBack {
    /// Units that are charged.
    pub(crate) cost: u64,
    pub(crate) start_us: u64,
    pub(crate) mark: Arc<Mutex<Mark>>,
    pub(crate) units: u64,
}

pub(crate) enum What {
    /// The caller's own first, if there is one; then those who were cancelled before it.
    GiveBack {
        given: Vec<GivenBack>,
        has_own: bool,
    },
    Owe {
        units: u64,
    },
    Reset,
    Release {
        member: String,
        left: String,
    },
    Renew {
        holders: Vec<(Arc<Holder>, String)>,
    },
    Queue {
        member: String,
        is_new: bool,
    },
    Leave {
        member: String,
    },
    Beat {
        node: String,
        life_us: u64,
    },
}

pub(crate) enum Job {
    Decide(Group),
    Change(Change),
}

impl Job {
    /// The lane that it goes by: what is about one subject keeps its order.
    pub(crate) fn lane(&self) -> usize {
        self.key().map_or(0, |key| lane(&key.bytes))
    }

    fn key(&self) -> Option<&Key> {
        match self {
            Self::Decide(group) => group.keys.first(),
            Self::Change(change) => change.key.as_ref(),
        }
    }

    /// The slot of a Cluster that it belongs to.
    pub(crate) fn slot(&self) -> u16 {
        self.key().map_or_else(|| name::slot(b"nodes"), |key| name::slot(&name::subject(&key.bytes)))
    }

    /// Entries that the script may have to read for it.
    pub(crate) fn entries(&self) -> u64 {
        match self {
            Self::Decide(group) => group.keys.iter().map(|key| key.version.entries).sum(),
            Self::Change(change) => change.key.as_ref().map_or(1, |key| key.version.entries),
        }
    }

    /// When the first of those who wait for it, and began to after `until`, began to.
    pub(crate) fn next_since(&self, until: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Decide(group) => {
                group.requests.iter().map(|request| request.since).filter(|since| *since > until).min()
            }
            Self::Change(change) => {
                change.promise.as_ref().map(|_| change.since).filter(|since| *since > until)
            }
        }
    }

    /// Answers those who began to wait no later than `until`; tells how many requests
    /// that were.
    pub(crate) fn fail_until(&self, until: Timestamp, fault: Fault) -> u64 {
        match self {
            Self::Decide(group) => {
                let late = group.requests.iter().filter(|request| request.since <= until);
                late.filter(|request| request.promise.keep(Err(fault)).is_none()).count() as u64
            }
            Self::Change(change) => {
                if let Some(promise) = change.promise.as_ref().filter(|_| change.since <= until) {
                    promise.keep(Err(fault));
                }
                0
            }
        }
    }

    /// Answers everyone that the store did not.
    pub(crate) fn fail(self, fault: Fault) {
        match self {
            Self::Decide(group) => {
                for request in group.requests {
                    request.promise.keep(Err(fault));
                }
            }
            Self::Change(change) => {
                if let Some(promise) = change.promise {
                    promise.keep(Err(fault));
                }
            }
        }
    }
}

impl Group {
    /// One unit of a bucket, now, for one caller: by far the most, and the shortest to ask.
    pub(super) fn is_unit(&self) -> bool {
        matches!(self.requests.as_slice(), [request] if request.how == How::Take(Mode::Check) && request.costs[0] == 1)
            && matches!(self.keys.as_slice(), [key] if key.version.is_bucket())
    }

    /// One key of a rate: no member, and equal questions can be counted.
    pub(super) fn is_plain(&self) -> bool {
        self.keys.len() == 1 && !self.keys[0].version.is_place()
    }

    /// What was asked may have been done, or may be done later. Rates count as spent;
    /// places would be held by nobody until their lease ends, so they are let go.
    pub(crate) fn let_go_of_places(&self) {
        let holds = |request: &&Request| matches!(request.how, How::Take(Mode::Reserve | Mode::Hold));
        for request in self.requests.iter().filter(holds) {
            let places = self.keys.iter().zip(&request.costs).filter(|(key, _)| key.version.is_place());
            for (at, (key, cost)) in places.enumerate() {
                let member = member(&key.meter, request.number(at), *cost);
                key.send(What::Release { member, left: String::new() });
            }
        }
    }
}

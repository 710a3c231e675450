//! What Redis is asked to do: requests about keys, and updates of one key.
//!
//! An [`Operation`] waits in a [queue](super::server::request_queue), travels in a
//! [batch](super::server::batch), is [encoded](super::script::encode) for the script and answered
//! by what that [found](super::script::replay). Whoever waits has a oneshot channel, which works
//! under any executor: a sender that is dropped says that there is no answer. So whatever drops an
//! operation fails it, and whoever waits finds out from the server's breaker when to try again.

use super::gate::RedisGate;
use super::gate::charge::{GateCharge, SlotHolder, member};
use super::gate::gate_limit::GateLimit;
use super::script::key_name;
use super::script::replay::ChargeMark;
use super::server::RedisServer;
use super::server::request_queue::queue_of;
use crate::algorithm::Mode;
use crate::clock::Timestamp;
use crate::decision::Decision;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// A key that is looked up and, mostly, not kept: nothing is counted or copied.
#[derive(Clone, Copy)]
pub(crate) struct KeyRef<'a> {
    pub(crate) gate: &'a Arc<RedisGate>,
    pub(crate) version: &'a Arc<GateLimit>,
    pub(crate) bytes: &'a [u8],
    pub(crate) hash: u64,
}

impl KeyRef<'_> {
    pub(crate) fn to_key(self) -> GateKey {
        let Self { gate, version, bytes, hash } = self;
        GateKey { gate: gate.clone(), version: version.clone(), bytes: SmallVec::from_slice(bytes), hash }
    }
}

impl GateKey {
    pub(crate) fn as_ref(&self) -> KeyRef<'_> {
        let Self { gate, version, bytes, hash } = self;
        KeyRef { gate, version, bytes, hash: *hash }
    }
}

/// One key of one gate, under the version of its limit that decides.
#[derive(Clone)]
pub(crate) struct GateKey {
    pub(crate) gate: Arc<RedisGate>,
    pub(crate) version: Arc<GateLimit>,
    // Most keys are short enough to be kept without an allocation.
    pub(crate) bytes: SmallVec<[u8; 24]>,
    pub(crate) hash: u64,
}

/// A version is one gate's.
impl PartialEq for GateKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.version, &other.version) && self.bytes == other.bytes
    }
}

impl GateKey {
    /// The server that has it.
    pub(crate) fn server(&self) -> Option<Arc<RedisServer>> {
        self.gate.client().server_of(|| key_name::hash_slot(&self.bytes))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestMode {
    Take(Mode),
    Peek,
    /// As `Take` would decide, with nothing taken: for a check beside a denial.
    Look(Mode),
}

impl RequestMode {
    pub(crate) fn takes(self) -> bool {
        matches!(self, Self::Take(_))
    }

    /// The mode in which a limit decides.
    pub(crate) fn decides_as(self, version: &GateLimit) -> Mode {
        match self {
            Self::Take(mode) | Self::Look(mode) => mode,
            // Whether a slot is free.
            Self::Peek if version.has_slots() => Mode::Reserve,
            Self::Peek => Mode::Check,
        }
    }
}

/// One request of one caller.
pub(crate) struct Request {
    pub(crate) mode: RequestMode,
    /// A cost for each key of the group.
    pub(crate) costs: SmallVec<[u64; 1]>,
    /// True if the caller may refund what it is granted.
    pub(crate) wants_charges: bool,
    /// The number of its first slots; those of other keys follow.
    pub(crate) slots_from: u64,
    pub(crate) since: Timestamp,
    /// None once it is answered.
    pub(crate) answer: Option<oneshot::Sender<ScriptAnswer>>,
}

impl Request {
    /// The keys of slots among those of its group, and what stands for it in their sets of holders.
    pub(crate) fn members<'a>(&'a self, keys: &'a [GateKey]) -> impl Iterator<Item = (&'a GateKey, String)> {
        let slots = keys.iter().zip(&self.costs).filter(|(key, _)| key.version.has_slots());
        slots.zip(self.slots_from..).map(|((key, cost), number)| (key, member(&key.gate, number, *cost)))
    }
}

/// The answer to a request.
pub(crate) struct ScriptAnswer {
    pub(crate) decisions: SmallVec<[Decision; 1]>,
    /// The server's time of the decision.
    pub(crate) now_us: u64,
    pub(crate) charges: SmallVec<[GateCharge; 1]>,
}

/// Requests about the same keys, decided in their order.
pub(crate) struct RequestGroup {
    pub(crate) keys: SmallVec<[GateKey; 1]>,
    pub(crate) requests: Vec<Request>,
}

/// Something else that is done to a key.
pub(crate) struct KeyUpdate {
    /// None for a heartbeat.
    pub(crate) key: Option<GateKey>,
    pub(crate) kind: UpdateKind,
    pub(crate) since: Timestamp,
    pub(crate) answer: Option<oneshot::Sender<Numbers>>,
}

/// What the script returns of an update.
pub(crate) type Numbers = SmallVec<[i64; 2]>;

/// Units of one charge that come back.
pub(crate) struct RefundedCharge {
    /// Units that are charged.
    pub(crate) cost: u64,
    pub(crate) start_us: u64,
    pub(crate) mark: Arc<Mutex<ChargeMark>>,
    pub(crate) units: u64,
}

pub(crate) enum UpdateKind {
    /// The caller's own first, if there is one; then those who were cancelled before it.
    Refund {
        charges: Vec<RefundedCharge>,
        has_own: bool,
    },
    /// So many units.
    ChargeDebt(u64),
    Reset,
    Release {
        member: String,
        left: String,
    },
    /// Holders, and the members that they are now.
    Renew(Vec<(Arc<SlotHolder>, String)>),
    Queue {
        member: String,
        is_new: bool,
    },
    /// This member.
    Leave(String),
    Heartbeat,
}

pub(crate) enum Operation {
    Decide(RequestGroup),
    Update(KeyUpdate),
}

impl Operation {
    fn keys(&self) -> &[GateKey] {
        match self {
            Self::Decide(group) => &group.keys,
            Self::Update(update) => update.key.as_slice(),
        }
    }

    /// The queue that it waits in: operations about one subject keep their order.
    pub(crate) fn queue(&self) -> usize {
        self.keys().first().map_or(0, |key| queue_of(&key.bytes))
    }

    pub(crate) fn hash_slot(&self) -> u16 {
        key_name::hash_slot(self.keys().first().map_or(key_name::NODES.as_bytes(), |key| &key.bytes))
    }

    /// Entries of lists that the script may have to read for it.
    pub(crate) fn entries(&self) -> u64 {
        self.keys().iter().map(|key| key.version.entries).sum()
    }

    /// When the first of those who wait for it began to.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        match self {
            Self::Decide(RequestGroup { requests, .. }) => {
                requests.iter().filter(|request| request.answer.is_some()).map(|request| request.since).min()
            }
            Self::Update(update) => {
                update.answer.as_ref().filter(|answer| !answer.is_closed()).map(|_| update.since)
            }
        }
    }

    /// Leaves those without an answer who began to wait no later than `until`; returns how many
    /// requests that were.
    pub(crate) fn fail_until(&mut self, until: Timestamp) -> u64 {
        match self {
            Self::Decide(group) => {
                let late = group.requests.iter_mut().filter(|request| request.since <= until);
                late.filter_map(|request| request.answer.take()).filter(|answer| !answer.is_closed()).count()
                    as u64
            }
            Self::Update(update) => {
                drop(update.answer.take_if(|_| update.since <= until));
                0
            }
        }
    }

    /// What was sent may have been done, or may be done later: it is not sent again. Rates count as
    /// spent; slots would be held by nobody until their lease ends, so they are released.
    pub(crate) fn release_slots(&self) {
        let Self::Decide(RequestGroup { keys, requests }) = self else { return };
        let holds =
            |request: &&Request| matches!(request.mode, RequestMode::Take(Mode::Reserve | Mode::Hold));
        for (key, member) in requests.iter().filter(holds).flat_map(|request| request.members(keys)) {
            key.send(UpdateKind::Release { member, left: String::new() });
        }
    }
}

impl RequestGroup {
    /// One unit of a bucket, now, for one caller: by far the most, and the shortest to encode.
    pub(crate) fn is_unit(&self) -> bool {
        matches!(self.requests.as_slice(), [request] if request.mode == RequestMode::Take(Mode::Check) && request.costs[0] == 1)
            && matches!(self.keys.as_slice(), [key] if key.version.is_bucket())
    }

    /// One key of a rate: no member, and equal requests can be counted.
    pub(crate) fn is_one_rate(&self) -> bool {
        self.keys.len() == 1 && !self.keys[0].version.has_slots()
    }
}

//! What Redis is asked to do: requests about keys, and updates of one key.
//!
//! An [`Operation`] waits in a [queue](super::server::request_queue), travels in a
//! [batch](super::server::batch), is [encoded](super::script::encode) for the script and answered
//! by what that [found](super::script::replay). Whoever waits has a oneshot channel, which works
//! under any executor: a sender that is dropped says that there is no answer.

use super::gate::RedisGate;
use super::gate::charge::{GateCharge, SlotHolder, member};
use super::gate::gate_limit::GateLimit;
use super::script::key_name;
use super::script::replay::ChargeMark;
use super::server::request_queue::queue_of;
use crate::algorithm::Mode;
use crate::clock::Timestamp;
use crate::decision::Decision;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// One key of one gate, under one version of its limit.
#[derive(Clone)]
pub(crate) struct GateKey {
    pub(crate) gate: Arc<RedisGate>,
    pub(crate) version: Arc<GateLimit>,
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) hash: u64,
}

impl GateKey {
    pub(crate) fn is(&self, gate: &Arc<RedisGate>, version: &Arc<GateLimit>, bytes: &[u8]) -> bool {
        Arc::ptr_eq(&self.version, version) && Arc::ptr_eq(&self.gate, gate) && *self.bytes == *bytes
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
    pub(crate) answer: Option<oneshot::Sender<Answered>>,
}

pub(crate) type Answered = Result<ScriptAnswer, Unanswered>;

impl Request {
    /// Answers, if that has not happened yet. An answer that nobody waits for comes back.
    pub(crate) fn answer(&mut self, answer: Answered) -> Option<Answered> {
        self.answer.take()?.send(answer).err()
    }

    /// True if nobody waits for an answer any more.
    pub(crate) fn is_over(&self) -> bool {
        self.answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    pub(crate) fn slot_number(&self, nth: usize) -> u64 {
        self.slots_from + nth as u64
    }
}

/// The answer to a request.
pub(crate) struct ScriptAnswer {
    pub(crate) decisions: SmallVec<[Decision; 1]>,
    /// The server's time of the decision.
    pub(crate) now_us: u64,
    pub(crate) charges: SmallVec<[GateCharge; 1]>,
}

impl ScriptAnswer {
    /// A denial without a call.
    pub(crate) fn denied(denial: Decision) -> Self {
        Self { decisions: SmallVec::from_elem(denial, 1), now_us: 0, charges: SmallVec::new() }
    }
}

/// The store did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    /// When it is tried again.
    pub(crate) retry_us: u64,
}

impl Default for Unanswered {
    fn default() -> Self {
        Self { retry_us: 100_000 }
    }
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
    pub(crate) answer: Option<UpdateSender>,
}

pub(crate) type UpdateSender = oneshot::Sender<Result<SmallVec<[i64; 2]>, Unanswered>>;

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
    ChargeDebt {
        units: u64,
    },
    Reset,
    Release {
        member: String,
        left: String,
    },
    Renew {
        holders: Vec<(Arc<SlotHolder>, String)>,
    },
    Queue {
        member: String,
        is_new: bool,
    },
    Leave {
        member: String,
    },
    Heartbeat {
        node: String,
        life_us: u64,
    },
}

pub(crate) enum Operation {
    Decide(RequestGroup),
    Update(KeyUpdate),
}

impl Operation {
    /// The queue that it waits in: operations about one subject keep their order.
    pub(crate) fn queue(&self) -> usize {
        self.key().map_or(0, |key| queue_of(&key.bytes))
    }

    fn key(&self) -> Option<&GateKey> {
        match self {
            Self::Decide(group) => group.keys.first(),
            Self::Update(update) => update.key.as_ref(),
        }
    }

    pub(crate) fn hash_slot(&self) -> u16 {
        self.key().map_or_else(key_name::nodes_hash_slot, |key| key_name::hash_slot(&key.bytes))
    }

    /// Entries of lists that the script may have to read for it.
    pub(crate) fn entries(&self) -> u64 {
        match self {
            Self::Decide(group) => group.keys.iter().map(|key| key.version.entries).sum(),
            Self::Update(update) => update.key.as_ref().map_or(1, |key| key.version.entries),
        }
    }

    /// When the first of those who wait for it, and began to after `until`, began to.
    pub(crate) fn next_since(&self, until: Timestamp) -> Option<Timestamp> {
        let is_later = |since: &Timestamp| *since > until;
        match self {
            Self::Decide(group) => group.requests.iter().map(|request| request.since).filter(is_later).min(),
            Self::Update(update) => update.answer.as_ref().map(|_| update.since).filter(is_later),
        }
    }

    /// Answers those who began to wait no later than `until`; returns how many requests that were.
    pub(crate) fn fail_until(&mut self, until: Timestamp, unanswered: Unanswered) -> u64 {
        match self {
            Self::Decide(group) => {
                let late = group.requests.iter_mut().filter(|request| request.since <= until);
                let waiting = late.filter(|request| request.answer.is_some());
                let heard = waiting.map(|request| request.answer(Err(unanswered)).is_none());
                heard.filter(|heard| *heard).count() as u64
            }
            Self::Update(update) => {
                if let Some(sender) = update.answer.take_if(|_| update.since <= until) {
                    let _ = sender.send(Err(unanswered));
                }
                0
            }
        }
    }

    /// Answers everyone who waits that there is no answer.
    pub(crate) fn fail(mut self, unanswered: Unanswered) {
        self.fail_until(Timestamp::MAX, unanswered);
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

    /// What was sent may have been done, or may be done later. Rates count as spent; slots would
    /// be held by nobody until their lease ends, so they are released.
    pub(crate) fn release_slots(&self) {
        let holds =
            |request: &&Request| matches!(request.mode, RequestMode::Take(Mode::Reserve | Mode::Hold));
        for request in self.requests.iter().filter(holds) {
            let slots = self.keys.iter().zip(&request.costs).filter(|(key, _)| key.version.has_slots());
            for (nth, (key, cost)) in slots.enumerate() {
                let member = member(&key.gate, request.slot_number(nth), *cost);
                key.send(UpdateKind::Release { member, left: String::new() });
            }
        }
    }
}

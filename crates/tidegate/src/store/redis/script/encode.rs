//! Operations as one call of the script: its keys, and one array of numbers and texts. What stands
//! where is said in `decide.lua`.

use super::key_name;
use super::message_pack::MessagePack;
use super::numbers::{
    MODE_CHECK, MODE_HOLD, MODE_PEEK, MODE_RESERVE, OP_CHARGE_DEBT, OP_HEARTBEAT, OP_LEAVE, OP_QUEUE,
    OP_REFUND, OP_RELEASE, OP_RENEW, OP_RESET, OP_RUNS, OP_SEVERAL, OP_UNIT,
};
use super::replay::ChargeMark;
use crate::algorithm::{Mode, OTHERS_MAX};
use crate::store::redis::gate::charge::member;
use crate::store::redis::gate::gate_limit::{EncodedLimit, GateLimit};
use crate::store::redis::request::{
    GateKey, KeyUpdate, Operation, Request, RequestGroup, RequestMode, UpdateKind,
};
use crate::store::redis::store::RedisClient;
use smallvec::SmallVec;
use std::sync::Arc;

/// One call of the script.
pub(crate) struct EncodedCall {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) packed: Vec<u8>,
}

pub(crate) fn encode(client: &RedisClient, operations: &[Operation]) -> EncodedCall {
    let prefix = client.config.prefix.as_str();
    let now = client.clock.now();
    let mut encoder =
        Encoder { prefix, keys: Vec::new(), limits: Vec::new(), operations: MessagePack::default() };
    for operation in operations {
        match operation {
            Operation::Decide(group) if group.is_unit() => encoder.unit(group),
            Operation::Decide(group) if group.is_one_rate() => encoder.runs(group),
            Operation::Decide(group) => encoder.several(group),
            Operation::Update(update) => encoder.update(update),
        }
    }
    let mut packed = MessagePack::default();
    if client.sends_time {
        packed.number(now.as_micros());
    } else {
        packed.none();
    }
    packed.number(encoder.limits.len() as u64);
    for LimitEntry { encoded, before } in &encoder.limits {
        packed.numbers(&encoded.numbers);
        packed.text(&encoded.tag);
        packed.number(now.as_micros().saturating_sub(encoded.since.as_micros()));
        packed.numbers(before);
    }
    packed.number(u64::from(is_each_once(operations, &encoder.keys)));
    packed.number(operations.len() as u64);
    packed.append(&encoder.operations);
    EncodedCall { keys: encoder.keys, packed: packed.finish() }
}

/// True if all are about single units, or a heartbeat, and no key comes twice: then the script
/// can read all keys at once, as nothing is written to any before it is read. Keys are told apart
/// by their names: two gates can have the same one. (Two names with one hash only cost that
/// reading.)
fn is_each_once(operations: &[Operation], names: &[Vec<u8>]) -> bool {
    let is_apart = |operation: &Operation| match operation {
        Operation::Decide(group) => group.is_unit(),
        Operation::Update(update) => matches!(update.kind, UpdateKind::Heartbeat { .. }),
    };
    let gate = operations.iter().find_map(|operation| match operation {
        Operation::Decide(group) => Some(&group.keys[0].gate),
        Operation::Update(_) => None,
    });
    let Some(gate) = gate.filter(|_| operations.iter().all(is_apart)) else { return false };
    let mut hashes: SmallVec<[u64; 64]> = names.iter().map(|name| gate.hash(name)).collect();
    hashes.sort_unstable();
    hashes.windows(2).all(|pair| pair[0] != pair[1])
}

/// Equal requests, one after the other, about one key.
pub(super) struct Run {
    mode: RequestMode,
    cost: u64,
    pub(super) count: u64,
}

pub(super) fn runs(requests: &[Request]) -> SmallVec<[Run; 2]> {
    let mut runs: SmallVec<[Run; 2]> = SmallVec::new();
    for request in requests {
        let (mode, cost) = (request.mode, request.costs[0]);
        match runs.last_mut() {
            Some(run) if run.mode == mode && run.cost == cost => run.count += 1,
            _ => runs.push(Run { mode, cost, count: 1 }),
        }
    }
    runs
}

/// A limit of the call, and the positions of those that were in force before it; 0 for none.
struct LimitEntry {
    encoded: Arc<EncodedLimit>,
    before: [u64; OTHERS_MAX],
}

struct Encoder<'a> {
    prefix: &'a str,
    keys: Vec<Vec<u8>>,
    limits: Vec<LimitEntry>,
    operations: MessagePack,
}

impl Encoder<'_> {
    fn key(&mut self, key: &GateKey) {
        let subject = key_name::subject(&key.bytes);
        let parts: &[&str] = if key.version.has_slots() { &["", ":queue", ":alive"] } else { &[""] };
        for part in parts {
            self.keys.push(key_name::name(self.prefix, &key.gate.name, &subject, part));
        }
    }

    /// The position of a limit, with those that were in force before it.
    fn limit(&mut self, version: &GateLimit) -> u64 {
        let position = self.position(&version.encoded);
        let mut before = [0; OTHERS_MAX];
        for (of, encoded) in before.iter_mut().zip(&version.before) {
            *of = self.position(encoded);
        }
        self.limits[position as usize - 1].before = before;
        position
    }

    fn position(&mut self, encoded: &Arc<EncodedLimit>) -> u64 {
        let is_same = |limit: &LimitEntry| Arc::ptr_eq(&limit.encoded, encoded);
        let at = self.limits.iter().position(is_same).unwrap_or_else(|| {
            self.limits.push(LimitEntry { encoded: encoded.clone(), before: [0; OTHERS_MAX] });
            self.limits.len() - 1
        });
        at as u64 + 1
    }

    fn unit(&mut self, group: &RequestGroup) {
        self.key(&group.keys[0]);
        let limit = self.limit(&group.keys[0].version);
        self.operations.number(OP_UNIT + limit);
    }

    fn runs(&mut self, group: &RequestGroup) {
        self.key(&group.keys[0]);
        let (limit, runs) = (self.limit(&group.keys[0].version), runs(&group.requests));
        self.operations.numbers(&[OP_RUNS, limit, runs.len() as u64]);
        for run in runs {
            self.operations.numbers(&[mode_number(run.mode), run.count, run.cost]);
        }
    }

    fn several(&mut self, group: &RequestGroup) {
        self.operations.numbers(&[OP_SEVERAL, group.keys.len() as u64]);
        for key in &group.keys {
            self.key(key);
            let limit = self.limit(&key.version);
            self.operations.number(limit);
        }
        self.operations.number(group.requests.len() as u64);
        for request in &group.requests {
            self.operations.number(mode_number(request.mode));
            self.operations.numbers(&request.costs);
            let slots = group.keys.iter().zip(&request.costs).filter(|(key, _)| key.version.has_slots());
            for (nth, (key, cost)) in slots.enumerate() {
                self.operations.text(&member(&key.gate, request.slot_number(nth), *cost));
            }
        }
    }

    fn update(&mut self, update: &KeyUpdate) {
        self.operations.number(match update.kind {
            UpdateKind::Refund { .. } => OP_REFUND,
            UpdateKind::ChargeDebt { .. } => OP_CHARGE_DEBT,
            UpdateKind::Reset => OP_RESET,
            UpdateKind::Release { .. } => OP_RELEASE,
            UpdateKind::Renew { .. } => OP_RENEW,
            UpdateKind::Queue { .. } => OP_QUEUE,
            UpdateKind::Leave { .. } => OP_LEAVE,
            UpdateKind::Heartbeat { .. } => OP_HEARTBEAT,
        });
        match &update.key {
            Some(key) => self.key(key),
            None => self.keys.push(key_name::nodes(self.prefix)),
        }
        if let (Some(key), false) = (&update.key, matches!(update.kind, UpdateKind::Reset)) {
            // Slots that come back are granted to waiters, and debts charged, by the limit that is
            // in force now.
            let is_by_current =
                key.version.has_slots() || matches!(update.kind, UpdateKind::ChargeDebt { .. });
            let is_changed = is_by_current && !key.gate.decides(&key.version);
            let version = if is_changed { key.gate.version() } else { key.version.clone() };
            let limit = self.limit(&version);
            self.operations.number(limit);
        }
        let packed = &mut self.operations;
        match &update.kind {
            UpdateKind::Refund { charges, has_own } => {
                packed.numbers(&[charges.len() as u64, u64::from(*has_own)]);
                for charge in charges {
                    let ChargeMark { end: (m1, m2), span, stored } = charge.mark();
                    packed.numbers(&[charge.cost, charge.start_us, m1, m2, span, stored, charge.units]);
                }
            }
            UpdateKind::ChargeDebt { units } => packed.number(*units),
            UpdateKind::Reset => {}
            UpdateKind::Release { member, left } => {
                packed.text(member);
                packed.text(left);
            }
            UpdateKind::Renew { holders } => {
                packed.number(holders.len() as u64);
                holders.iter().for_each(|(_, member)| packed.text(member));
            }
            UpdateKind::Queue { member, is_new } => {
                packed.text(member);
                packed.number(u64::from(*is_new));
            }
            UpdateKind::Leave { member } => packed.text(member),
            UpdateKind::Heartbeat { node, life_us } => {
                packed.text(node);
                packed.number(*life_us);
            }
        }
    }
}

fn mode_number(mode: RequestMode) -> u64 {
    match mode {
        RequestMode::Take(Mode::Check) => MODE_CHECK,
        RequestMode::Take(Mode::Reserve) => MODE_RESERVE,
        RequestMode::Take(Mode::Hold) => MODE_HOLD,
        RequestMode::Peek | RequestMode::Look(_) => MODE_PEEK,
    }
}

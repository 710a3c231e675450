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
use crate::store::redis::gate::gate_limit::{EncodedLimit, GateLimit};
use crate::store::redis::heartbeat::ALIVE_US;
use crate::store::redis::request::{
    GateKey, KeyUpdate, Operation, Request, RequestGroup, RequestMode, UpdateKind,
};
use crate::store::redis::store::RedisClient;
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::Arc;

/// One call of the script.
pub(crate) struct EncodedCall {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) packed: Vec<u8>,
}

pub(crate) fn encode(client: &RedisClient, operations: &[Operation]) -> EncodedCall {
    let mut encoder =
        Encoder { client, keys: Vec::new(), limits: Vec::new(), operations: MessagePack::default() };
    for operation in operations {
        match operation {
            Operation::Decide(group) => encoder.group(group),
            Operation::Update(update) => encoder.update(update),
        }
    }
    let now_us = client.clock.now().as_micros();
    let mut packed = MessagePack::default();
    if client.sends_time {
        packed.number(now_us);
    } else {
        packed.none();
    }
    packed.number(encoder.limits.len() as u64);
    for LimitEntry { encoded, before } in &encoder.limits {
        packed.numbers(&encoded.numbers);
        packed.text(&encoded.tag);
        packed.number(now_us.saturating_sub(encoded.since.as_micros()));
        packed.numbers(before);
    }
    packed.number(u64::from(is_each_once(operations, &encoder.keys)));
    packed.number(operations.len() as u64);
    packed.append(&encoder.operations);
    EncodedCall { keys: encoder.keys, packed: packed.finish() }
}

/// True if all are about single units, or a heartbeat, and no key comes twice: then the script
/// can read all keys at once, as nothing is written to any before it is read. Keys are told apart
/// by their names: two gates can have the same one.
fn is_each_once(operations: &[Operation], names: &[Vec<u8>]) -> bool {
    let is_apart = |operation: &Operation| match operation {
        Operation::Decide(group) => group.is_unit(),
        Operation::Update(update) => matches!(update.kind, UpdateKind::Heartbeat),
    };
    let mut seen = HashSet::with_capacity(names.len());
    operations.iter().all(is_apart) && names.iter().all(|name| seen.insert(name))
}

/// Equal requests about one key, one after the other.
pub(super) fn runs(requests: &[Request]) -> SmallVec<[&[Request]; 2]> {
    requests.chunk_by(|one, next| one.mode == next.mode && one.costs == next.costs).collect()
}

/// A limit of the call, and the positions of those that were in force before it; 0 for none.
struct LimitEntry {
    encoded: Arc<EncodedLimit>,
    before: [u64; OTHERS_MAX],
}

struct Encoder<'a> {
    client: &'a RedisClient,
    keys: Vec<Vec<u8>>,
    limits: Vec<LimitEntry>,
    operations: MessagePack,
}

impl Encoder<'_> {
    fn key(&mut self, key: &GateKey) {
        let subject = key_name::subject(&key.bytes);
        let parts: &[&str] = if key.version.has_slots() { &["", ":queue", ":alive"] } else { &[""] };
        for part in parts {
            self.keys.push(key_name::name(&self.client.config.prefix, &key.gate.name, &subject, part));
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

    fn group(&mut self, group: &RequestGroup) {
        let mut limits: SmallVec<[u64; 1]> = SmallVec::new();
        for key in &group.keys {
            self.key(key);
            limits.push(self.limit(&key.version));
        }
        let packed = &mut self.operations;
        if group.is_unit() {
            packed.number(OP_UNIT + limits[0]);
        } else if group.is_one_rate() {
            let runs = runs(&group.requests);
            packed.numbers(&[OP_RUNS, limits[0], runs.len() as u64]);
            for run in runs {
                packed.numbers(&[mode_number(run[0].mode), run.len() as u64, run[0].costs[0]]);
            }
        } else {
            packed.numbers(&[OP_SEVERAL, limits.len() as u64]);
            packed.numbers(&limits);
            packed.number(group.requests.len() as u64);
            for request in &group.requests {
                packed.number(mode_number(request.mode));
                packed.numbers(&request.costs);
                request.members(&group.keys).for_each(|(_, member)| packed.text(&member));
            }
        }
    }

    fn update(&mut self, update: &KeyUpdate) {
        let mut packed = MessagePack::default();
        let operation = match &update.kind {
            UpdateKind::Refund { charges, has_own } => {
                packed.numbers(&[charges.len() as u64, u64::from(*has_own)]);
                for charge in charges {
                    let ChargeMark { end: (m1, m2), span, stored } = charge.mark();
                    packed.numbers(&[charge.cost, charge.start_us, m1, m2, span, stored, charge.units]);
                }
                OP_REFUND
            }
            UpdateKind::ChargeDebt(units) => {
                packed.number(*units);
                OP_CHARGE_DEBT
            }
            UpdateKind::Reset => OP_RESET,
            UpdateKind::Release { member, left } => {
                packed.text(member);
                packed.text(left);
                OP_RELEASE
            }
            UpdateKind::Renew(holders) => {
                packed.number(holders.len() as u64);
                holders.iter().for_each(|(_, member)| packed.text(member));
                OP_RENEW
            }
            UpdateKind::Queue { member, is_new } => {
                packed.text(member);
                packed.number(u64::from(*is_new));
                OP_QUEUE
            }
            UpdateKind::Leave(member) => {
                packed.text(member);
                OP_LEAVE
            }
            UpdateKind::Heartbeat => {
                packed.text(&self.client.node);
                packed.number(ALIVE_US);
                OP_HEARTBEAT
            }
        };
        self.operations.number(operation);
        match &update.key {
            Some(key) => self.key(key),
            None => self.keys.push(key_name::nodes(&self.client.config.prefix)),
        }
        if let (Some(key), false) = (&update.key, matches!(update.kind, UpdateKind::Reset)) {
            // Slots that come back are granted to waiters, and debts charged, by the limit that is
            // in force now.
            let is_by_current = key.version.has_slots() || matches!(update.kind, UpdateKind::ChargeDebt(_));
            let is_changed = is_by_current && !key.gate.decides(&key.version);
            let version = if is_changed { key.gate.version() } else { key.version.clone() };
            let limit = self.limit(&version);
            self.operations.number(limit);
        }
        self.operations.append(&packed);
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

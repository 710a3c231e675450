//! The denial cache: what Redis has denied is denied here, until it could be otherwise.
//!
//! Kept is the state that Redis found, and when the call was sent. Since then at most the time from
//! then until now has passed on the server, so whoever does not fit by that does not fit there. It
//! never lets anyone through; whom it does not deny, Redis decides on. What others refund meanwhile
//! it cannot know, so an entry counts for 50 ms only, unless the gate says that nothing comes back.

use super::gate_limit::GateLimit;
use crate::algorithm::Mode;
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionOutcome, DenialReason};
use crate::store::redis::script::replay::FoundState;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

/// How long a denial is cached where units can come back.
pub(crate) const DENIAL_TTL: Duration = Duration::from_millis(50);
const PARTS: usize = 16;
/// Keys in each part.
const KEYS_MAX: usize = 4_096;

#[derive(Default)]
pub(crate) struct DenialCache {
    parts: [RwLock<CachePart>; PARTS],
}

type CachePart = HashMap<u64, CachedDenial, BuildHasherDefault<AsIs>>;

struct CachedDenial {
    version: u64,
    found: FoundState,
    sent: Timestamp,
    until: Timestamp,
}

/// Keys are hashes already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl DenialCache {
    /// The denial that Redis would give, if it is cached.
    pub(crate) fn denial(
        &self,
        now: Timestamp,
        hash: u64,
        version: &GateLimit,
        cost: u64,
        mode: Mode,
    ) -> Option<Decision> {
        let (mut found, now_us, _) = self.get(now, hash, version, cost)?;
        let capacity = version.limit.capacity();
        let answer = found.decide(now_us, cost, mode, capacity);
        matches!(answer.outcome, DecisionOutcome::Deny(DenialReason::Later { .. }))
            .then(|| answer.decision(capacity))
    }

    /// How a check would stand with nothing taken, if it is denied by what is cached or its key was
    /// found a moment ago: for a look beside a denial, never instead of a request.
    pub(crate) fn look(
        &self,
        now: Timestamp,
        hash: u64,
        version: &GateLimit,
        cost: u64,
        mode: Mode,
    ) -> Option<Decision> {
        let (mut found, now_us, sent) = self.get(now, hash, version, cost)?;
        let capacity = version.limit.capacity();
        let mut answer = found.decide(now_us, cost, mode, capacity);
        answer.gauge = found.decide(now_us, 0, mode, capacity).gauge;
        (!answer.is_allowed() || now < sent + DENIAL_TTL).then(|| answer.decision(capacity))
    }

    pub(crate) fn insert(
        &self,
        hash: u64,
        version: &GateLimit,
        found: FoundState,
        sent: Timestamp,
        until: Timestamp,
    ) {
        let mut part = self.write(hash);
        if part.len() >= KEYS_MAX && !part.contains_key(&hash) {
            part.retain(|_, denial| denial.until > sent);
            if part.len() >= KEYS_MAX {
                part.clear();
            }
        }
        part.insert(hash, CachedDenial { version: version.number, found, sent, until });
    }

    /// True if something is cached of a key, which newer knowledge should replace.
    pub(crate) fn has(&self, hash: u64) -> bool {
        self.part(hash).read().unwrap_or_else(PoisonError::into_inner).contains_key(&hash)
    }

    pub(crate) fn forget(&self, hash: u64) {
        if self.has(hash) {
            self.write(hash).remove(&hash);
        }
    }

    pub(crate) fn forget_all(&self) {
        for part in &self.parts {
            part.write().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// What is cached of a key and still counts, the server's time now at the latest, and when the
    /// call was sent that found it.
    #[inline]
    fn get(
        &self,
        now: Timestamp,
        hash: u64,
        version: &GateLimit,
        cost: u64,
    ) -> Option<(FoundState, u64, Timestamp)> {
        let part = self.part(hash).read().unwrap_or_else(PoisonError::into_inner);
        let CachedDenial { version: number, found, sent, until } = part.get(&hash)?;
        if *number != version.number || now >= *until || now < *sent || !found.covers(cost) {
            return None;
        }
        let since_us = u64::try_from(now.since(*sent).as_micros()).unwrap_or(u64::MAX);
        Some((found.clone(), found.at_us().saturating_add(since_us), *sent))
    }

    fn write(&self, hash: u64) -> RwLockWriteGuard<'_, CachePart> {
        self.part(hash).write().unwrap_or_else(PoisonError::into_inner)
    }

    fn part(&self, hash: u64) -> &RwLock<CachePart> {
        &self.parts[(hash >> 32) as usize % PARTS]
    }
}

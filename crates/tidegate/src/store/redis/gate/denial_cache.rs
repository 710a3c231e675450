//! The denial cache: what Redis has denied is denied here, until it could be otherwise.
//!
//! Kept is the state that Redis found, and when the call was sent. Since then at most the time from
//! then until now has passed on the server, so whoever does not fit by that does not fit there. It
//! never lets anyone through; whom it does not deny, Redis decides on. What others refund meanwhile
//! it cannot know, so an entry counts for 50 ms only, unless the gate says that nothing comes back.

use crate::algorithm::Mode;
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionOutcome, DenialReason};
use crate::store::redis::config::RedisGateOptions;
use crate::store::redis::request::{GateKey, KeyRef};
use crate::store::redis::script::replay::FoundState;
use crate::store::redis::stats::count;
use hashbrown::hash_table::{HashTable, OccupiedEntry};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// How long a denial is cached where units can come back, and where they cannot.
const TTL: Duration = Duration::from_millis(50);
const TTL_WITHOUT_REFUNDS: Duration = Duration::from_secs(3_600);
const PARTS: usize = 16;
/// Keys in each part.
const KEYS_MAX: usize = 4_096;

pub(crate) struct DenialCache {
    parts: [RwLock<CachePart>; PARTS],
    ttl: Duration,
}

type CachePart = HashTable<CachedDenial>;

struct CachedDenial {
    hash: u64,
    version: u64,
    found: FoundState,
    sent: Timestamp,
    until: Timestamp,
}

impl DenialCache {
    pub(super) fn new(options: &RedisGateOptions) -> Self {
        let ttl = if options.has_refunds { TTL } else { TTL_WITHOUT_REFUNDS };
        Self { parts: Default::default(), ttl }
    }

    fn part(&self, hash: u64) -> &RwLock<CachePart> {
        &self.parts[(hash >> 32) as usize % PARTS]
    }

    /// True if something is cached of a key, which newer knowledge should replace.
    fn has(&self, hash: u64) -> bool {
        let part = self.part(hash).read().unwrap_or_else(PoisonError::into_inner);
        part.find(hash, |denial| denial.hash == hash).is_some()
    }

    pub(super) fn forget_all(&self) {
        for part in &self.parts {
            part.write().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

impl KeyRef<'_> {
    /// The denial that Redis would give, if it is cached.
    #[inline]
    pub(crate) fn cached_denial(self, cost: u64, mode: Mode) -> Option<Decision> {
        let (mut found, now_us, _) = self.cached(cost)?;
        let answer = found.decide(now_us, cost, mode);
        if !matches!(answer.outcome, DecisionOutcome::Deny(DenialReason::Later { .. })) {
            return None;
        }
        count(&self.gate.client().counters.remembered, 1);
        Some(answer.decision(found.capacity))
    }

    /// What is cached and still counts, the server's time now at the latest, and whether the call
    /// that found it was sent a moment ago.
    #[inline]
    fn cached(self, cost: u64) -> Option<(FoundState, u64, bool)> {
        let cache = self.gate.denial_cache.as_ref()?;
        let now = self.gate.client().clock.now();
        let part = cache.part(self.hash).read().unwrap_or_else(PoisonError::into_inner);
        let denial = part.find(self.hash, |denial| denial.hash == self.hash)?;
        let CachedDenial { version, found, sent, until, .. } = denial;
        if *version != self.version.number || now >= *until || now < *sent || !found.covers(cost) {
            return None;
        }
        let since_us = now.as_micros() - sent.as_micros();
        Some((found.clone(), found.at_us.saturating_add(since_us), now < *sent + TTL))
    }
}

impl GateKey {
    /// How a check would stand with nothing taken, beside the denial of another one, as far as it
    /// is known here: that it can never fit, that it is denied by what is cached, or how its key was
    /// found a moment ago. Never instead of a request.
    pub(super) fn cached_look(&self, cost: u64, mode: Mode) -> Option<Decision> {
        let outcome = FoundState::unused(&self.version).decide(0, cost, mode).outcome;
        if let DecisionOutcome::Deny(DenialReason::Never | DenialReason::NeedsPermit) = outcome {
            return Some(Decision { outcome, ..Decision::not_checked(&self.version.limit) });
        }
        let (mut found, now_us, is_new) = self.as_ref().cached(cost)?;
        let answer = found.look(now_us, cost, mode);
        (!answer.is_allowed() || is_new).then(|| answer.decision(found.capacity))
    }

    /// Caches what Redis found, at `sent` or later, if a check was denied or an older state is
    /// cached.
    pub(crate) fn cache_found(&self, found: &FoundState, is_wanted: bool, sent: Timestamp) {
        let Some(cache) = self.gate.denial_cache.as_ref().filter(|_| !self.version.has_slots()) else {
            return;
        };
        if !is_wanted && !cache.has(self.hash) {
            return;
        }
        let hash = self.hash;
        let mut part = cache.part(hash).write().unwrap_or_else(PoisonError::into_inner);
        if part.len() >= KEYS_MAX && part.find(hash, |denial| denial.hash == hash).is_none() {
            part.retain(|denial| denial.until > sent);
            if part.len() >= KEYS_MAX {
                part.clear();
            }
        }
        let (version, found, until) = (self.version.number, found.clone(), sent + cache.ttl);
        let denial = CachedDenial { hash, version, found, sent, until };
        part.entry(hash, |denial| denial.hash == hash, |denial| denial.hash).insert(denial);
    }

    /// Something came back: what was denied may fit.
    pub(crate) fn forget_denial(&self) {
        if let Some(cache) = self.gate.denial_cache.as_ref().filter(|cache| cache.has(self.hash)) {
            let mut part = cache.part(self.hash).write().unwrap_or_else(PoisonError::into_inner);
            let _ = part.find_entry(self.hash, |denial| denial.hash == self.hash).map(OccupiedEntry::remove);
        }
    }
}

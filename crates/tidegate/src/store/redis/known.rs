//! Denial memory: what Redis has refused is refused here, until it could be otherwise.
//!
//! Kept is the state that Redis found, and when that was asked for. Since then at most
//! the time from asking until now has passed on the server, so whoever does not fit by
//! that reckoning does not fit there. It never lets anyone through; whom it does not
//! refuse, Redis decides on. What others give back meanwhile it cannot know, so it is
//! believed for 50 ms only, unless the gate says that nothing comes back.

use super::plan::{Found, Version};
use crate::algorithm::Mode;
use crate::clock::Timestamp;
use crate::decision::{Decision, Outcome, Refused};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// How long a denial is believed where units can come back.
pub(crate) const BELIEVED: Duration = Duration::from_millis(50);
const PARTS: usize = 16;
/// Keys remembered by each part.
const MOST: usize = 4_096;

#[derive(Default)]
pub(crate) struct Known {
    parts: [RwLock<HashMap<u64, Denied, BuildHasherDefault<AsIs>>>; PARTS],
}

struct Denied {
    version: u64,
    found: Found,
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

type Part = HashMap<u64, Denied, BuildHasherDefault<AsIs>>;

impl Known {
    /// The denial that Redis would give, if that is known.
    pub(crate) fn denies(
        &self,
        now: Timestamp,
        hash: u64,
        version: &Version,
        cost: u64,
        mode: Mode,
    ) -> Option<Decision> {
        let part = self.read(hash);
        let (denied, now_us) = believed(&part, now, hash, version, cost)?;
        let mut found = denied.found.clone();
        drop(part);
        let capacity = version.limit.capacity();
        let answer = version.plan.answer(now_us, &mut found, cost, mode, capacity);
        match answer.outcome {
            Outcome::Deny(Refused::Later { .. }) => Some(answer.decision(capacity)),
            _ => None,
        }
    }

    /// How a call would stand without taking anything, if it is known to be denied, or was
    /// seen a moment ago: to be told beside a refusal, never instead of asking.
    pub(crate) fn shows(
        &self,
        now: Timestamp,
        hash: u64,
        version: &Version,
        cost: u64,
        mode: Mode,
    ) -> Option<Decision> {
        let part = self.read(hash);
        let (denied, now_us) = believed(&part, now, hash, version, cost)?;
        let (sent, mut found) = (denied.sent, denied.found.clone());
        drop(part);
        let capacity = version.limit.capacity();
        let mut answer = version.plan.answer(now_us, &mut found, cost, mode, capacity);
        answer.gauge = version.plan.answer(now_us, &mut found, 0, mode, capacity).gauge;
        (!answer.is_allowed() || now < sent + BELIEVED).then(|| answer.decision(capacity))
    }

    pub(crate) fn remember(
        &self,
        hash: u64,
        version: &Version,
        found: Found,
        sent: Timestamp,
        until: Timestamp,
    ) {
        let mut part = self.write(hash);
        if part.len() >= MOST && !part.contains_key(&hash) {
            part.retain(|_, denied| denied.until > sent);
            if part.len() >= MOST {
                part.clear();
            }
        }
        part.insert(hash, Denied { version: version.number, found, sent, until });
    }

    /// True if something is remembered of a key, which newer knowledge should replace.
    pub(crate) fn knows(&self, hash: u64) -> bool {
        self.read(hash).contains_key(&hash)
    }

    pub(crate) fn forget(&self, hash: u64) {
        if self.knows(hash) {
            self.write(hash).remove(&hash);
        }
    }

    pub(crate) fn forget_all(&self) {
        for part in &self.parts {
            part.write().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    fn read(&self, hash: u64) -> RwLockReadGuard<'_, Part> {
        self.part(hash).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, hash: u64) -> RwLockWriteGuard<'_, Part> {
        self.part(hash).write().unwrap_or_else(PoisonError::into_inner)
    }

    fn part(&self, hash: u64) -> &RwLock<Part> {
        &self.parts[(hash >> 32) as usize % PARTS]
    }
}

/// What is remembered of a key and still believed, and the server's time now at the latest.
#[inline]
fn believed<'p>(
    part: &'p Part,
    now: Timestamp,
    hash: u64,
    version: &Version,
    cost: u64,
) -> Option<(&'p Denied, u64)> {
    let denied = part.get(&hash)?;
    if denied.version != version.number || now >= denied.until || now < denied.sent {
        return None;
    }
    if !version.plan.knows(&denied.found, cost) {
        return None;
    }
    let since = u64::try_from(now.since(denied.sent).as_micros()).unwrap_or(u64::MAX);
    Some((denied, denied.found.at_us().saturating_add(since)))
}

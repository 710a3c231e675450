//! The limits that checks bring along, as versions.

use super::gate_limit::GateLimit;
use crate::Limit;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const LIMITS_MAX: usize = 256;

/// Checks with equal limits of their own share a version, as long as there is room for it: by it
/// they share calls and cached denials.
#[derive(Default)]
pub(super) struct OwnLimits {
    versions: Mutex<VersionsByLimit>,
}

#[derive(Default)]
struct VersionsByLimit {
    versions: HashMap<Limit, Arc<GateLimit>>,
    made: u64,
}

impl OwnLimits {
    pub(super) fn version(
        &self,
        limit: &Limit,
        slot_lease: Duration,
        unix_us_at_zero: u64,
    ) -> Arc<GateLimit> {
        let mut own = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(version) = own.versions.get(limit) {
            return version.clone();
        }
        if own.versions.len() >= LIMITS_MAX {
            own.versions.clear();
        }
        own.made += 1;
        let version = GateLimit::of_check(own.made, limit.clone(), slot_lease, unix_us_at_zero);
        own.versions.entry(limit.clone()).or_insert(Arc::new(version)).clone()
    }
}

//! One question that outlives the call that asked it, and how several are decided.

use crate::algorithm::Mode;
use crate::permit::Charge;
use crate::store::{Ask, Meter, decide_all};
use crate::verdict::Verdict;
use smallvec::SmallVec;
use std::sync::Arc;

/// One question of a request.
#[derive(Clone)]
pub(crate) struct OwnedAsk {
    pub(crate) meter: Arc<Meter>,
    pub(crate) hash: u64,
    pub(crate) cost: u64,
    /// Its place in the request.
    pub(crate) index: usize,
}

impl OwnedAsk {
    fn borrow(&self) -> Ask<'_> {
        Ask { meter: &self.meter, hash: self.hash, cost: self.cost }
    }

    pub(crate) fn is_same_key(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.meter, &other.meter) && self.hash == other.hash
    }
}

/// Decides all questions together; an allowed verdict holds the permit. A key for
/// which there was no room is the strangers' one from then on.
pub(crate) fn decide(asks: &mut [OwnedAsk], mode: Mode) -> Verdict {
    let borrowed: SmallVec<[Ask<'_>; 2]> = asks.iter().map(OwnedAsk::borrow).collect();
    let (tolds, now) = decide_all(&borrowed, mode);
    drop(borrowed);
    for (ask, told) in asks.iter_mut().zip(&tolds) {
        ask.hash = told.hash;
    }
    let charges = asks.iter().zip(&tolds).map(|(ask, told)| Charge::new(ask, told)).collect();
    Verdict::new(asks, tolds.iter().map(|told| told.decision).collect(), charges, now)
}

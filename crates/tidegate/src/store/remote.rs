//! What a store outside this process's memory has to do.

use super::Mode;
use crate::Limit;
use crate::check::OwnedCheck;
use crate::decision::Decision;
use crate::gate::GateError;
use crate::limiter::GateOptions;
use crate::pending::Pending;
use std::any::Any;
use std::sync::Arc;

/// A store outside this process's memory. Given to a limiter with
/// [`LimiterBuilder::store`](crate::LimiterBuilder::store).
///
/// `ARCHITECTURE.md`, "How to add", says where one begins; the conformance suite in `testkit` tests
/// it. A [`Decision`] is made by the library's algorithms, from the state that a store has found, or
/// by [`Decision::unavailable`]: a store outside the library gets its decisions from a
/// [`Limiter`](crate::Limiter) at its server.
pub trait Store: Any + Send + Sync {
    /// Whether a gate of this name can have this limit here.
    ///
    /// # Errors
    /// With the reason, and what to write instead.
    fn accepts(&self, name: &str, limit: &Limit, options: &GateOptions) -> Result<(), GateError> {
        let _ = (name, limit, options);
        Ok(())
    }

    /// Opens a gate that it [accepts](Self::accepts). Keys of one name are the same in every
    /// process, and after the gate was removed and opened again.
    fn open(self: Arc<Self>, name: &str, limit: Limit, options: &GateOptions) -> Arc<dyn StoreGate>;
}

/// One gate in a [`Store`]. Every future is ready within the store's deadline, whatever the store
/// does.
pub trait StoreGate: Any + Send + Sync {
    /// The limit in force.
    fn limit(&self) -> Limit;

    /// Whether this limit can be put in force, or decide a check instead of the one in force.
    ///
    /// # Errors
    /// With the reason, and what to write instead.
    fn accepts(&self, limit: &Limit) -> Result<(), GateError> {
        let _ = limit;
        Ok(())
    }

    /// Puts a limit in force that it [accepts](Self::accepts). What each key has used goes along.
    fn change(&self, limit: Limit);

    /// Decides one check by the limit in force, in [`Mode::Check`]. It is sent by this call, and is never
    /// refunded.
    fn check(self: Arc<Self>, key: &[u8], cost: u64) -> Pending<Decision>;

    /// What [`check`](Self::check) would decide, with nothing taken.
    fn peek(self: Arc<Self>, key: &[u8], cost: u64) -> Pending<Decision>;

    /// Forgets what a key has used; slots that are held stay held. True once it is done, false
    /// if the store did not answer in time.
    fn reset(self: Arc<Self>, key: &[u8]) -> Pending<bool>;

    /// Checks of the same group can be decided together, at one instant.
    fn group(&self, key: &[u8]) -> GroupId;

    /// How the keys of another gate of the same group relate to this one's. By default gates
    /// have keys of their own.
    fn shares_keys(&self, other: &dyn StoreGate) -> KeySharing {
        if std::ptr::addr_eq(std::ptr::from_ref(self), std::ptr::from_ref(other)) {
            KeySharing::CountedAlike
        } else {
            KeySharing::Apart
        }
    }

    /// Decides checks of one group at one instant, each by its [own limit](OwnedCheck::limit) or
    /// by the gate's, and charges all of them or none. A key that comes twice pays the sum, and
    /// its checks have the same limit. Dropping the result before it is ready takes back what was
    /// charged.
    fn decide(self: Arc<Self>, checks: &[OwnedCheck], mode: Mode) -> Pending<GroupDecisions>;

    /// Queues for slots of one key until they are held, the queue is full (none), or the
    /// limit's wait is over (none). Each cost is a check of its own in the charge. Dropping the
    /// result before it is ready leaves the queue.
    fn queue(self: Arc<Self>, key: &[u8], costs: &[u64]) -> Pending<Option<Box<dyn StoreCharge>>>;

    /// The denial that the store would give, if that is known without a call to it. The cost is
    /// what the whole request takes of the key.
    fn known_denial(&self, check: &OwnedCheck, cost: u64, mode: Mode) -> Option<Decision> {
        let _ = (check, cost, mode);
        None
    }

    /// What a check would be answered at this cost beside the denial of another one, with nothing
    /// taken; none if that is not known or cannot be found out in time.
    fn look(self: Arc<Self>, check: &OwnedCheck, cost: u64, mode: Mode) -> Pending<Option<Decision>> {
        let _ = (check, cost, mode);
        Pending::ready(None)
    }
}

/// Checks with the same id are decided together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupId {
    store: usize,
    part: u64,
}

impl GroupId {
    /// A part of a store: all of it, or what its servers decide together.
    pub fn new<S: ?Sized>(store: &Arc<S>, part: u64) -> Self {
        Self { store: Arc::as_ptr(store).addr(), part }
    }
}

/// How the keys of two gates relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySharing {
    /// A key of one is not a key of the other.
    Apart,
    /// A key of one is the same key of the other, and both count it by the same limit.
    CountedAlike,
    /// A key of one is the same key of the other, and each counts it by its own limit.
    CountedDifferently,
}

/// What a store decided about the checks of a group.
#[derive(Default)]
pub struct GroupDecisions {
    /// One for each check, in their order.
    pub decisions: Vec<Decision>,
    /// What was charged, if all were allowed.
    pub charge: Option<Box<dyn StoreCharge>>,
}

/// What was charged for checks that were decided together. Dropped, it releases the slots that
/// it holds and leaves everything else charged.
pub trait StoreCharge: Send + Sync {
    /// Charges what each check truly cost, in their order: less is refunded, more is debt. Can
    /// come again, with other costs.
    fn settle(&mut self, costs: &[u64]);

    /// True if slots that it holds may be held by another caller by now.
    fn is_lost(&self) -> bool {
        false
    }
}

//! What a store has charged for the checks that it decided together.

use super::memory::MemoryCharge;
use super::remote::StoreCharge;
use smallvec::SmallVec;

/// What one group of checks was charged. Dropped, it releases the slots that it holds and
/// leaves everything else charged.
pub(crate) enum Charge {
    /// Inline: a reservation in memory allocates nothing.
    Memory(MemoryCharge),
    Remote(Box<dyn StoreCharge>),
}

impl Charge {
    /// Charges what each check of the group truly cost.
    pub(crate) fn settle(&mut self, costs: &[u64]) {
        match self {
            Self::Memory(charge) => charge.settle(costs),
            Self::Remote(charge) => charge.settle(costs),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Remote(charge) => charge.is_lost(),
        }
    }
}

/// The checks of a group that are about one key, and what each is still charged. The key was
/// charged their sum in one step, and is corrected in one.
pub(crate) struct Shares(SmallVec<[CheckShare; 1]>);

struct CheckShare {
    /// Its number in the group.
    check: usize,
    units: u64,
}

/// How a key's charge is corrected.
pub(crate) enum Correction {
    /// It cost what it was charged.
    Nothing,
    /// So many of those that are charged go back.
    Refund { charged: u64, units: u64 },
    /// It cost so many more than it was charged.
    Debt { units: u64 },
}

/// Checks by their number in the group, and what each was charged.
impl FromIterator<(usize, u64)> for Shares {
    fn from_iter<I: IntoIterator<Item = (usize, u64)>>(checks: I) -> Self {
        Self(checks.into_iter().map(|(check, units)| CheckShare { check, units }).collect())
    }
}

impl Shares {
    pub(crate) fn add(&mut self, check: usize, units: u64) {
        self.0.push(CheckShare { check, units });
    }

    /// The units that are charged in all.
    pub(crate) fn charged(&self) -> u64 {
        self.0.iter().fold(0, |sum, share| sum.saturating_add(share.units))
    }

    /// Corrects the charge to what each check truly cost, by its number. Slots are held one by
    /// one: what one check holds too much cannot be made up by another.
    pub(crate) fn correct(&mut self, costs: &[u64], are_slots: bool) -> Correction {
        let (charged, mut cost) = (self.charged(), 0u64);
        for share in &mut self.0 {
            let true_cost = costs.get(share.check).copied().unwrap_or(share.units);
            share.units = share.units.min(true_cost);
            cost = cost.saturating_add(if are_slots { share.units } else { true_cost });
        }
        match cost.cmp(&charged) {
            std::cmp::Ordering::Less => Correction::Refund { charged, units: charged - cost },
            std::cmp::Ordering::Equal => Correction::Nothing,
            std::cmp::Ordering::Greater => Correction::Debt { units: cost - charged },
        }
    }
}

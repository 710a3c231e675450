//! One kind of goods in memory: who has which units, decided under one short lock.
//!
//! What is taken here is *in flight* until the writer has put it into the file. Everything
//! that the file learns, this learns from the writer's thread right after the commit: between
//! two transactions the two say the same.

use super::ledger::{Asked, Ledger};
use super::writer::Writer;
use crate::engine::{Known, Reserve};
use crate::goods::GoodsId;
use crate::refusal::Refusal;
use arc_swap::ArcSwap;
use std::sync::{Arc, Mutex, PoisonError};

pub(super) struct Shelf {
    pub(super) goods: GoodsId,
    known: ArcSwap<Known>,
    ledger: Mutex<Ledger>,
}

impl Shelf {
    pub(super) fn new(ledger: Ledger) -> Self {
        let known = ArcSwap::from_pointee(ledger.known());
        Self { goods: ledger.sale.goods.clone(), known, ledger: Mutex::new(ledger) }
    }

    pub(super) fn known(&self) -> Arc<Known> {
        self.known.load_full()
    }

    /// Works on the ledger. That the last unit is gone, or one is back, is known at once.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = ledger.left == 0;
        let done = work(&mut ledger);
        if was_empty != (ledger.left == 0) {
            self.known.store(Arc::new(ledger.known()));
        }
        done
    }

    /// Makes known what the ledger says.
    pub(super) fn publish(&self) -> Arc<Known> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let known = Arc::new(ledger.known());
        self.known.store(known.clone());
        known
    }

    /// Takes units, or says why not. All checks come before the first write.
    pub(super) fn ask(self: &Arc<Self>, ask: Reserve, writer: &Writer, now: u64) -> Result<Asked, Refusal> {
        self.with(|ledger| {
            if let Some(asked) = ledger.used(&ask) {
                return asked;
            }
            ledger.check(&ask, now)?;
            let place = ledger.take(self.clone(), ask, now);
            let answer = ledger.wait(&place.path);
            // Under the lock: what an operator asks for after this comes after it in the file.
            match writer.offer(place) {
                Ok(()) => Ok(Asked::Waits(answer)),
                Err(place) => {
                    ledger.give_back(&place);
                    Err(Refusal::Busy)
                }
            }
        })
    }
}

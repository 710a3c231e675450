//! An order on its way into the file.

use super::desk::{Desk, Tx};
use super::fault::{Kind, WriteFault};
use super::shelf::Shelf;
use super::writer::Job;
use crate::goods::UserId;
use crate::order::{OrderSn, OrderState};
use crate::path::PathId;
use crate::refusal::Refusal;
use crate::sale::CHECKED;
use rusqlite::params;
use std::sync::Arc;

pub(super) struct Place {
    pub(super) shelf: Arc<Shelf>,
    pub(super) sn: OrderSn,
    pub(super) user: UserId,
    pub(super) quantity: u32,
    pub(super) path: PathId,
    pub(super) key: Option<Arc<str>>,
    pub(super) one_each: bool,
    pub(super) created_at: u64,
    pub(super) pay_by: Option<u64>,
}

const INSERT: &str = "
    INSERT INTO sale_orders (order_sn, goods, user, quantity, epoch, path, key, one_each, state,
                             created_at, updated_at, pay_by)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

const INSERT_DEAD: &str = "
    INSERT INTO sale_dead (order_sn, goods, user, quantity, epoch, path, key, one_each, reason,
                           created_at, at, pay_by)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

impl Job for Place {
    fn run(&mut self, tx: &Tx<'_>) -> Result<(), WriteFault> {
        self.insert(tx, INSERT, &OrderState::Placed.code())?;
        tx.entry(&self.shelf.goods, |entry| {
            entry.taken += i64::from(self.quantity);
            entry.orders += 1;
        });
        Ok(())
    }

    fn end(self: Box<Self>, desk: &Desk, outcome: Result<(), WriteFault>) {
        match outcome {
            Ok(()) => self.shelf.with(|ledger| ledger.landed(&self)),
            Err(fault) if fault.kind == Kind::One => self.bury(desk, fault),
            Err(fault) => self.refuse(&fault),
        }
    }
}

impl Place {
    fn insert(&self, tx: &Tx<'_>, sql: &str, last: &dyn rusqlite::ToSql) -> Result<(), WriteFault> {
        tx.conn.prepare_cached(sql)?.execute(params![
            self.sn.to_string(),
            self.shelf.goods.as_str(),
            self.user.as_str(),
            self.quantity,
            self.sn.epoch(),
            self.path,
            self.key,
            self.one_each,
            last,
            self.created_at,
            tx.now,
            self.pay_by,
        ])?;
        Ok(())
    }

    /// The database will not have it. Its number stands, as a dead letter: the buyer asks for
    /// it and reads why, an operator decides. Its units are held until then.
    fn bury(self: Box<Self>, desk: &Desk, fault: WriteFault) {
        tracing::error!(order = %self.sn, reason = %fault.what, "an order cannot be placed: a dead letter");
        let letter = Letter { place: self, reason: fault.what };
        desk.settle(vec![Box::new(letter)]);
    }

    /// Nothing of it is in the file, or nobody knows: the same path may ask again.
    fn refuse(&self, fault: &WriteFault) {
        let refusal = match &fault.kind {
            Kind::Moved(_) => Refusal::Paused { reason: CHECKED.into() },
            _ => Refusal::Busy,
        };
        let waiting = self.shelf.with(|ledger| {
            if fault.kind == Kind::Unknown {
                return ledger.lost(&self.path);
            }
            let waiting = ledger.waiting(&self.path);
            ledger.give_back(self);
            waiting
        });
        for reply in waiting {
            let _ = reply.send(Err(refusal.clone()));
        }
    }
}

/// An order that could not be placed, on its way to the operators.
struct Letter {
    place: Box<Place>,
    reason: Arc<str>,
}

impl Job for Letter {
    fn run(&mut self, tx: &Tx<'_>) -> Result<(), WriteFault> {
        self.place.insert(tx, INSERT_DEAD, &self.reason)?;
        tx.entry(&self.place.shelf.goods, |_| {});
        Ok(())
    }

    fn end(self: Box<Self>, _: &Desk, outcome: Result<(), WriteFault>) {
        match outcome {
            Ok(()) => self.place.shelf.with(|ledger| ledger.died(&self.place)),
            Err(fault) => self.place.refuse(&fault),
        }
    }
}

//! How many records are pending, kept beside them and changed with them.
//!
//! Read once and written once a transaction, however many records it has. The write lock
//! makes it exact for all processes that share the file.

use super::foreign::Name;
use super::writer::Tx;
use crate::Bound;
use rusqlite::{OptionalExtension as _, params};
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Counts {
    by_method: HashMap<Name, Count>,
    all: Option<i64>,
}

struct Count {
    pending: i64,
    is_changed: bool,
}

impl Counts {
    /// The bound that one more of this method would exceed.
    pub(super) fn full(&mut self, tx: &Tx<'_>, method: &str) -> rusqlite::Result<Option<Bound>> {
        let of = |max: u64| i64::try_from(max).unwrap_or(i64::MAX);
        let all = match self.all {
            Some(all) => all,
            None => tx.conn.prepare_cached(&tx.sql.count_all)?.query_row([], |row| row.get(0))?,
        };
        self.all = Some(all);
        if all >= of(tx.sql.pending_max) {
            return Ok(Some(Bound::All { max: tx.sql.pending_max }));
        }
        let pending = self.of(tx, &Name::of(method))?.pending;
        let is_full = pending >= of(tx.sql.method_max);
        Ok(is_full.then(|| Bound::Method { method: method.to_owned(), max: tx.sql.method_max }))
    }

    pub(super) fn add(&mut self, tx: &Tx<'_>, method: &Name, more: i64) -> rusqlite::Result<()> {
        let count = self.of(tx, method)?;
        count.pending += more;
        count.is_changed = true;
        self.all = self.all.map(|all| all + more);
        Ok(())
    }

    /// Into the table, before the commit.
    pub(super) fn write(&mut self, tx: &Tx<'_>) -> rusqlite::Result<()> {
        let mut statement = tx.conn.prepare_cached(&tx.sql.count_write)?;
        for (method, count) in self.by_method.drain().filter(|(_, count)| count.is_changed) {
            statement.execute(params![method, count.pending])?;
        }
        self.all = None;
        Ok(())
    }

    fn of(&mut self, tx: &Tx<'_>, method: &Name) -> rusqlite::Result<&mut Count> {
        if !self.by_method.contains_key(method) {
            let mut statement = tx.conn.prepare_cached(&tx.sql.count_read)?;
            let pending: Option<i64> = statement.query_row([method], |row| row.get(0)).optional()?;
            let count = Count { pending: pending.unwrap_or(0), is_changed: false };
            self.by_method.insert(method.clone(), count);
        }
        Ok(self.by_method.get_mut(method).expect("it was just put there"))
    }
}

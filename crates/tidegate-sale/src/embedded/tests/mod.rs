//! The engine on real files: the suite of all engines, and what only this one can meet.

mod broken;
mod clocks;
mod crashes;
mod faults;
mod files;
mod unknown;

use super::Embedded;
use super::fault::{Kind, WriteFault};
use crate::engine::Engine;
use crate::suite::{Harness, engine_suite};
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// What a test wants a commit to end in: nobody knows whether it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commit {
    UnknownButDone,
    UnknownAndUndone,
}

impl Commit {
    pub(super) fn end(self, conn: &Connection) -> Result<(), WriteFault> {
        conn.execute_batch(if self == Self::UnknownButDone { "COMMIT" } else { "ROLLBACK" })?;
        Err(WriteFault { kind: Kind::Unknown, what: "the disk did not say".into() })
    }
}

/// An engine on a file of its own.
pub(super) struct OnFile {
    folder: TempDir,
    engine: Arc<Embedded>,
}

impl OnFile {
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("sale.db")
    }

    /// Another connection to the file.
    pub(super) fn conn(&self) -> Connection {
        let conn = Connection::open(self.path()).unwrap();
        conn.busy_timeout(crate::suite::PATIENCE).unwrap();
        conn
    }

    fn count(&self, what: &str) -> u64 {
        self.conn().query_row(&format!("SELECT count(*) FROM {what}"), [], |row| row.get(0)).unwrap()
    }
}

impl Harness for OnFile {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = Arc::new(Embedded::open(&folder.path().join("sale.db")).await.unwrap());
        Self { folder, engine }
    }

    fn engine(&self) -> Arc<dyn Engine> {
        self.engine.clone()
    }

    async fn reopen(&mut self) {
        self.engine.stop().await;
        self.engine = Arc::new(Embedded::open(&self.path()).await.unwrap());
    }

    async fn poison(&self) {
        let trigger = "CREATE TRIGGER poison BEFORE INSERT ON sale_orders WHEN NEW.user LIKE 'poison%'
                       BEGIN SELECT RAISE(ABORT, 'this user is poison'); END";
        self.conn().execute_batch(trigger).unwrap();
    }

    async fn cure(&self) {
        self.conn().execute_batch("DROP TRIGGER poison").unwrap();
    }

    async fn miscount(&self) {
        let wrong = "UPDATE sale_goods SET placed = placed + 3, stock = stock - 3";
        self.conn().execute_batch(wrong).unwrap();
    }

    async fn inflate(&self, units: u32) {
        self.conn().execute("UPDATE sale_orders SET quantity = ?1", [units]).unwrap();
    }
}

engine_suite!(OnFile);

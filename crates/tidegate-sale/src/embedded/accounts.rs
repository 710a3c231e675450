//! The books, and what watches over them.
//!
//! They are read between two transactions, on the writer's thread: what is placed from the
//! file, what is in flight and left from memory. At such a moment they must agree to the unit;
//! a difference is no delay that will pass, and pauses the sale. Where nobody knows whether a
//! commit was written, the sale is paused already, and the books may differ until it goes on.

use super::desk::Desk;
use super::fault::WriteFault;
use super::load;
use super::shelf::Shelf;
use super::writer::Writer;
use crate::books::Books;
use crate::time::now_ms;
use std::sync::Arc;

pub(super) async fn books(writer: &Writer, shelf: Arc<Shelf>) -> Result<Books, WriteFault> {
    writer.look(move |desk| desk.books(&shelf)).await?
}

/// Compares memory with the file.
pub(super) async fn reconcile(writer: &Writer, shelf: Arc<Shelf>) -> Result<(), WriteFault> {
    let look = move |desk: &Desk| {
        let books = desk.books(&shelf)?;
        let (is_in_doubt, mine) = shelf.with(|ledger| {
            (ledger.is_in_doubt, (ledger.sale.total, ledger.placed, ledger.orders, ledger.returned))
        });
        let file = (books.total, books.placed, books.orders, books.returned);
        if !is_in_doubt && (!books.is_balanced() || mine != file) {
            let reason = format!(
                "the books do not balance: {} units in all, {} placed, {} in flight, {} left; \
                 in memory (total, placed, orders, returned) {mine:?}, in the file {file:?}",
                books.total, books.placed, books.in_flight, books.left
            );
            desk.pause(&shelf.goods, &reason);
        }
        Ok(())
    };
    writer.look(look).await?
}

/// Pauses a sale for a reason that was found elsewhere.
pub(super) async fn pause(writer: &Writer, shelf: Arc<Shelf>, reason: String) -> Result<(), WriteFault> {
    writer.look(move |desk| desk.pause(&shelf.goods, &reason)).await
}

impl Desk {
    fn books(&self, shelf: &Shelf) -> Result<Books, WriteFault> {
        let row = load::goods(&self.conn, &shelf.goods)?;
        Ok(shelf.with(|ledger| Books {
            goods: shelf.goods.clone(),
            total: row.total,
            placed: row.placed,
            in_flight: ledger.in_flight,
            left: ledger.left,
            orders: row.orders,
            returned: row.returned,
            dead: ledger.dead,
            epoch: ledger.epoch,
            state: ledger.state.to_string(),
            at: now_ms(),
        }))
    }
}

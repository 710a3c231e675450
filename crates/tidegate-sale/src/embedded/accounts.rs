//! The books, and what watches over them.
//!
//! Whoever asks for them gets them from memory, at one moment, without a word to the writer.
//! Every second they are compared with the file between two transactions, on the writer's
//! thread: at such a moment the two must agree to the unit; a difference is no delay that will
//! pass, and pauses the sale. Where nobody knows whether a commit was written, the sale is
//! paused already, and the two may differ until it goes on.

use super::desk::Desk;
use super::fault::WriteFault;
use super::load;
use super::shelf::Shelf;
use super::writer::Writer;
use crate::books::Books;
use crate::time::now_ms;
use std::sync::Arc;

/// Compares memory with the file.
pub(super) async fn reconcile(writer: &Writer, shelf: Arc<Shelf>) -> Result<(), WriteFault> {
    let look = move |desk: &Desk| {
        let row = load::goods(&desk.conn, &shelf.goods)?;
        let (books, is_in_doubt) = (shelf.books(), shelf.with(|ledger| ledger.is_in_doubt));
        let mine = (books.total, books.placed, books.orders, books.returned);
        let file = (row.total, row.placed, row.orders, row.returned);
        if !is_in_doubt && (!books.is_balanced() || mine != file) {
            let reason = format!(
                "the books do not balance: {} units in all, {} placed, {} in flight, {} left; \
                 in memory (total, placed, orders, returned) {mine:?}, in the file {file:?}; \
                 `resume` reads the file again",
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

impl Shelf {
    pub(super) fn books(&self) -> Books {
        let at = now_ms();
        self.with(|ledger| Books {
            goods: self.goods.clone(),
            total: ledger.sale.total,
            placed: ledger.placed,
            in_flight: ledger.in_flight,
            left: ledger.left,
            orders: ledger.orders,
            returned: ledger.returned,
            dead: ledger.dead,
            epoch: ledger.epoch,
            state: ledger.state.at(at, &ledger.sale).to_string(),
            at,
        })
    }
}

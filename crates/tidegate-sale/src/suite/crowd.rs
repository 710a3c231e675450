//! A crowd that buys at once, and what must hold of what it was told.

use super::{ask, at_rest, settled};
use crate::engine::Engine;
use crate::order::{Order, OrderSn, OrderState};
use crate::refusal::Refusal;
use std::collections::HashSet;
use std::sync::Arc;

/// What a buyer asked for and was told.
#[derive(Clone, Debug)]
pub(crate) struct Bought {
    pub(crate) quantity: u32,
    pub(crate) answer: Result<OrderSn, Refusal>,
}

/// Everybody at once, each under a name of their own.
pub(crate) async fn buy_all(engine: &Arc<dyn Engine>, quantities: &[u32]) -> Vec<Bought> {
    let buyers: Vec<_> = quantities
        .iter()
        .enumerate()
        .map(|(nth, &quantity)| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let ask = ask(&*engine, &format!("user-{nth}"), quantity);
                Bought { quantity, answer: engine.reserve(ask).await }
            })
        })
        .collect();
    let mut bought = Vec::new();
    for buyer in buyers {
        bought.push(buyer.await.unwrap());
    }
    bought
}

/// What is wrong with what a crowd was told about these units, after it has gone home.
pub(crate) async fn violations(engine: &dyn Engine, total: u64, bought: &[Bought]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen = HashSet::new();
    let (mut units, mut orders) = (0, 0);
    for Bought { quantity, answer } in bought {
        let Ok(sn) = answer else { continue };
        units += u64::from(*quantity);
        orders += 1;
        if !seen.insert(sn.clone()) {
            wrong.push(format!("{sn} was given to two buyers"));
        }
        match engine.order(sn).await.unwrap() {
            None => wrong.push(format!("{sn} was answered, and there is no such order")),
            Some(_) => wrong.extend(row_violation(&settled(engine, sn).await, *quantity)),
        }
    }
    if units > total {
        wrong.push(format!("{units} of {total} units were sold"));
    }
    let books = at_rest(engine, 0).await;
    if !books.is_balanced() || books.total != total {
        wrong.push(format!("the books do not balance: {books:?}"));
    }
    if (books.placed, books.orders, books.left) != (units, orders, total.saturating_sub(units)) {
        wrong.push(format!("{orders} orders of {units} units were answered, and the books say {books:?}"));
    }
    wrong
}

fn row_violation(order: &Order, quantity: u32) -> Option<String> {
    let is_right = order.state == OrderState::Placed && order.quantity == quantity;
    (!is_right).then(|| format!("{quantity} units were answered, and the row is {order:?}"))
}

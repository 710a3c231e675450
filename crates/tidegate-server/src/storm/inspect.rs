//! Looking at the sale from outside, before and after: its books, and single orders.

use super::answer::Answer;
use super::books::Books;
use super::request::Requests;
use super::tally::Given;
use super::target::Target;
use super::wire::Wire;
use crate::terminal::short;
use anyhow::Context as _;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate::Limit;
use tokio::time::Instant;

/// How long orders may take to leave the flight after the storm.
const SETTLE_MAX: Duration = Duration::from_secs(10);
const SETTLE_EVERY: Duration = Duration::from_millis(100);
/// As much of a strange answer as is shown.
const SHOWN_MAX: usize = 120;

/// The books now.
pub(super) async fn books(wire: &mut Wire, requests: &Requests, target: &Target) -> anyhow::Result<Books> {
    wire.connect().await.with_context(|| {
        format!("nobody answers at {target}; start `tidegate sale` first, or say where it is with --url")
    })?;
    requests.books(&mut wire.out);
    let reply =
        wire.exchange().await.map_err(|fault| anyhow::anyhow!("the books at {target}: {}", fault.name()))?;
    let body = wire.body(&reply);
    let books = Answer::read(body).parse().filter(|_| reply.status == 200);
    books.with_context(|| {
        let text = short(&String::from_utf8_lossy(body), SHOWN_MAX);
        let hint = match reply.status {
            403 => "; the books are the operators': set TIDEGATE_ADMIN_TOKEN, or name the sale's folder with --data",
            404 => "; say which goods with --goods",
            _ => "",
        };
        format!("no books at {target}: HTTP {}, {text}{hint}", reply.status)
    })
}

/// How many the sale says that it lets in; none if it does not say.
pub(super) async fn rate(wire: &mut Wire, requests: &Requests) -> Option<Limit> {
    #[derive(Deserialize)]
    struct Shown {
        rate: String,
    }
    requests.sale(&mut wire.out);
    let reply = wire.exchange().await.ok().filter(|reply| reply.status == 200)?;
    Answer::read(wire.body(&reply)).parse::<Shown>()?.rate.parse().ok()
}

/// The books once nothing is in flight any more, or after a while.
pub(super) async fn settled(wire: &mut Wire, requests: &Requests, target: &Target) -> anyhow::Result<Books> {
    let patience = Instant::now() + SETTLE_MAX;
    loop {
        let now = books(wire, requests, target).await;
        let is_settled = now.as_ref().is_ok_and(|books| books.in_flight == 0 && books.balanced);
        if is_settled || Instant::now() >= patience {
            return now;
        }
        tokio::time::sleep(SETTLE_EVERY).await;
    }
}

/// What single orders were found to be.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) by_state: BTreeMap<String, u64>,
    pub(super) differences: Vec<String>,
}

#[derive(Deserialize)]
struct Order {
    order_sn: String,
    goods_id: String,
    quantity: u64,
    state: String,
}

const STATES: [&str; 6] = ["processing", "placed", "paid", "cancelled", "expired", "failed"];
/// So many differences are told one by one.
const TOLD_MAX: usize = 5;

/// Looks up to `most` of the orders up, each as its owner, until `patience` has run out.
pub(super) async fn check_orders(
    wire: &mut Wire,
    requests: &Requests,
    given: &Given,
    (goods, units): (&str, u32),
    (most, patience): (usize, Duration),
) -> Checked {
    let mut checked = Checked::default();
    let mut wrong = 0_u64;
    let end = Instant::now() + patience;
    for (number, user) in given.sample(most) {
        if Instant::now() >= end {
            checked.differences.push(format!("orders could not all be looked up within {patience:?}"));
            break;
        }
        requests.order(number, user, &mut wire.out);
        let found = match wire.exchange().await {
            Ok(reply) => match Answer::read(wire.body(&reply)).parse::<Order>() {
                Some(order) if reply.status == 200 => Ok(order),
                _ => Err(format!("HTTP {}", reply.status)),
            },
            Err(fault) => Err(fault.name().to_owned()),
        };
        let is_same = |order: &Order| {
            order.order_sn == number
                && order.goods_id == goods
                && order.quantity == u64::from(units)
                && STATES.contains(&order.state.as_str())
        };
        let problem = match found {
            Ok(order) if is_same(&order) => {
                *checked.by_state.entry(order.state).or_default() += 1;
                continue;
            }
            Ok(order) => format!(
                "it is {} of {} x {}, {}",
                short(&order.order_sn, 64),
                order.quantity,
                short(&order.goods_id, 64),
                short(&order.state, 20),
            ),
            Err(why) => why,
        };
        wrong += 1;
        if checked.differences.len() < TOLD_MAX {
            checked.differences.push(format!("order {number}, which was given to user {user}: {problem}"));
        }
    }
    if wrong > 0 {
        checked.differences.push(format!("orders given that the sale does not know as such: {wrong}"));
    }
    checked
}

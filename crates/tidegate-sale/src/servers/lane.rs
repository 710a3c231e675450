//! Buyers of one goods, decided together: whoever comes while calls are under way shares the
//! next. A number is told once it is durable.

use super::acked::Acked;
use super::core::Core;
use super::letter::{Body, Letter, Orders, Sent, hex};
use super::link::Live;
use super::points::{Point, reach};
use super::relay;
use super::shelf::{Left, Shelf};
use crate::engine::{Fault, Reserve};
use crate::order::OrderSn;
use crate::refusal::Refusal;
use crate::sampled::warn_sampled;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// Buyers in one call. A script holds Redis up while it runs.
const TOGETHER_MAX: usize = 256;

/// Calls of one goods that are under way at once: while Redis is at one, those whom the other
/// answered ask again.
const CALLS: usize = 2;

pub(super) type Told = oneshot::Sender<Result<OrderSn, Refusal>>;

/// A buyer who waits.
pub(super) struct Ask {
    pub(super) reserve: Reserve,
    pub(super) told: Told,
}

/// Until the engine ends.
pub(super) async fn serve(core: Arc<Core>, shelf: Arc<Shelf>, mut asks: mpsc::Receiver<Ask>) {
    let (mut calls, mut together) = (FuturesUnordered::new(), Vec::new());
    loop {
        tokio::select! {
            Some(()) = calls.next() => {}
            came = asks.recv_many(&mut together, TOGETHER_MAX), if calls.len() < CALLS => {
                if came == 0 {
                    return;
                }
                // The first of many wakes this before the others have asked: let them.
                tokio::task::yield_now().await;
                while together.len() < TOGETHER_MAX && let Ok(ask) = asks.try_recv() {
                    together.push(ask);
                }
                // Nobody buys for one who has gone away.
                together.retain(|ask| !ask.told.is_closed());
                if !together.is_empty() {
                    calls.push(decide(&core, &shelf, std::mem::take(&mut together)));
                }
            }
        }
    }
}

async fn decide(core: &Arc<Core>, shelf: &Arc<Shelf>, asks: Vec<Ask>) {
    // Who stops waits for these.
    let Ok(permit) = Arc::clone(&core.flights).acquire_owned().await else { return };
    let answers = match core.link.live() {
        Ok(live) => call(core, shelf, &live, &asks).await.map(|answers| (live, answers)),
        Err(fault) => Err(fault),
    };
    let failed = |fault: &Fault| warn_sampled!(error = fault.what, "orders could not be reserved");
    let Ok((live, answers)) = answers.inspect_err(failed) else {
        return asks.into_iter().for_each(|ask| tell(ask.told, Err(Refusal::Busy)));
    };
    let [left, tick, at, entry, epoch, answers @ ..] = answers.as_slice() else {
        // Not loaded, or another run of the server than the one that was.
        core.doubted.notify_one();
        let reason = || Refusal::Paused { reason: "the stock is being loaded".into() };
        return asks.into_iter().for_each(|ask| tell(ask.told, Err(reason())));
    };
    reach(Point::Reserved);
    let mut flight = Flight { told: Vec::new(), sent: Vec::new() };
    for (ask, answer) in asks.into_iter().zip(answers) {
        match read(shelf, answer) {
            Answer::New(sn, nth) => {
                flight.sent.push(sent(&ask.reserve, nth));
                flight.told.push((ask.told, sn));
            }
            Answer::Again(sn, "*") => flight.told.push((ask.told, sn)),
            // It is in the outbox, and whoever put it there has not answered.
            Answer::Again(sn, with) if !with.is_empty() && !core.config.answers_before_broker() => {
                follow(core, shelf, with.to_owned(), ask.told, sn);
            }
            Answer::Again(sn, _) => tell(ask.told, Ok(sn)),
            Answer::Refused(refusal) => tell(ask.told, Err(refusal)),
        }
    }
    if let (Ok(epoch), Ok(tick), Ok(units)) = (epoch.parse(), tick.parse(), left.parse()) {
        shelf.learn_left(Some(Left { epoch, tick, units }));
    }
    if let (Ok(at), false) = (at.parse(), flight.sent.is_empty()) {
        flight.leave(core, shelf, live.run.clone(), entry.clone(), at, permit);
    }
}

async fn call(
    core: &Core,
    shelf: &Shelf,
    live: &Arc<Live>,
    asks: &[Ask],
) -> Result<Vec<String>, crate::engine::Fault> {
    let keys = &shelf.keys;
    let mut call = core.link.scripts.reserve.prepare_invoke();
    for key in [&keys.meta, &keys.path, &keys.key, &keys.user, &keys.order, &keys.out] {
        call.key(key);
    }
    call.arg(&live.run).arg(core.news()).arg(shelf.goods.as_str());
    for Ask { reserve, .. } in asks {
        call.arg(reserve.user.as_str()).arg(reserve.quantity).arg(hex(&reserve.path));
        call.arg(reserve.epoch).arg(u8::from(reserve.is_expired)).arg(reserve.key.as_deref().unwrap_or(""));
    }
    core.link.run(live, &call).await
}

enum Answer<'a> {
    New(OrderSn, u64),
    /// The order that it already has, and its outbox entry while that is there.
    Again(OrderSn, &'a str),
    Refused(Refusal),
}

fn read<'a>(shelf: &Shelf, answer: &'a str) -> Answer<'a> {
    let mut parts = answer.split(':');
    let what = parts.next().unwrap_or("");
    let known = || shelf.known();
    Answer::Refused(match what {
        "new" | "again" => {
            let number = parts.next().and_then(|number| number.split_once('-'));
            let number = number.and_then(|(epoch, nth)| Some((epoch.parse().ok()?, nth.parse().ok()?)));
            match number.map(|(epoch, nth)| (OrderSn::new(shelf.goods.clone(), epoch, nth), nth)) {
                Some((sn, nth)) if what == "new" => return Answer::New(sn, nth),
                Some((sn, _)) => return Answer::Again(sn, parts.next().unwrap_or("")),
                None => Refusal::Busy,
            }
        }
        "path" => Refusal::WrongPath,
        "much" => Refusal::BadRequest(format!("`decrStock`: 1 to {} units", known().sale.per_user).into()),
        "quota" => Refusal::UserQuota,
        "sold" => Refusal::SoldOut,
        "early" => Refusal::NotOpenYet { opens_at: known().sale.opens_at },
        "closed" => Refusal::Closed,
        "paused" => {
            let known = known();
            let reason = known.state.reason_for_buyers().unwrap_or("held by an operator");
            Refusal::Paused { reason: reason.to_owned().into() }
        }
        _ => Refusal::Busy,
    })
}

fn sent(reserve: &Reserve, nth: u64) -> Sent {
    let key = reserve.key.as_deref().filter(|key| !key.is_empty()).map(str::to_owned);
    Sent { nth, user: reserve.user.clone(), quantity: reserve.quantity, path: hex(&reserve.path), key }
}

/// Whoever asked may have gone away.
fn tell(told: Told, answer: Result<OrderSn, Refusal>) {
    let _ = told.send(answer);
}

/// Orders that leave together, and who waits for them.
struct Flight {
    told: Vec<(Told, OrderSn)>,
    sent: Vec<Sent>,
}

impl Flight {
    fn leave(
        mut self,
        core: &Arc<Core>,
        shelf: &Arc<Shelf>,
        run: String,
        entry: String,
        at: u64,
        permit: OwnedSemaphorePermit,
    ) {
        // They have an order of this epoch, so this is its epoch.
        let Some(epoch) = self.told.first().map(|(_, sn)| sn.epoch()) else { return };
        let body = Body::Orders(Orders { epoch, at, orders: std::mem::take(&mut self.sent) });
        let letter = Arc::new(Letter { goods: shelf.goods.clone(), body });
        if core.config.answers_before_broker() {
            shelf.kept.keep(&letter);
            shelf.hear(Acked::by(&letter));
            self.land(true);
        }
        let (core, shelf) = (Arc::clone(core), Arc::clone(shelf));
        tokio::spawn(async move {
            let sent = relay::send(&core, &shelf, &entry, &letter).await;
            if let Err(fault) = &sent {
                warn_sampled!(error = fault.what, entry, "an order message stays in the outbox");
            }
            if sent.is_ok() {
                shelf.hear(Acked::by(&letter));
            }
            self.land(sent.is_ok());
            if sent.is_ok() {
                relay::forget(&core, &shelf, &run, &entry, &letter).await;
            }
            drop(permit);
        });
    }

    fn land(&mut self, is_durable: bool) {
        for (told, sn) in self.told.drain(..) {
            tell(told, if is_durable { Ok(sn) } else { Err(Refusal::Busy) });
        }
    }
}

/// Publishes what another began, for one who asks again.
fn follow(core: &Arc<Core>, shelf: &Arc<Shelf>, entry: String, told: Told, sn: OrderSn) {
    // Where all are under way, the repeat is told to come again.
    let Ok(permit) = Arc::clone(&core.flights).try_acquire_owned() else {
        return tell(told, Err(Refusal::Busy));
    };
    let (core, shelf) = (Arc::clone(core), Arc::clone(shelf));
    tokio::spawn(async move {
        let followed = relay::follow(&core, &shelf, &entry).await;
        tell(told, followed.map(|()| sn).map_err(|_| Refusal::Busy));
        drop(permit);
    });
}

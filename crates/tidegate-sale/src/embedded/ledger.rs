//! Where the units of one kind of goods are: the numbers, and the rules for moving them.

use super::place::Place;
use super::shelf::Shelf;
use crate::engine::{Known, Reserve};
use crate::goods::UserId;
use crate::order::OrderSn;
use crate::path::PathId;
use crate::refusal::Refusal;
use crate::sale::{Phase, Sale, SaleState};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// What a buyer is told.
pub(super) type Answer = Result<OrderSn, Refusal>;

/// What asking came to.
pub(super) enum Asked {
    Told(OrderSn),
    Waits(oneshot::Receiver<Answer>),
}

/// Where the units are, and who may not have more.
pub(super) struct Ledger {
    pub(super) sale: Sale,
    pub(super) state: SaleState,
    pub(super) epoch: u32,
    /// True if the file may say otherwise: it is read again before the sale goes on.
    pub(super) is_in_doubt: bool,
    /// How many numbers this epoch has given out.
    pub(super) numbers: u64,
    pub(super) left: u64,
    /// With the units of dead letters.
    pub(super) in_flight: u64,
    pub(super) placed: u64,
    pub(super) orders: u64,
    pub(super) returned: u64,
    pub(super) dead: u64,
    users: HashMap<UserId, Held>,
    paths: HashMap<PathId, Used>,
    keys: HashMap<(UserId, Arc<str>), PathId>,
}

/// What a user has, in flight or placed.
#[derive(Default)]
struct Held {
    units: u64,
    orders: u64,
}

/// A path that has an order.
struct Used {
    user: UserId,
    sn: OrderSn,
    /// Who waits for it to be in the file; none once it is.
    waiting: Option<Vec<oneshot::Sender<Answer>>>,
}

impl Ledger {
    pub(super) fn new(sale: Sale, state: SaleState, epoch: u32) -> Self {
        Self {
            left: sale.total,
            sale,
            state,
            epoch,
            is_in_doubt: false,
            numbers: 0,
            in_flight: 0,
            placed: 0,
            orders: 0,
            returned: 0,
            dead: 0,
            users: HashMap::new(),
            paths: HashMap::new(),
            keys: HashMap::new(),
        }
    }

    pub(super) fn known(&self) -> Known {
        let (sale, state) = (self.sale.clone(), self.state.clone());
        Known { sale, state, epoch: self.epoch, left: Some(self.left) }
    }

    /// The order that this path, or this user's key, has already.
    pub(super) fn used(&mut self, ask: &Reserve) -> Option<Result<Asked, Refusal>> {
        let by_key = || {
            let key = ask.key.as_ref()?;
            self.keys.get(&(ask.user.clone(), key.clone())).copied()
        };
        let path = if self.paths.contains_key(&ask.path) { ask.path } else { by_key()? };
        let used = self.paths.get_mut(&path)?;
        Some(match &mut used.waiting {
            _ if used.user != ask.user => Err(Refusal::WrongPath),
            None => Ok(Asked::Told(used.sn.clone())),
            // Whether it is in the file, nobody knows before it is read again.
            Some(_) if self.is_in_doubt => Err(Refusal::Busy),
            Some(waiting) => {
                let (reply, answer) = oneshot::channel();
                waiting.push(reply);
                Ok(Asked::Waits(answer))
            }
        })
    }

    /// The sale is over: who bought is in the file, and asked for there.
    pub(super) fn forget(&mut self) {
        self.users = HashMap::new();
        self.paths.retain(|_, used| used.waiting.is_some());
        let Self { keys, paths, .. } = self;
        keys.retain(|_, path| paths.contains_key(path));
        paths.shrink_to_fit();
        keys.shrink_to_fit();
    }

    /// The number that a path has, in the file or not.
    #[cfg(test)]
    pub(super) fn number(&self, path: &PathId) -> Option<OrderSn> {
        self.paths.get(path).map(|used| used.sn.clone())
    }

    pub(super) fn check(&self, ask: &Reserve, now: u64) -> Result<(), Refusal> {
        Phase::at(now, &self.sale, &self.state).must_be_open()?;
        if ask.epoch != self.epoch || ask.is_expired {
            return Err(Refusal::WrongPath);
        }
        let (quantity, most) = (ask.quantity, self.sale.per_user);
        if !(1..=most).contains(&quantity) {
            let text = format!("`decrStock`: 1 to {most} units, not {quantity}");
            return Err(Refusal::BadRequest(text.into()));
        }
        let (units, orders) = self.users.get(&ask.user).map_or((0, 0), |held| (held.units, held.orders));
        if units + u64::from(quantity) > u64::from(most) || (self.sale.one_each && orders > 0) {
            return Err(Refusal::UserQuota);
        }
        if self.left < u64::from(quantity) {
            return Err(Refusal::SoldOut);
        }
        Ok(())
    }

    pub(super) fn take(&mut self, shelf: Arc<Shelf>, ask: Reserve, now: u64) -> Place {
        self.numbers += 1;
        let sn = OrderSn::new(ask.goods, self.epoch, self.numbers);
        let place = Place {
            shelf,
            sn,
            user: ask.user,
            quantity: ask.quantity,
            path: ask.path,
            key: ask.key,
            one_each: self.sale.one_each,
            created_at: now,
            pay_by: self.sale.pay_within.map(|seconds| now + u64::from(seconds) * 1000),
        };
        self.left -= u64::from(place.quantity);
        self.in_flight += u64::from(place.quantity);
        self.hold(&place.user, place.quantity);
        self.remember(place.path, &place.user, place.key.as_ref(), &place.sn);
        place
    }

    /// A user has units that are taken.
    pub(super) fn hold(&mut self, user: &UserId, quantity: u32) {
        let held = self.users.entry(user.clone()).or_default();
        held.units += u64::from(quantity);
        held.orders += 1;
    }

    fn release(&mut self, user: &UserId, quantity: u32) {
        if let Some(held) = self.users.get_mut(user) {
            held.units = held.units.saturating_sub(u64::from(quantity));
            held.orders = held.orders.saturating_sub(1);
            if held.orders == 0 {
                self.users.remove(user);
            }
        }
    }

    /// A path that has an order.
    pub(super) fn remember(&mut self, path: PathId, user: &UserId, key: Option<&Arc<str>>, sn: &OrderSn) {
        self.paths.insert(path, Used { user: user.clone(), sn: sn.clone(), waiting: None });
        if let Some(key) = key {
            self.keys.insert((user.clone(), key.clone()), path);
        }
    }

    /// Waits for what its order comes to.
    pub(super) fn wait(&mut self, path: &PathId) -> oneshot::Receiver<Answer> {
        let (reply, answer) = oneshot::channel();
        if let Some(used) = self.paths.get_mut(path) {
            used.waiting.get_or_insert_default().push(reply);
        }
        answer
    }

    /// It is in the file.
    pub(super) fn landed(&mut self, place: &Place) {
        self.in_flight = self.in_flight.saturating_sub(u64::from(place.quantity));
        self.placed += u64::from(place.quantity);
        self.orders += 1;
        self.tell(&place.path, &Ok(place.sn.clone()));
    }

    /// It is a dead letter: its number stands, its units stay in flight.
    pub(super) fn died(&mut self, place: &Place) {
        self.dead += 1;
        self.tell(&place.path, &Ok(place.sn.clone()));
    }

    /// Nothing of it is in the file: as if nobody had asked.
    pub(super) fn give_back(&mut self, place: &Place) {
        self.in_flight = self.in_flight.saturating_sub(u64::from(place.quantity));
        self.left += u64::from(place.quantity);
        self.release(&place.user, place.quantity);
        self.paths.remove(&place.path);
        if let Some(key) = &place.key {
            self.keys.remove(&(place.user.clone(), key.clone()));
        }
    }

    /// Whoever waits for this path's order.
    pub(super) fn waiting(&mut self, path: &PathId) -> Vec<oneshot::Sender<Answer>> {
        self.paths.get_mut(path).and_then(|used| used.waiting.take()).unwrap_or_default()
    }

    /// It may be in the file or not. It stays in flight until the file is read again.
    pub(super) fn lost(&mut self, path: &PathId) -> Vec<oneshot::Sender<Answer>> {
        let waiting = self.waiting(path);
        if let Some(used) = self.paths.get_mut(path) {
            used.waiting = Some(Vec::new());
        }
        waiting
    }

    /// Nobody writes any more: whoever waits is not left waiting.
    pub(super) fn abandon(&mut self) {
        self.is_in_doubt = true;
        self.paths.values_mut().filter_map(|used| used.waiting.as_mut()).for_each(Vec::clear);
    }

    fn tell(&mut self, path: &PathId, answer: &Answer) {
        for reply in self.waiting(path) {
            // Whoever asked may have gone away.
            let _ = reply.send(answer.clone());
        }
    }

    /// A placed order was given up: its units are for sale again.
    pub(super) fn returned(&mut self, user: &UserId, quantity: u32) {
        self.placed = self.placed.saturating_sub(u64::from(quantity));
        self.orders = self.orders.saturating_sub(1);
        self.came_back(user, quantity);
    }

    /// A dead letter was dropped: likewise.
    pub(super) fn dropped(&mut self, user: &UserId, quantity: u32) {
        self.in_flight = self.in_flight.saturating_sub(u64::from(quantity));
        self.dead = self.dead.saturating_sub(1);
        self.came_back(user, quantity);
    }

    fn came_back(&mut self, user: &UserId, quantity: u32) {
        self.left += u64::from(quantity);
        self.returned += u64::from(quantity);
        self.release(user, quantity);
    }

    /// A dead letter was tried again, and is in the file.
    pub(super) fn revived(&mut self, quantity: u32) {
        self.in_flight = self.in_flight.saturating_sub(u64::from(quantity));
        self.dead = self.dead.saturating_sub(1);
        self.placed += u64::from(quantity);
        self.orders += 1;
    }
}

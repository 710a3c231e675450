//! A request whose gates live in more than memory.
//!
//! What lives together (in memory, on one server, in one slot of a Cluster) is decided
//! together, at one instant. Where a request spans several such parts, they are asked
//! one after the other, in the order of the checks, and what the earlier ones charged
//! goes back if a later one refuses.

use crate::algorithm::{Gauge, Mode};
use crate::ask::{MemoryAsk, OwnedAsk, Side, decide_in_memory};
use crate::clock::{Clock, MonotonicClock, StoreClock, Timestamp};
use crate::decision::{Decision, Denial, Outcome};
use crate::permit::{Charge, Permit};
use crate::sleep::Sleep;
use crate::store::redis::{
    self, Alone, Answered, Change, Core, Fault, How, Key, RedisAsk, Request, Told, What, promise,
};
use crate::verdict::Verdict;
use smallvec::SmallVec;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Who waits for a place asks again after about this time.
const ASK_AGAIN: Duration = Duration::from_millis(10);

type Decisions = SmallVec<[Decision; 2]>;

/// Decides all questions; an allowed verdict holds the permit.
pub(crate) async fn decide(asks: Vec<OwnedAsk>, mode: Mode) -> Verdict {
    let mut decisions: Decisions = asks.iter().map(|ask| Decision::not_asked(&side(ask).limit())).collect();
    if remembered(&asks, mode, &mut decisions) {
        look(&asks, mode, &mut decisions).await;
        return verdict(&asks, decisions, SmallVec::new());
    }
    let mut held = Earlier::default();
    for part in parts(&asks) {
        let told = part.decide(&asks, mode).await;
        let is_allowed = told.decisions.iter().all(Decision::is_allowed);
        for (at, decision) in part.positions.iter().zip(told.decisions) {
            decisions[*at] = decision;
        }
        held.decided = held.decided.max(told.decided);
        held.charges.extend(told.charges);
        if !is_allowed {
            // Whatever was charged goes back.
            drop(held);
            look(&asks, mode, &mut decisions).await;
            return verdict(&asks, decisions, SmallVec::new());
        }
    }
    let charges = held.keep();
    verdict(&asks, decisions, charges)
}

fn verdict(asks: &[OwnedAsk], decisions: Decisions, charges: SmallVec<[Charge; 1]>) -> Verdict {
    let now = asks.first().map_or(Timestamp::default(), |ask| clock(ask).now());
    let key = |at: usize| match &asks[at] {
        OwnedAsk::Memory(ask) => &ask.key[..],
        OwnedAsk::Redis(ask) => &ask.key[..],
    };
    Verdict::new(asks.iter().map(side).collect(), decisions, charges, now).of_key(key)
}

/// Tells every check that is known to be refused; true if there is one.
fn remembered(asks: &[OwnedAsk], mode: Mode, decisions: &mut Decisions) -> bool {
    let mut is_refused = false;
    for (at, ask) in asks.iter().enumerate() {
        let OwnedAsk::Redis(ask) = ask else { continue };
        let cost = whole_cost(asks, ask);
        if let Some(denied) = ask.meter.remembered(ask.hash, &ask.meter.version(), cost, mode) {
            (decisions[at], is_refused) = (denied, true);
        }
    }
    is_refused
}

/// What a request asks of the key of one of its checks.
fn whole_cost(asks: &[OwnedAsk], of: &RedisAsk) -> u64 {
    let same = |ask: &&OwnedAsk| matches!(ask, OwnedAsk::Redis(ask) if counts_with(ask, of));
    let cost = |ask: &OwnedAsk| if let OwnedAsk::Redis(ask) = ask { ask.cost } else { 0 };
    asks.iter().filter(same).fold(0, |sum, ask| sum.saturating_add(cost(ask)))
}

/// Looks at the checks that were not asked, because another one refuses: when the request
/// would fit depends on them as well. Nothing is charged, and what is not known here or seen
/// in time stays unasked.
async fn look(asks: &[OwnedAsk], mode: Mode, decisions: &mut Decisions) {
    let mut looks: SmallVec<[(usize, Asking); 2]> = SmallVec::new();
    let mut may_look = None;
    for (at, ask) in asks.iter().enumerate() {
        if decisions[at].is_asked() {
            continue;
        }
        let ask = match ask {
            OwnedAsk::Memory(ask) => {
                decisions[at] = ask.meter.look(ask.hash, ask.cost, mode);
                continue;
            }
            OwnedAsk::Redis(ask) => ask,
        };
        let (version, cost) = (ask.meter.version(), whole_cost(asks, ask));
        if let Some(shown) = ask.meter.shown(ask.hash, &version, cost, mode) {
            decisions[at] = shown;
        } else if !version.is_place() && *may_look.get_or_insert_with(|| ask.meter.core().may_look()) {
            // Of places nobody knows when they come back: there is no time to be told.
            let how = How::Look(mode);
            if let Ok(asked) = ask.meter.ask(&version, &ask.key, ask.hash, cost, how, false) {
                looks.push((at, Asking(asked)));
            }
        }
    }
    // All are on their way: however many they are, they take as long as one.
    for (at, asking) in looks {
        if let Ok(told) = asking.await {
            decisions[at] = told.decisions[0];
        }
    }
}

/// Checks that are decided at one instant.
struct Part {
    positions: SmallVec<[usize; 2]>,
    /// The server's slot; none for memory.
    place: Option<(Arc<Core>, u16)>,
}

fn parts(asks: &[OwnedAsk]) -> SmallVec<[Part; 2]> {
    let mut parts: SmallVec<[Part; 2]> = SmallVec::new();
    for (at, ask) in asks.iter().enumerate() {
        let place = match ask {
            OwnedAsk::Memory(_) => None,
            OwnedAsk::Redis(ask) => {
                let core = ask.meter.core();
                let slot = if core.is_cluster() { redis::slot(&redis::subject(&ask.key)) } else { 0 };
                Some((core.clone(), slot))
            }
        };
        // A key that another gate of the same name counts by another limit is asked about on
        // its own: the script would count each on what it found before the other.
        let differs = |other: &usize| match (&asks[*other], ask) {
            (OwnedAsk::Redis(other), OwnedAsk::Redis(ask)) => {
                is_same(other, ask) && !other.meter.version().counts_like(&ask.meter.version())
            }
            _ => false,
        };
        let joins = |part: &&mut Part| match (&part.place, &place) {
            (None, None) => true,
            (Some((core, slot)), Some((other, at))) => {
                Arc::ptr_eq(core, other) && slot == at && !part.positions.iter().any(differs)
            }
            _ => false,
        };
        match parts.iter_mut().find(joins) {
            Some(part) => part.positions.push(at),
            // Memory is asked first: it costs nothing.
            None if place.is_none() => parts.insert(0, Part { positions: SmallVec::from_elem(at, 1), place }),
            None => parts.push(Part { positions: SmallVec::from_elem(at, 1), place }),
        }
    }
    parts
}

/// What a part said, in the order of its positions.
struct PartTold {
    decisions: Decisions,
    charges: SmallVec<[Charge; 1]>,
    /// When memory decided; the beginning of time for Redis, whose charges know it.
    decided: Timestamp,
}

impl Part {
    async fn decide(&self, asks: &[OwnedAsk], mode: Mode) -> PartTold {
        let Some((core, slot)) = &self.place else {
            let asks: Vec<MemoryAsk> = self.asks(asks).filter_map(memory).collect();
            let told = decide_in_memory(&asks, mode);
            return PartTold { decisions: told.decisions, charges: told.charges, decided: told.now };
        };
        let asks: Vec<RedisAsk> = self.asks(asks).filter_map(remote).collect();
        let merged = Merged::new(&asks);
        match ask(core, *slot, &merged, How::Take(mode)) {
            Ok(asking) => match asking.await {
                Ok(told) => merged.spread(&asks, told),
                Err(fault) => alone(&asks, &merged, mode, fault),
            },
            Err(fault) => alone(&asks, &merged, mode, fault),
        }
    }

    fn asks<'a>(&'a self, asks: &'a [OwnedAsk]) -> impl Iterator<Item = &'a OwnedAsk> {
        self.positions.iter().map(|at| &asks[*at])
    }
}

/// True if both are about one key in Redis. Names count there: after a gate was removed and
/// its name defined anew, two gates own the same keys.
fn is_same(one: &RedisAsk, other: &RedisAsk) -> bool {
    let is_same_gate = Arc::ptr_eq(&one.meter, &other.meter)
        || (one.meter.name == other.meter.name && Arc::ptr_eq(one.meter.core(), other.meter.core()));
    is_same_gate && one.key == other.key
}

/// One question for each key: a key asked about twice pays the sum. Those of one key count
/// alike, also if their gates are two.
struct Merged {
    keys: SmallVec<[Key; 1]>,
    costs: SmallVec<[u64; 1]>,
    /// The key of each ask.
    of: SmallVec<[usize; 2]>,
}

impl Merged {
    fn new(asks: &[RedisAsk]) -> Self {
        let mut merged = Self { keys: SmallVec::new(), costs: SmallVec::new(), of: SmallVec::new() };
        for (nth, ask) in asks.iter().enumerate() {
            let same = asks[..nth].iter().position(|other| is_same(other, ask));
            let at = same.map(|other| merged.of[other]).unwrap_or_else(|| {
                let (meter, version) = (ask.meter.clone(), ask.meter.version());
                merged.keys.push(Key { meter, version, bytes: ask.key.clone(), hash: ask.hash });
                merged.costs.push(0);
                merged.keys.len() - 1
            });
            merged.costs[at] = merged.costs[at].saturating_add(ask.cost);
            merged.of.push(at);
        }
        merged
    }

    fn spread(&self, asks: &[RedisAsk], told: Told) -> PartTold {
        let decisions = self.of.iter().map(|at| told.decisions[*at]).collect();
        let mut charges = SmallVec::new();
        for (at, mut whole) in told.charges.into_iter().enumerate() {
            for (ask, _) in asks.iter().zip(&self.of).filter(|(_, of)| **of == at) {
                charges.push(Charge::Redis { index: ask.index, charge: whole.part(ask.cost) });
            }
        }
        PartTold { decisions, charges, decided: Timestamp::default() }
    }
}

fn ask(core: &Arc<Core>, slot: u16, merged: &Merged, how: How) -> Result<Asking, Fault> {
    if core.is_inherited() {
        return Err(Fault::default());
    }
    let Some(shard) = core.shard_of(|| slot) else { return Err(Fault::default()) };
    if !shard.is_up() {
        return Err(shard.fault(core));
    }
    if let [key] = merged.keys.as_slice() {
        let asked = key.meter.ask(&key.version, &key.bytes, key.hash, merged.costs[0], how, true)?;
        return Ok(Asking(asked));
    }
    let (promise, awaited) = promise();
    let places = merged.keys.iter().filter(|key| key.version.is_place()).count();
    let request = Request {
        how,
        costs: merged.costs.clone(),
        wants_charges: true,
        places_from: core.numbers(places as u64),
        since: core.now(),
        promise,
    };
    let keys = &merged.keys;
    let joins = keys.iter().all(|key| key.meter.coalesces);
    let hash = keys.iter().fold(0u64, |all, key| all.rotate_left(7) ^ key.hash ^ u64::from(key.meter.id));
    let is_same = |others: &[Key]| {
        others.len() == keys.len() && others.iter().zip(keys).all(|(other, key)| other.is_same(key))
    };
    shard.ask(redis::lane(&keys[0].bytes), hash, joins, is_same, || keys.clone(), request);
    Ok(Asking(awaited))
}

/// A question on its way. Dropped, it gives back what it was granted.
struct Asking(Answered);

impl Future for Asking {
    type Output = Result<Told, Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|told| told.unwrap_or(Err(Fault::default())))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(Ok(told)) = self.0.leave() {
            told.charges.into_iter().for_each(redis::Charge::cancel);
        }
    }
}

/// Decides without Redis: all by their shares in memory, or none.
fn alone(asks: &[RedisAsk], merged: &Merged, mode: Mode, fault: Fault) -> PartTold {
    let mut shares: Vec<MemoryAsk> = Vec::new();
    let not_asked = |ask: &RedisAsk| Decision::not_asked(&ask.meter.version().limit);
    let mut decisions: Decisions = asks.iter().map(not_asked).collect();
    let shown = |at: usize, decision: Decision| {
        let of = merged.of[at];
        asks[at].meter.shown_alone(decision, &merged.keys[of].version, merged.costs[of], mode, fault)
    };
    let mut is_denied = false;
    for (at, ask) in asks.iter().enumerate() {
        let of = merged.of[at];
        match ask.meter.question(&merged.keys[of].version, &ask.key, merged.costs[of], fault) {
            Alone::Denied(decision) => (decisions[at], is_denied) = (decision, true),
            Alone::Share(share) => shares.push(MemoryAsk { index: ask.index, cost: ask.cost, ..share }),
        }
    }
    if is_denied {
        // The others hear how their shares stand.
        let open = (0..asks.len()).filter(|at| !decisions[*at].is_asked()).collect::<SmallVec<[usize; 2]>>();
        for (at, share) in open.into_iter().zip(&shares) {
            let decision = share.meter.look(share.hash, share.cost, mode);
            decisions[at] = shown(at, decision);
        }
        return PartTold { decisions, charges: SmallVec::new(), decided: Timestamp::default() };
    }
    let told = decide_in_memory(&shares, mode);
    let decisions =
        told.decisions.into_iter().enumerate().map(|(at, decision)| shown(at, decision)).collect();
    PartTold { decisions, charges: told.charges, decided: told.now }
}

/// What earlier parts have charged; goes back if it is dropped.
#[derive(Default)]
struct Earlier {
    charges: SmallVec<[Charge; 1]>,
    /// When memory charged its part.
    decided: Timestamp,
}

impl Earlier {
    fn keep(mut self) -> SmallVec<[Charge; 1]> {
        std::mem::take(&mut self.charges)
    }
}

impl Drop for Earlier {
    fn drop(&mut self) {
        Permit::new(std::mem::take(&mut self.charges), self.decided, Duration::ZERO).cancel();
    }
}

/// Decides, queues for places, and waits for the start.
pub(crate) async fn acquire(asks: Vec<OwnedAsk>) -> Verdict {
    let first = decide(asks.clone(), Mode::Reserve).await;
    let verdict = match places_to_queue_for(&asks, &first) {
        Some(places) => queue(asks.clone(), places, first).await,
        None => first,
    };
    let clock = asks.first().map(clock).unwrap_or_else(|| StoreClock::Monotonic(MonotonicClock::new()));
    let waiting = Waiting(Some(verdict));
    let until = waiting.0.as_ref().map_or(Timestamp::default(), Verdict::starts_at);
    Sleep::until(clock, until).await;
    waiting.end()
}

/// A verdict whose start is to come. Dropped, the call does not happen.
struct Waiting(Option<Verdict>);

impl Waiting {
    #[expect(clippy::expect_used, reason = "it is taken once, here")]
    fn end(mut self) -> Verdict {
        self.0.take().expect("a verdict that is waited for")
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(Ok(permit)) = self.0.take().map(Verdict::into_permit) {
            permit.cancel();
        }
    }
}

/// The places in Redis that are missing, if nothing else is and they may be waited for.
fn places_to_queue_for(asks: &[OwnedAsk], denied: &Verdict) -> Option<Vec<RedisAsk>> {
    if denied.is_allowed() || denied.is_degraded() {
        return None;
    }
    let mut places: Vec<RedisAsk> = Vec::new();
    for (ask, decision) in asks.iter().zip(denied.decisions()) {
        let place = remote(ask).filter(|ask| ask.meter.version().is_place());
        match (decision.denial(), place) {
            (Some(Denial::Unknown) | None, Some(place)) => {
                match places.iter_mut().find(|held| counts_with(held, &place)) {
                    Some(held) => held.cost = held.cost.saturating_add(place.cost),
                    None => places.push(place),
                }
            }
            (None, None) => {}
            // Whether it fits will be seen once the places are there.
            (Some(Denial::Unknown), None) if !decision.is_asked() => {}
            (Some(_), _) => return None,
        }
    }
    // Everybody in the same order, so that nobody waits for a place with one in hand
    // that the other needs.
    places.sort_by(|a, b| (&a.meter.name, &a.key).cmp(&(&b.meter.name, &b.key)));
    Some(places).filter(|places| !places.is_empty())
}

/// True if both are about one key, and count alike: then they are asked as one.
fn counts_with(one: &RedisAsk, other: &RedisAsk) -> bool {
    is_same(one, other) && one.meter.version().counts_like(&other.meter.version())
}

/// Queues for one place after the other, and then asks for everything else.
async fn queue(asks: Vec<OwnedAsk>, places: Vec<RedisAsk>, denied: Verdict) -> Verdict {
    let clock = MonotonicClock::new();
    let since = clock.now();
    let mut held = Earlier::default();
    for place in places {
        match one_place(&place).await {
            Some(charge) => {
                let mut whole = charge;
                let same = asks.iter().filter_map(remote).filter(|ask| counts_with(ask, &place));
                for ask in same {
                    held.charges.push(Charge::Redis { index: ask.index, charge: whole.part(ask.cost) });
                }
            }
            None => return denied,
        }
    }
    let queued = clock.now().since(since);
    let is_rate = |ask: &&OwnedAsk| !matches!(ask, OwnedAsk::Redis(ask) if ask.meter.version().is_place());
    let rates: Vec<OwnedAsk> = asks.iter().filter(is_rate).cloned().collect();
    let (rates, rate_charges) = decide(rates, Mode::Reserve).await.into_parts();
    let mut rates = rates.into_iter();
    let mut decisions: Decisions = SmallVec::new();
    for ask in &asks {
        let is_place = !is_rate(&ask);
        let rate = if is_place { None } else { rates.next() };
        decisions.push(rate.unwrap_or_else(|| {
            let limit = side(ask).limit().capacity();
            let gauge = Gauge::Plain { remaining: 0, reset_us: 0 };
            Decision { outcome: Outcome::Allow { wait_us: 0 }, limit, gauge }
        }));
    }
    // Without the rates, the places go back.
    let Some(rate_charges) = rate_charges else { return verdict(&asks, decisions, SmallVec::new()) };
    let mut charges = held.keep();
    charges.extend(rate_charges);
    verdict(&asks, decisions, charges).after(queued)
}

/// Queues for a place until it is held, the queue is full, or the wait is over.
async fn one_place(place: &RedisAsk) -> Option<redis::Charge> {
    let core = place.meter.core().clone();
    let key = place.meter.key(&place.key, place.hash);
    let number = core.numbers(1);
    let member = redis::member(&place.meter, number, place.cost);
    let until = core.clock.now() + key.version.limit.wait();
    let mut in_queue = InQueue { key: key.clone(), member: Some(member.clone()) };
    let mut is_new = true;
    loop {
        let (promise, awaited) = promise();
        let what = What::Queue { member: member.clone(), is_new };
        let (since, sent) = (core.now(), core.clock.now());
        core.change(Change { key: Some(key.clone()), what, since, promise: Some(promise) });
        let state = awaited.await.and_then(Result::ok).and_then(|told| told.first().copied());
        match state {
            Some(1) => {
                in_queue.member = None;
                return Some(redis::Charge::new(
                    &key,
                    place.cost,
                    0,
                    redis::Mark::default(),
                    Some(number),
                    sent,
                ));
            }
            Some(0) => {}
            // No answer: it may be queued or not, and asking again finds out.
            None if !is_new => {}
            _ => return None,
        }
        is_new = false;
        let now = core.clock.now();
        if now >= until {
            return None;
        }
        let pause =
            ASK_AGAIN.mul_f64(0.75 + core.random() / 2.0).min(until.since(now).max(Duration::from_millis(1)));
        let clock = StoreClock::Monotonic(MonotonicClock::new());
        let wake = clock.now() + pause;
        Sleep::until(clock, wake).await;
    }
}

/// Someone who waits for a place. Dropped, it leaves the queue.
struct InQueue {
    key: Key,
    member: Option<String>,
}

impl Drop for InQueue {
    fn drop(&mut self) {
        if let Some(member) = self.member.take() {
            self.key.send(What::Leave { member });
        }
    }
}

fn memory(ask: &OwnedAsk) -> Option<MemoryAsk> {
    match ask {
        OwnedAsk::Memory(ask) => Some(ask.clone()),
        OwnedAsk::Redis(_) => None,
    }
}

fn remote(ask: &OwnedAsk) -> Option<RedisAsk> {
    match ask {
        OwnedAsk::Redis(ask) => Some(ask.clone()),
        OwnedAsk::Memory(_) => None,
    }
}

fn side(ask: &OwnedAsk) -> Side {
    match ask {
        OwnedAsk::Memory(ask) => Side::Memory(ask.meter.clone()),
        OwnedAsk::Redis(ask) => Side::Redis(ask.meter.clone()),
    }
}

fn clock(ask: &OwnedAsk) -> StoreClock {
    match ask {
        OwnedAsk::Memory(ask) => ask.meter.home.clock.clone(),
        OwnedAsk::Redis(ask) => ask.meter.core().clock.clone(),
    }
}

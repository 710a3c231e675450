//! The way of a buyer, for any front end: who may come in, which path, which order.
//!
//! What counts units is the engine's; what speaks HTTP is in `http`.

use crate::admission::{Admission, Limits};
use crate::books::{Audit, Books, DeadLetter, Difference};
use crate::embedded::{Embedded, SaleOpenError};
use crate::engine::{AdminError, Engine, Fault, Known, Reserve, Turn, Turned};
use crate::goods::{GoodsId, UserId};
use crate::order::{Order, OrderSn, OrderState};
use crate::path::Path;
use crate::refusal::Refusal;
use crate::request_limits::RequestLimits;
use crate::sale::{Change, Phase, STOCK_MAX, Sale, SaleState};
use crate::sampled::warn_sampled;
use crate::secret::Secret;
#[cfg(feature = "servers")]
use crate::servers::{OpenError, ServersConfig, ServersEngine};
use crate::shared_books::SharedBooks;
use crate::shown::Shown;
use crate::time::now_ms;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
#[cfg(feature = "servers")]
use tidegate::Redis;
use tidegate::{GateError, Limit, LimitError, Limiter};
use tokio::sync::watch;

/// What a user may ask for in a second, unless said: a person who presses the button.
const USER_LIMIT: &str = "5/s burst 10";
/// What an address may ask for in a second, unless said: an office behind one router.
const IP_LIMIT: &str = "50/s burst 100";
/// Buyers that wait for their start at the same time, unless said.
const WAITERS: usize = 256;
/// Characters of an idempotency key, and of a reason.
const TEXT_MAX: usize = 200;
/// Lines of the audit that are told at once.
const AUDIT_MAX: u32 = 1_000;

/// A running sale of any number of goods. Cheap to clone; clones are the same sale.
#[derive(Clone)]
pub struct SaleService {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<dyn Engine>,
    /// Rates have to be such that Redis's scripts can count them.
    counts_in_redis: bool,
    secret: Secret,
    admission: Admission,
    request_limits: RequestLimits,
    books: SharedBooks,
    stopped: watch::Sender<bool>,
}

/// Collects what a [`SaleService`] is made of.
#[must_use = "a builder does nothing until an engine is named"]
pub struct SaleBuilder {
    secret: Option<Secret>,
    limits: Limits,
    limiter: Option<Limiter>,
    counts_in_redis: bool,
}

/// Why a sale cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A limit is none that can be in force.
    #[error(transparent)]
    Limit(#[from] GateError),
    /// The file cannot be served.
    #[error(transparent)]
    Embedded(#[from] SaleOpenError),
    /// A server does not answer, or not as it should; which, where and why. Trying again may help.
    #[cfg(feature = "servers")]
    #[error("{0}")]
    NoAnswer(String),
    /// A setting cannot be, or the tables are another program's.
    #[cfg(feature = "servers")]
    #[error("{0}")]
    Servers(String),
}

impl SaleBuilder {
    /// What paths are signed with, for all processes of the sale; made once and kept in its
    /// database unless said.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// How often one user may ask for a path, and, counted by itself, for orders; `5/s burst 10`
    /// unless said, none for no limit.
    pub fn user_limit(mut self, limit: Option<Limit>) -> Self {
        self.limits.user = limit;
        self
    }

    /// How often one address (an IPv6 one by its /64) may ask for a path, and, each counted by
    /// itself, for orders, as an operator, and with a token that is none; `50/s burst 100`
    /// unless said, none for no limit.
    pub fn ip_limit(mut self, limit: Option<Limit>) -> Self {
        self.limits.ip = limit;
        self
    }

    /// Whether the limit by address spares this machine's own, as a load test comes from
    /// there; false unless said.
    pub fn spare_loopback(mut self, spare: bool) -> Self {
        self.limits.spares_loopback = spare;
        self
    }

    /// How many buyers of this process may wait for their start at the same time; 256
    /// unless said. Beyond it whoever would have to wait is refused.
    pub fn waiters(mut self, waiters: usize) -> Self {
        self.limits.waiters = waiters;
        self
    }

    /// Where limits are counted; in memory, for a million live keys, unless said. The gates
    /// in it are named as the goods are.
    pub fn limiter(mut self, limiter: Limiter) -> Self {
        self.limiter = Some(limiter);
        self
    }

    /// One process and one SQLite file, which is made if it is not there.
    ///
    /// # Errors
    /// If a limit cannot be in force, or the file cannot be served.
    pub async fn embedded(self, path: impl AsRef<std::path::Path>) -> Result<SaleService, StartError> {
        let engine = Embedded::open(path.as_ref()).await?;
        let kept = engine.secret().clone();
        self.on(Arc::new(engine), kept)
    }

    /// Redis, RabbitMQ and PostgreSQL, for any number of processes. Limits are counted in the
    /// same Redis, unless another [`limiter`](Self::limiter) is given.
    ///
    /// # Errors
    /// If a limit cannot be in force, an address is none, or PostgreSQL does not answer: then it
    /// is [`StartError::NoAnswer`], and can be tried again. The other two may come later.
    #[cfg(feature = "servers")]
    pub async fn servers(mut self, config: ServersConfig) -> Result<SaleService, StartError> {
        if self.limiter.is_none() {
            let redis = Redis::at(&config.redis).map_err(|error| StartError::Servers(error.to_string()))?;
            self.limiter = Some(Limiter::builder().redis(redis).build());
            self.counts_in_redis = true;
        }
        let failed = |error| match error {
            OpenError::Wrong(fault) => StartError::Servers(fault.to_string()),
            OpenError::NoAnswer(why) => StartError::NoAnswer(why),
        };
        let engine = ServersEngine::open(config).await.map_err(failed)?;
        // One that is given is written nowhere, and none is made beside it.
        let secret = match self.secret.take() {
            Some(given) => given,
            None => engine.secret().await.map_err(failed)?,
        };
        self.on(Arc::new(engine), secret)
    }

    /// On any engine, with the secret that it has kept unless one was given.
    pub(crate) fn on(self, engine: Arc<dyn Engine>, kept: Secret) -> Result<SaleService, StartError> {
        let request_limits = RequestLimits::new(&self.limits)?;
        let admission = Admission::new(self.limiter.unwrap_or_default(), self.limits)?;
        let secret = self.secret.unwrap_or(kept);
        let (counts_in_redis, stopped) = (self.counts_in_redis, watch::Sender::new(false));
        let books = SharedBooks::default();
        let inner = Inner { engine, counts_in_redis, secret, admission, request_limits, books, stopped };
        Ok(SaleService { inner: Arc::new(inner) })
    }
}

fn default_limit(text: &str) -> Option<Limit> {
    let limit: Result<Limit, LimitError> = text.parse();
    debug_assert!(limit.is_ok(), "the default limits are limits");
    limit.ok()
}

impl SaleService {
    /// Begins with the defaults.
    pub fn builder() -> SaleBuilder {
        let limits = Limits {
            user: default_limit(USER_LIMIT),
            ip: default_limit(IP_LIMIT),
            spares_loopback: false,
            waiters: WAITERS,
        };
        SaleBuilder { secret: None, limits, limiter: None, counts_in_redis: false }
    }

    /// What paths are signed with, and [`SignedTokens`](crate::SignedTokens) can be.
    pub fn secret(&self) -> &Secret {
        &self.inner.secret
    }

    /// Lets a buyer in, perhaps after a wait, and hands out a path.
    ///
    /// # Errors
    /// In this order: unknown, not open, paused or closed, sold out (from what is known
    /// here, without asking anybody), limited.
    pub async fn random_path(
        &self,
        user: &UserId,
        client: Option<IpAddr>,
        goods: &GoodsId,
    ) -> Result<String, Refusal> {
        let engine = &*self.inner.engine;
        let known = self.open_and_left(goods)?;
        let permit = self.inner.admission.admit(engine, &known, user, client).await?;
        // Much can happen while one waits; whoever gets nothing for it has spent nothing.
        let known = match self.open_and_left(goods) {
            Ok(known) => known,
            Err(refusal) => {
                permit.cancel();
                return Err(refusal);
            }
        };
        // Told in whole seconds: at least as long as the sale says, and less than one longer.
        let expires = now_ms().div_ceil(1000) + u64::from(known.sale.path_ttl);
        let path = Path::new(known.epoch, expires).map_err(|error| {
            tracing::error!(target: "tidegate::sale", %error, "the system has no randomness to give");
            Refusal::Busy
        })?;
        Ok(path.sign(&self.inner.secret, goods, user))
    }

    /// Takes units under a new order number, which is durable once it is told. Asked again
    /// with the same path or key, the answer is the same number.
    ///
    /// # Errors
    /// A wrong path is refused here, without asking anybody.
    pub async fn decr_stock(
        &self,
        user: &UserId,
        goods: &GoodsId,
        path: &str,
        quantity: u32,
        key: Option<&str>,
    ) -> Result<OrderSn, Refusal> {
        if quantity == 0 || u64::from(quantity) > STOCK_MAX {
            return Err(Refusal::BadRequest("`decrStock`: how many units, from 1 on, such as 1".into()));
        }
        let is_key =
            |key: &str| (1..=TEXT_MAX).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
        if key.is_some_and(|key| !is_key(key)) {
            return Err(Refusal::BadRequest(
                "`Idempotency-Key`: 1 to 200 visible ASCII characters, such as a UUID".into(),
            ));
        }
        let engine = &self.inner.engine;
        engine.known(goods).ok_or(Refusal::UnknownGoods)?;
        let path = Path::verify(path, &self.inner.secret, goods, user).ok_or(Refusal::WrongPath)?;
        let reserve = Reserve {
            goods: goods.clone(),
            user: user.clone(),
            quantity,
            path: path.id,
            epoch: path.epoch,
            is_expired: now_ms() / 1000 >= path.expires,
            key: key.map(Into::into),
        };
        engine.reserve(reserve).await
    }

    /// A sale that is open and, as far as is known here, has something left.
    fn open_and_left(&self, goods: &GoodsId) -> Result<Arc<Known>, Refusal> {
        let known = self.inner.engine.known(goods).ok_or(Refusal::UnknownGoods)?;
        Phase::at(now_ms(), &known.sale, &known.state).must_be_open()?;
        if known.left == Some(0) { Err(Refusal::SoldOut) } else { Ok(known) }
    }

    /// An order of this user.
    ///
    /// # Errors
    /// If there is none, or it is another's.
    pub async fn order(&self, user: &UserId, sn: &OrderSn) -> Result<Order, Refusal> {
        let order = self.inner.engine.order(sn).await.map_err(busy)?;
        buyers(order, user)
    }

    /// The same once its state is another than this one, or after this time.
    ///
    /// # Errors
    /// As [`order`](Self::order).
    pub async fn order_after(
        &self,
        user: &UserId,
        sn: &OrderSn,
        seen: OrderState,
        at_most: Duration,
    ) -> Result<Order, Refusal> {
        let order = self.inner.engine.changed(sn, seen, at_most).await.map_err(busy)?;
        buyers(order, user)
    }

    /// Gives an order up; its units are for sale again, once, however often this is asked.
    ///
    /// # Errors
    /// If it is unknown, another's, or stands where it cannot be given up.
    pub async fn cancel(&self, user: &UserId, sn: &OrderSn) -> Result<Order, Refusal> {
        self.order(user, sn).await?;
        self.turn(sn, Turn::Cancel).await
    }

    /// Says that an order is paid: the hook for whatever takes the money.
    ///
    /// # Errors
    /// If it is unknown, or stands where it cannot be paid.
    pub async fn pay(&self, sn: &OrderSn) -> Result<Order, Refusal> {
        self.turn(sn, Turn::Pay).await
    }

    async fn turn(&self, sn: &OrderSn, turn: Turn) -> Result<Order, Refusal> {
        turned(self.inner.engine.turn(sn, turn).await.map_err(busy)?)
    }

    /// What a buyer's page shows.
    pub fn shown(&self, goods: &GoodsId) -> Option<Shown> {
        self.inner.engine.known(goods).map(|known| Shown::of(&known, now_ms()))
    }

    /// All sales, as they were defined and where they stand.
    pub fn sales(&self) -> Vec<(Sale, SaleState)> {
        let now = now_ms();
        let told = |known: &Arc<Known>| (known.sale.clone(), known.state.at(now, &known.sale));
        self.inner.engine.all().iter().map(told).collect()
    }

    /// Where every unit is, read not earlier than now. Those who ask at the same time share a
    /// read.
    ///
    /// # Errors
    /// If there is no such sale.
    pub async fn books(&self, goods: &GoodsId) -> Result<Books, Refusal> {
        let engine = &self.inner.engine;
        engine.known(goods).ok_or(Refusal::UnknownGoods)?;
        let read = async || engine.books(goods).await.map_err(busy)?.ok_or(Refusal::UnknownGoods);
        self.inner.books.read(goods, read).await
    }

    /// What the database's own sums of a sale say, and what its orders add up to: what
    /// [`repair`](Self::repair) would change.
    ///
    /// # Errors
    /// If there is no such sale.
    pub async fn difference(&self, goods: &GoodsId) -> Result<Difference, Refusal> {
        self.inner.engine.difference(goods).await.map_err(busy)?.ok_or(Refusal::UnknownGoods)
    }

    /// Stores what the orders of a sale add up to, with a line in the audit, and tells what it
    /// found. The sale stays held; [`Change::Resume`] goes on.
    ///
    /// # Errors
    /// If there is no such sale, or it is not held.
    pub async fn repair(&self, goods: &GoodsId, by: &str) -> Result<Difference, Refusal> {
        self.inner.engine.repair(goods, by).await.map_err(refused)
    }

    /// Creates a sale, as a draft.
    ///
    /// # Errors
    /// If a field cannot be, or there is one of these goods.
    pub async fn create(&self, sale: Sale, by: &str) -> Result<(), Refusal> {
        sale.check().map_err(|error| Refusal::BadRequest(error.to_string().into()))?;
        self.check_rate(&sale.rate)?;
        self.inner.engine.create(sale, by).await.map(drop).map_err(refused)
    }

    /// Changes a sale, with a line in the audit. A new rate counts from the next buyer on.
    ///
    /// # Errors
    /// If it is unknown, or the change does not fit where it stands.
    pub async fn change(&self, goods: &GoodsId, change: Change, by: &str) -> Result<SaleState, Refusal> {
        check_change(&change)?;
        if let Change::Rate { limit } = &change {
            self.check_rate(limit)?;
        }
        let known = self.inner.engine.change(goods, change, by).await.map_err(refused)?;
        Ok(known.state.clone())
    }

    fn check_rate(&self, rate: &Limit) -> Result<(), Refusal> {
        if !self.inner.counts_in_redis {
            return Ok(());
        }
        rate.exact_in_doubles().map_err(|error| Refusal::BadRequest(format!("`rate`: {error}").into()))
    }

    /// What operators did, the newest first.
    ///
    /// # Errors
    /// If there is no such sale.
    pub async fn audit(&self, goods: &GoodsId) -> Result<Vec<Audit>, Refusal> {
        self.inner.engine.known(goods).ok_or(Refusal::UnknownGoods)?;
        self.inner.engine.audit(goods, AUDIT_MAX).await.map_err(busy)
    }

    /// Orders that could not be placed and wait for an operator.
    ///
    /// # Errors
    /// If there is no such sale.
    pub async fn dead(&self, goods: &GoodsId) -> Result<Vec<DeadLetter>, Refusal> {
        self.inner.engine.known(goods).ok_or(Refusal::UnknownGoods)?;
        self.inner.engine.dead(goods).await.map_err(busy)
    }

    /// Tries to place a dead letter again.
    ///
    /// # Errors
    /// If there is none of this number, or it cannot be placed: the text says why.
    pub async fn replay(&self, sn: &OrderSn, by: &str) -> Result<Order, Refusal> {
        match self.inner.engine.bury(sn, true, by).await.map_err(refused)? {
            Turned::Refused(order) if order.state == OrderState::Failed => Err(Refusal::WrongState(
                "the dead letter was dropped: its units went back, and its buyer has to order anew".into(),
            )),
            other => turned(other),
        }
    }

    /// Drops a dead letter; its units are for sale again.
    ///
    /// # Errors
    /// If there is none of this number.
    pub async fn drop_dead(&self, sn: &OrderSn, by: &str) -> Result<Order, Refusal> {
        turned(self.inner.engine.bury(sn, false, by).await.map_err(refused)?)
    }

    /// Whether it should get new buyers.
    ///
    /// # Errors
    /// If it is to stop, or what it runs on does not answer; the log says what.
    pub fn ready(&self) -> Result<(), Refusal> {
        if *self.inner.stopped.borrow() {
            return Err(Refusal::Busy);
        }
        self.inner.engine.ready().map_err(|what| busy(Fault { what }))
    }

    /// Which server does not answer, and where: for operators, not for strangers.
    pub fn unanswered(&self) -> Option<String> {
        self.inner.engine.ready().err()
    }

    /// Buyers that wait for their start.
    pub fn waiting(&self) -> usize {
        self.inner.admission.waiting()
    }

    /// Answers nothing new, and ends once what was begun is durable.
    pub async fn stop(&self) {
        self.inner.stopped.send_replace(true);
        self.inner.engine.stop().await;
    }

    /// Says that the end is near: streams end, so that their connections can. Orders are
    /// still taken until [`stop`](Self::stop).
    pub fn leave(&self) {
        self.inner.stopped.send_replace(true);
    }

    /// How often somebody may ask for anything but a path.
    pub(crate) fn request_limits(&self) -> &RequestLimits {
        &self.inner.request_limits
    }

    pub(crate) fn stopped(&self) -> watch::Receiver<bool> {
        self.inner.stopped.subscribe()
    }
}

impl fmt::Debug for SaleService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaleService").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

/// What is wrong whatever the sale's state is.
fn check_change(change: &Change) -> Result<(), Refusal> {
    let bad = |text: &'static str| Err(Refusal::BadRequest(text.into()));
    match change {
        Change::AddStock { units: 0 } => bad("`add`: how many units more, from 1 on"),
        Change::Pause { reason }
            if reason.chars().count() > TEXT_MAX || reason.chars().any(char::is_control) =>
        {
            bad("`reason`: at most 200 characters, no control characters")
        }
        Change::Rate { limit } => match Sale::check_rate(limit) {
            Ok(()) => Ok(()),
            Err(error) => Err(Refusal::BadRequest(error.to_string().into())),
        },
        _ => Ok(()),
    }
}

/// An order as its buyer sees it. Why one could not be placed may be a database's own text, and
/// is for operators: the dead letter has it.
fn buyers(order: Option<Order>, user: &UserId) -> Result<Order, Refusal> {
    let mut order = order.filter(|order| order.user == *user).ok_or(Refusal::UnknownOrder)?;
    if order.state == OrderState::Failed {
        order.reason = Some("it could not be placed".into());
    }
    Ok(order)
}

fn turned(turned: Turned) -> Result<Order, Refusal> {
    match turned {
        Turned::Done(order) => Ok(order),
        // Its row is on its way, and late.
        Turned::Refused(order) if order.state == OrderState::Processing => Err(Refusal::Busy),
        Turned::Refused(order) => {
            Err(Refusal::WrongState(format!("the order is {}", order.state.as_str()).into()))
        }
        Turned::Unknown => Err(Refusal::UnknownOrder),
    }
}

/// The log is told what happened; a buyer is told to come back.
#[expect(clippy::needless_pass_by_value, reason = "errors are mapped with it")]
fn busy(fault: Fault) -> Refusal {
    warn_sampled!(error = %fault, "a request failed: the engine does not answer");
    Refusal::Busy
}

fn refused(error: AdminError) -> Refusal {
    match error {
        AdminError::Unknown => Refusal::UnknownGoods,
        AdminError::Refused(why) => Refusal::WrongState(why.into()),
        AdminError::Fault(fault) => busy(fault),
    }
}

#[cfg(test)]
mod tests;

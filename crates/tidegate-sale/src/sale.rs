//! A sale: what operators define, and where it stands.

use crate::goods::GoodsId;
use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::fmt;
use tidegate::{Algorithm, Limit};

/// Units of one sale. Every sum of them stays exact in a script's doubles.
pub(crate) const STOCK_MAX: u64 = 1_000_000_000;

/// Seconds to pay in: 68 years, what an `integer` of PostgreSQL holds.
const PAY_WITHIN_MAX: u32 = 2_147_483_647;

/// What an operator defines. Everything but the goods has a default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sale {
    /// What is sold.
    pub goods: GoodsId,
    /// For people.
    #[serde(default)]
    pub title: String,
    /// Units for sale in all.
    pub total: u64,
    /// How many paths are handed out: by goods, for all processes together.
    #[serde(default = "default_rate")]
    pub rate: Limit,
    /// Units that one user may buy.
    #[serde(default = "one")]
    pub per_user: u32,
    /// True if a user may have only one live order.
    #[serde(default)]
    pub one_each: bool,
    /// When it opens by itself, in milliseconds since 1970; by hand otherwise.
    #[serde(default)]
    pub opens_at: Option<u64>,
    /// When it closes by itself.
    #[serde(default)]
    pub closes_at: Option<u64>,
    /// How long a path is good for, in seconds.
    #[serde(default = "default_path_ttl")]
    pub path_ttl: u32,
    /// Seconds that a placed order may stay unpaid; for ever if none.
    #[serde(default)]
    pub pay_within: Option<u32>,
}

fn one() -> u32 {
    1
}

fn default_path_ttl() -> u32 {
    60
}

/// What the seeds had: 1,000 a second, one second's worth saved up, up to one second's wait.
#[expect(clippy::expect_used, reason = "a constant; a test reads it")]
pub(crate) fn default_rate() -> Limit {
    "1000/s burst 1s wait 1s".parse().expect("the default rate is a limit")
}

/// A sale that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {what}")]
pub struct SaleError {
    /// Which field is wrong.
    pub field: &'static str,
    /// What is wrong with it, and what to write instead.
    pub what: String,
}

impl Sale {
    /// A sale of this many units, with the defaults.
    pub fn new(goods: GoodsId, total: u64) -> Self {
        Self {
            title: goods.to_string(),
            goods,
            total,
            rate: default_rate(),
            per_user: one(),
            one_each: false,
            opens_at: None,
            closes_at: None,
            path_ttl: default_path_ttl(),
            pay_within: None,
        }
    }

    /// Checks what types cannot say.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self) -> Result<(), SaleError> {
        let error = |field, what: String| Err(SaleError { field, what });
        if self.total == 0 || self.total > STOCK_MAX {
            return error("total", format!("1 to {STOCK_MAX} units, not {}", self.total));
        }
        if self.title.chars().count() > 200 || self.title.chars().any(char::is_control) {
            return error("title", "at most 200 characters, no control characters".into());
        }
        if self.per_user == 0 {
            return error("per_user", "at least 1; nobody could buy anything".into());
        }
        if !(1..=86_400).contains(&self.path_ttl) {
            return error("path_ttl", format!("1 to 86400 seconds, not {}", self.path_ttl));
        }
        if self.pay_within == Some(0) {
            return error("pay_within", "at least 1 second; leave it out for no deadline".into());
        }
        if self.pay_within.is_some_and(|seconds| seconds > PAY_WITHIN_MAX) {
            return error(
                "pay_within",
                format!("at most {PAY_WITHIN_MAX} seconds; leave it out for no deadline"),
            );
        }
        if let (Some(opens), Some(closes)) = (self.opens_at, self.closes_at)
            && closes <= opens
        {
            return error("closes_at", format!("after `opens_at` ({opens}), not {closes}"));
        }
        Self::check_rate(&self.rate)
    }

    /// Buyers are let in one after the other and never leave, so places cannot limit them.
    pub(crate) fn check_rate(rate: &Limit) -> Result<(), SaleError> {
        if matches!(rate.algorithm(), Algorithm::Concurrency { .. }) {
            let what = format!("a rate such as `1000/s burst 1s wait 1s`, not places as in `{rate}`");
            return Err(SaleError { field: "rate", what });
        }
        Ok(())
    }
}

/// Where a sale stands, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SaleState {
    /// Created; its stock is not loaded.
    Draft,
    /// Its stock is loaded: it opens at its time, or by hand.
    Warm,
    /// Buyers are let in.
    Open,
    /// Held; nobody gets a path or an order.
    Paused {
        /// Why.
        reason: String,
        /// Where it goes on.
        #[serde(default)]
        from: PausedFrom,
        /// No operator paused it. The reason is for operators then: it may have exact stock,
        /// addresses of servers and a database's words in it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_automatic: bool,
    },
    /// Over.
    Closed,
}

/// What buyers are told of a sale that paused itself.
pub(crate) const CHECKED: &str = "it is being checked";

/// Where a sale stood when it was paused: going on must not open one before its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PausedFrom {
    /// Its stock was not loaded.
    Draft,
    /// It had not been opened by hand.
    Warm,
    /// It was open.
    #[default]
    Open,
}

impl SaleState {
    /// The same sale, paused by an operator.
    pub(crate) fn paused(&self, reason: String) -> Self {
        self.paused_as(reason, false)
    }

    fn paused_as(&self, reason: String, is_automatic: bool) -> Self {
        let from = match self {
            Self::Draft => PausedFrom::Draft,
            Self::Warm => PausedFrom::Warm,
            Self::Open | Self::Closed => PausedFrom::Open,
            Self::Paused { from, .. } => *from,
        };
        Self::Paused { reason, from, is_automatic }
    }

    /// The same sale, paused by itself, unless it is over: that is for good.
    pub(crate) fn held(&self, reason: &str) -> Self {
        match self {
            Self::Closed => Self::Closed,
            state => state.paused_as(reason.to_owned(), true),
        }
    }

    /// Why it is paused, as buyers are told.
    pub(crate) fn reason_for_buyers(&self) -> Option<&str> {
        match self {
            Self::Paused { is_automatic: true, .. } => Some(CHECKED),
            Self::Paused { reason, .. } => Some(reason),
            Self::Draft | Self::Warm | Self::Open | Self::Closed => None,
        }
    }

    /// With what its times have made of it by now. A draft has sold nothing, so its times can
    /// still be set right.
    pub(crate) fn at(&self, now: u64, sale: &Sale) -> Self {
        match Phase::at(now, sale, self) {
            _ if *self == Self::Draft => Self::Draft,
            Phase::Open => Self::Open,
            Phase::Closed => Self::Closed,
            Phase::NotOpenYet(_) | Phase::Paused(_) => self.clone(),
        }
    }

    /// What its times have made of it and is not stored yet. It is stored once it is so: a
    /// clock that is set back, or another schedule, must not take it back.
    pub(crate) fn due(&self, now: u64, sale: &Sale) -> Option<Change> {
        match self.at(now, sale) {
            next if next == *self => None,
            Self::Open => Some(Change::Open),
            Self::Closed => Some(Change::Close),
            Self::Draft | Self::Warm | Self::Paused { .. } => None,
        }
    }
}

impl PausedFrom {
    fn resumed(self) -> SaleState {
        match self {
            Self::Draft => SaleState::Draft,
            Self::Warm => SaleState::Warm,
            Self::Open => SaleState::Open,
        }
    }
}

impl fmt::Display for SaleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Draft => f.write_str("draft"),
            Self::Warm => f.write_str("warm"),
            Self::Open => f.write_str("open"),
            Self::Paused { reason, .. } => write!(f, "paused: {reason}"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

/// What an operator changes while it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// Loads the stock: from draft to warm.
    Warm,
    /// Opens by hand, whatever its time.
    Open,
    /// Holds it.
    Pause {
        /// Why.
        reason: String,
    },
    /// Goes on after a pause, where it stood.
    Resume,
    /// Ends it for good. Orders that are on their way are still written.
    Close,
    /// More units.
    AddStock {
        /// How many.
        units: u64,
    },
    /// Another rate, from the next request on.
    Rate {
        /// The new limit.
        limit: Limit,
    },
    /// Other times.
    Schedule {
        /// When it opens by itself.
        opens_at: Option<u64>,
        /// When it closes by itself.
        closes_at: Option<u64>,
    },
}

impl Change {
    /// What the sale and its state become, from where its times have brought it by now.
    ///
    /// # Errors
    /// A sentence for the operator, if the change does not fit.
    pub(crate) fn apply(&self, sale: &mut Sale, state: &mut SaleState, now: u64) -> Result<(), String> {
        use SaleState::{Closed, Draft, Open, Paused, Warm};
        let stands = state.at(now, sale);
        let next = match (self, &stands) {
            (Self::Close, _) if *state != Closed => Some(Closed),
            (_, Closed) => return Err("the sale is closed for good; create a new one".into()),
            (Self::Warm, Draft) => Some(Warm),
            (Self::Warm, _) => return Err(format!("its stock is loaded already: the sale is {stands}")),
            (Self::Open, Warm | Open) => Some(Open),
            (Self::Open, Draft) => return Err("its stock is not loaded; `warm` it first".into()),
            (Self::Open, Paused { .. }) => return Err("it is paused; `resume` it".into()),
            (Self::Pause { .. }, Draft) => return Err("it has not begun; there is nothing to pause".into()),
            (Self::Pause { reason }, state) => Some(state.paused(reason.clone())),
            (Self::Resume, Paused { from, .. }) => Some(from.resumed()),
            (Self::Resume, _) => return Err(format!("it is not paused: the sale is {stands}")),
            (Self::Close, _) => Some(Closed),
            (Self::AddStock { .. } | Self::Rate { .. } | Self::Schedule { .. }, _) => None,
        };
        let mut changed = sale.clone();
        match self {
            Self::AddStock { units: 0 } => return Err("`units`: at least 1".into()),
            Self::AddStock { units } => changed.total = changed.total.saturating_add(*units),
            Self::Rate { limit } => changed.rate = limit.clone(),
            Self::Schedule { opens_at, closes_at } => {
                (changed.opens_at, changed.closes_at) = (*opens_at, *closes_at);
            }
            _ => {}
        }
        changed.check().map_err(|error| error.to_string())?;
        let next = next.unwrap_or(stands);
        if let Some(closes) = changed.closes_at
            && next != Closed
            && next.at(now, &changed) == Closed
        {
            // A time in seconds, say. It would be closed for good.
            return Err(format!(
                "`closes_at`: {closes} has passed, it is {now} (milliseconds since 1970); `close` ends it now"
            ));
        }
        (*sale, *state) = (changed, next);
        Ok(())
    }
}

/// What a buyer meets at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Opens then, if it is known when.
    NotOpenYet(Option<u64>),
    Open,
    Paused(String),
    Closed,
}

impl Phase {
    pub(crate) fn at(now: u64, sale: &Sale, state: &SaleState) -> Self {
        if *state == SaleState::Closed || sale.closes_at.is_some_and(|closes| now >= closes) {
            return Self::Closed;
        }
        match state {
            SaleState::Draft => Self::NotOpenYet(sale.opens_at),
            SaleState::Warm => match sale.opens_at {
                Some(opens) if now >= opens => Self::Open,
                opens => Self::NotOpenYet(opens),
            },
            SaleState::Open => Self::Open,
            SaleState::Paused { .. } => {
                Self::Paused(state.reason_for_buyers().unwrap_or_default().to_owned())
            }
            SaleState::Closed => Self::Closed,
        }
    }

    /// What a buyer is told unless it is open.
    pub(crate) fn must_be_open(self) -> Result<(), Refusal> {
        match self {
            Self::Open => Ok(()),
            Self::NotOpenYet(opens_at) => Err(Refusal::NotOpenYet { opens_at }),
            Self::Paused(reason) => Err(Refusal::Paused { reason: reason.into() }),
            Self::Closed => Err(Refusal::Closed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sale() -> Sale {
        Sale::new("phone".parse().unwrap(), 100)
    }

    #[test]
    fn what_is_left_out_has_the_seeds_numbers() {
        let read: Sale = serde_json::from_str(r#"{"goods":"phone","total":100,"title":"phone"}"#).unwrap();
        assert_eq!(read, sale());
        assert_eq!(read.rate.to_string(), default_rate().to_string());
    }

    #[test]
    fn a_wrong_field_is_named() {
        let wrong = |change: fn(&mut Sale)| {
            let mut sale = sale();
            change(&mut sale);
            sale.check().unwrap_err().field
        };
        assert_eq!(wrong(|sale| sale.total = 0), "total");
        assert_eq!(wrong(|sale| sale.total = u64::MAX), "total");
        assert_eq!(wrong(|sale| sale.title = "a\u{1b}[2J".into()), "title");
        assert_eq!(wrong(|sale| sale.per_user = 0), "per_user");
        assert_eq!(wrong(|sale| sale.path_ttl = 0), "path_ttl");
        assert_eq!(wrong(|sale| sale.pay_within = Some(0)), "pay_within");
        // More than a column of the database holds: it was "busy, try again" for ever.
        assert_eq!(wrong(|sale| sale.pay_within = Some(1 << 31)), "pay_within");
        assert_eq!(wrong(|sale| sale.rate = "10 concurrent".parse().unwrap()), "rate");
        assert_eq!(wrong(|sale| (sale.opens_at, sale.closes_at) = (Some(2), Some(2))), "closes_at");
    }

    #[test]
    fn a_sale_goes_its_way_and_no_other() {
        let (mut sale, mut state) = (sale(), SaleState::Draft);
        let pause = Change::Pause { reason: "a look".into() };
        for (change, fits) in [
            (Change::Open, false),
            (pause.clone(), false),
            (Change::Warm, true),
            (Change::Warm, false),
            (Change::Resume, false),
            (Change::Open, true),
            (pause, true),
            (Change::Open, false),
            (Change::Resume, true),
            (Change::AddStock { units: 50 }, true),
            (Change::AddStock { units: u64::MAX }, false),
            (Change::AddStock { units: 0 }, false),
            (Change::Close, true),
            (Change::Open, false),
            (Change::AddStock { units: 1 }, false),
        ] {
            let before = (sale.clone(), state.clone());
            let done = change.apply(&mut sale, &mut state, 0);
            assert_eq!(done.is_ok(), fits, "{change:?} of {before:?}: {done:?}");
            assert!(fits || before == (sale.clone(), state.clone()), "what does not fit changes nothing");
        }
        assert_eq!((sale.total, state), (150, SaleState::Closed));
    }

    #[test]
    fn a_pause_opens_nothing_before_its_time() {
        let (mut sale, mut state) = (sale(), SaleState::Warm);
        sale.opens_at = Some(10);
        // Paused twice: the second must not forget what the first found.
        for reason in ["a look", "another"] {
            Change::Pause { reason: reason.into() }.apply(&mut sale, &mut state, 0).unwrap();
        }
        assert_eq!(Phase::at(15, &sale, &state), Phase::Paused("another".into()));
        Change::Resume.apply(&mut sale, &mut state, 0).unwrap();
        assert_eq!((Phase::at(9, &sale, &state), state), (Phase::NotOpenYet(Some(10)), SaleState::Warm));
        // As it was stored before it was remembered.
        let stored: SaleState = serde_json::from_str(r#"{"state":"paused","reason":"a look"}"#).unwrap();
        assert_eq!(stored, SaleState::Open.paused("a look".into()));
        // The books may pause what an operator may not.
        let held = SaleState::Open.held("12 left on redis:6379");
        assert_eq!(Phase::at(0, &sale, &held), Phase::Paused(CHECKED.into()), "buyers do not read it");
        assert_eq!(held.to_string(), "paused: 12 left on redis:6379", "operators do");
        let stored = serde_json::to_string(&held).unwrap();
        assert_eq!(serde_json::from_str::<SaleState>(&stored).unwrap(), held);
        let mut state = SaleState::Draft.paused("the books".into());
        Change::Resume.apply(&mut sale, &mut state, 0).unwrap();
        assert_eq!(state, SaleState::Draft);
    }

    #[test]
    fn a_warm_sale_opens_and_closes_by_itself() {
        let mut sale = sale();
        (sale.opens_at, sale.closes_at) = (Some(10), Some(20));
        let at = |now| Phase::at(now, &sale, &SaleState::Warm);
        assert_eq!(at(9), Phase::NotOpenYet(Some(10)));
        assert_eq!(at(10), Phase::Open);
        assert_eq!(at(20), Phase::Closed);
        assert_eq!(Phase::at(15, &sale, &SaleState::Draft), Phase::NotOpenYet(Some(10)));
        let told = |now, state: SaleState| state.at(now, &sale).to_string();
        assert_eq!([9, 10, 20].map(|now| told(now, SaleState::Warm)), ["warm", "open", "closed"]);
        assert_eq!(told(15, SaleState::Open.paused("a look".into())), "paused: a look");
        let due = |now, state: SaleState| state.due(now, &sale);
        assert_eq!(
            [9, 10, 20].map(|now| due(now, SaleState::Warm)),
            [None, Some(Change::Open), Some(Change::Close)]
        );
        assert_eq!([10, 20].map(|now| due(now, SaleState::Open)), [None, Some(Change::Close)]);
        assert_eq!(due(20, SaleState::Draft), None);
        assert_eq!(due(20, SaleState::Closed), None);
    }

    #[test]
    fn a_time_that_has_passed_closes_nothing_by_mistake() {
        let (mut sale, mut state) = (sale(), SaleState::Open);
        let schedule = |closes| Change::Schedule { opens_at: None, closes_at: Some(closes) };
        let why = schedule(1_767_229_200).apply(&mut sale, &mut state, 1_767_229_100_000).unwrap_err();
        assert!(why.contains("milliseconds"), "{why}");
        assert_eq!((sale.closes_at, &state), (None, &SaleState::Open));
        // A draft that was made with one can be set right.
        (sale.closes_at, state) = (Some(5), SaleState::Draft);
        Change::Warm.apply(&mut sale, &mut state, 10).unwrap_err();
        schedule(20).apply(&mut sale, &mut state, 10).unwrap();
        Change::Warm.apply(&mut sale, &mut state, 10).unwrap();
        assert_eq!(state, SaleState::Warm);
        Change::Close.apply(&mut sale, &mut state, 30).expect("by hand, before its time is stored");
    }
}

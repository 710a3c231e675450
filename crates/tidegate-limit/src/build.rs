//! The one place where a limit is checked, whether it came from text or from code.

use crate::duration::{LONGEST_US, show};
use crate::{Algorithm, Limit, LimitError};
use std::collections::BTreeMap;
use std::time::Duration;

const AMOUNT_MAX: u64 = 1_000_000_000_000;
/// Units a microsecond: a thousand million a second.
const RATE_MAX: u64 = 1_000;
/// A sliding log keeps an entry a start, so its length is memory that any caller can fill.
const LOG_MAX: u64 = 1_000_000;
const SLICES_MAX: u64 = 1_000;
pub(crate) const SLICES_DEFAULT: u64 = 10;
/// Entries of a log, or slices of a window, that can lie ahead when callers wait.
const AHEAD_MAX: u64 = 100_000;
const QUEUE_MAX: u64 = 1_000_000_000;

/// Collects the parts of a [`Limit`]; [`build`](Self::build) checks them together.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Limit;
///
/// let limit = Limit::per(5, Duration::from_secs(10)).sliding_log().build()?;
/// assert_eq!(limit.to_string(), "5 per 10s sliding-log");
///
/// let error = Limit::per_second(0).build().unwrap_err();
/// assert!(error.to_string().starts_with("a limit allows at least 1"));
/// # Ok::<(), tidegate::LimitError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct LimitBuilder {
    pub(crate) amount: u64,
    pub(crate) period: Duration,
    /// The algorithm that was named. Default: a token bucket.
    shape: Option<Shape>,
    /// Why another one cannot stand beside it.
    pub(crate) clash: Option<LimitError>,
    options: BTreeMap<Part, Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    TokenBucket,
    Ticked,
    Leaky,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    Concurrency,
}

/// A part of a limit that can be wrong: the parser knows where it stood in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Amount,
    Period,
    Shape,
    Burst,
    Wait,
    Warmup,
    Cap,
    Queue,
    Capacity,
    Slices,
    Offset,
}

/// What follows the word of an option.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    Units(u64),
    /// Whether it is whole microseconds, `build` says.
    Time(Duration),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    Units,
    Time,
    UnitsOrTime,
}

/// What is known of a part: its word, what follows it, what has it, and a limit with it.
pub(crate) struct About {
    pub(crate) word: &'static str,
    pub(crate) takes: Takes,
    shapes: &'static [Shape],
    pub(crate) example: &'static str,
}

impl Part {
    /// Those that are a word and a value.
    pub(crate) const OPTIONS: [Self; 8] = {
        use Part::{Burst, Cap, Capacity, Offset, Queue, Slices, Wait, Warmup};
        [Burst, Wait, Warmup, Cap, Queue, Capacity, Slices, Offset]
    };

    pub(crate) fn about(self) -> About {
        use Shape::{Concurrency, FixedWindow, Leaky, SlidingLog, SlidingWindow, Ticked, TokenBucket};
        use Takes::{Time, Units, UnitsOrTime};
        let all_but_leaky = &[TokenBucket, Ticked, FixedWindow, SlidingWindow, SlidingLog, Concurrency];
        let (word, takes, shapes, example): (_, _, &[Shape], _) = match self {
            Self::Amount => ("amount", Units, &[], "1000/s"),
            Self::Period => ("period", Time, &[], "5 per 10s"),
            Self::Shape => ("algorithm", Units, &[], "5 per 10s sliding-log"),
            Self::Burst => ("burst", UnitsOrTime, &[TokenBucket], "1000/s burst 20"),
            Self::Wait => ("wait", Time, all_but_leaky, "1000/s wait 500ms"),
            Self::Warmup => ("warmup", Time, &[TokenBucket], "100/s warmup 30s"),
            Self::Cap => ("cap", Units, &[Ticked], "20 every 1s cap 100"),
            Self::Queue => ("queue", Units, &[Leaky, Concurrency], "leaky 50/s queue 100"),
            Self::Capacity => ("capacity", Units, &[Leaky], "leaky 50/s capacity 100"),
            Self::Slices => ("slices", Units, &[SlidingWindow], "5 per 10s sliding-window slices 20"),
            Self::Offset => ("offset", Time, &[FixedWindow, Ticked], "100/day fixed-window offset 8h"),
        };
        About { word, takes, shapes, example }
    }
}

type Checked<T> = Result<T, (Part, LimitError)>;

fn wrong<T>(part: Part, what: impl Into<String>) -> Checked<T> {
    wrong_unlike(part, what, part.about().example)
}

/// The same, where another example shows better what to write.
fn wrong_unlike<T>(part: Part, what: impl Into<String>, example: &'static str) -> Checked<T> {
    Err((part, LimitError::new(what, example)))
}

impl LimitBuilder {
    pub(crate) fn new(amount: u64, period: Duration, shape: Option<Shape>) -> Self {
        Self { amount, period, shape, clash: None, options: BTreeMap::new() }
    }

    /// Units that may start at once. Default: the amount.
    pub fn burst(self, units: u64) -> Self {
        self.with(Part::Burst, Value::Units(units))
    }

    /// As many units at once as flow in `duration`, rounded down.
    pub fn burst_for(self, duration: Duration) -> Self {
        self.with(Part::Burst, Value::Time(duration))
    }

    /// The longest wait for a start. Default: none, so a call starts at once or is denied.
    pub fn wait(self, longest: Duration) -> Self {
        self.with(Part::Wait, Value::Time(longest))
    }

    /// Starts cold, at a third of the rate, and is warm after `period` of steady calls.
    pub fn warmup(self, period: Duration) -> Self {
        self.with(Part::Warmup, Value::Time(period))
    }

    /// Units that a ticked bucket can save up. Default: the amount.
    pub fn cap(self, units: u64) -> Self {
        self.with(Part::Cap, Value::Units(units))
    }

    /// A leaky bucket; say [`capacity`](Self::capacity) or [`queue`](Self::queue) too.
    pub fn leaky(self) -> Self {
        self.shape(Shape::Leaky)
    }

    /// Units that a leaky bucket holds before it refuses.
    pub fn capacity(self, units: u64) -> Self {
        self.with(Part::Capacity, Value::Units(units))
    }

    /// Units (leaky bucket) or calls (concurrency) that may wait.
    pub fn queue(self, longest: u64) -> Self {
        self.with(Part::Queue, Value::Units(longest))
    }

    /// One counter that starts anew at each multiple of the period since 1970-01-01 00:00
    /// UTC; whole weeks start on Monday.
    pub fn fixed_window(self) -> Self {
        self.shape(Shape::FixedWindow)
    }

    /// Counts in slices that slide along. Default: ten slices.
    pub fn sliding_window(self) -> Self {
        self.shape(Shape::SlidingWindow)
    }

    /// Slices of a sliding window.
    pub fn slices(self, slices: u64) -> Self {
        self.with(Part::Slices, Value::Units(slices))
    }

    /// Every start is remembered for one period.
    pub fn sliding_log(self) -> Self {
        self.shape(Shape::SlidingLog)
    }

    /// Windows and ticks begin this much later than at the multiples of their period:
    /// less than the period, and only for fixed windows and ticked refill.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// // Days that begin at 08:00 UTC.
    /// let limit = Limit::per(100, Duration::from_secs(24 * 60 * 60))
    ///     .fixed_window()
    ///     .offset(Duration::from_secs(8 * 60 * 60))
    ///     .build()?;
    /// assert_eq!(limit.to_string(), "100/day fixed-window offset 8h");
    /// # Ok::<(), tidegate::LimitError>(())
    /// ```
    pub fn offset(self, later: Duration) -> Self {
        self.with(Part::Offset, Value::Time(later))
    }

    pub(crate) fn with(mut self, option: Part, value: Value) -> Self {
        self.options.insert(option, value);
        self
    }

    pub(crate) fn shape(mut self, shape: Shape) -> Self {
        use Shape::{Ticked, TokenBucket};
        match (self.shape, shape) {
            // A ticked bucket is a token bucket, and may be called one.
            (None, _) | (Some(TokenBucket), Ticked) => self.shape = Some(shape),
            (Some(Ticked), TokenBucket) => {}
            (Some(named), _) if named == shape => {}
            (Some(named), _) => _ = self.clash.get_or_insert_with(|| named.clash(shape)),
        }
        self
    }

    /// Checks all parts together.
    ///
    /// # Errors
    /// Says what is wrong and shows a limit that is right.
    pub fn build(self) -> Result<Limit, LimitError> {
        self.checked().map_err(|(_, error)| error)
    }

    pub(crate) fn checked(self) -> Checked<Limit> {
        if let Some(error) = self.clash {
            return Err((Part::Shape, error));
        }
        let (amount, shape) = (self.amount, self.shape.unwrap_or(Shape::TokenBucket));
        self.check_options(shape)?;
        match amount {
            0 => wrong(Part::Amount, "a limit allows at least 1 (to refuse everything, leave the call out)")?,
            n if n > AMOUNT_MAX => {
                let what = format!("{n} is more than 1,000,000,000,000 units");
                wrong_unlike(Part::Amount, what, "10000000/s")?;
            }
            _ => {}
        }
        let wait_us = self.us(Part::Wait)?;
        let period_us = if shape == Shape::Concurrency { 0 } else { self.checked_period()? };
        let algorithm = self.algorithm(shape, period_us, wait_us)?;
        let offset_us = self.us(Part::Offset)?;
        if offset_us > 0 && offset_us >= period_us {
            let (offset, period) = (show(offset_us), show(period_us));
            let what = format!("an `offset` of {offset} is not less than the period of {period}");
            return wrong(Part::Offset, what);
        }
        let limit = Limit { amount, period_us, wait_us, offset_us, algorithm };
        drains_in_time(&limit)?;
        Ok(limit)
    }

    fn checked_period(&self) -> Checked<u64> {
        let (amount, period_us) = (self.amount, whole(Part::Period, self.period)?);
        if period_us == 0 {
            return wrong(Part::Period, "a period lasts at least 1us");
        }
        if amount > RATE_MAX.saturating_mul(period_us) {
            let what = format!("{amount} in {} is more than 1,000,000,000 a second", show(period_us));
            return wrong_unlike(Part::Amount, what, "10000000/s");
        }
        Ok(period_us)
    }

    fn check_options(&self, shape: Shape) -> Checked<()> {
        for option in self.options.keys() {
            let About { word, shapes, example, .. } = option.about();
            if !shapes.contains(&shape) {
                // What waits in a leaky bucket is its queue.
                let example = if *option == Part::Wait { Part::Queue.about().example } else { example };
                let what = format!("`{word}` does not go with {}", shape.about().1);
                return wrong_unlike(*option, what, example);
            }
        }
        if self.options.contains_key(&Part::Warmup) && self.options.contains_key(&Part::Burst) {
            let what = "`burst` does not go with `warmup`: a cold bucket has none";
            return wrong_unlike(Part::Burst, what, Part::Warmup.about().example);
        }
        Ok(())
    }

    fn algorithm(&self, shape: Shape, period_us: u64, wait_us: u64) -> Checked<Algorithm> {
        let amount = self.amount;
        match shape {
            Shape::TokenBucket if self.options.contains_key(&Part::Warmup) => self.warm_up(),
            Shape::TokenBucket => self.token_bucket(period_us),
            Shape::Ticked => Ok(Algorithm::Ticked { cap: self.units(Part::Cap)?.unwrap_or(amount) }),
            Shape::Leaky => self.leaky_bucket(),
            Shape::FixedWindow => Ok(Algorithm::FixedWindow),
            Shape::SlidingWindow => self.sliding(period_us),
            Shape::SlidingLog if amount > LOG_MAX => {
                let what =
                    format!("a sliding log keeps {amount} entries a key, at most {LOG_MAX} are allowed");
                wrong_unlike(Part::Amount, what, "5000000 per 1h sliding-window")
            }
            Shape::SlidingLog => Ok(Algorithm::SlidingLog),
            Shape::Concurrency => self.concurrency(wait_us),
        }
    }

    fn token_bucket(&self, period_us: u64) -> Checked<Algorithm> {
        let burst = match self.options.get(&Part::Burst) {
            Some(Value::Time(_)) => {
                let us = self.us(Part::Burst)?;
                let flow = u128::from(self.amount) * u128::from(us) / u128::from(period_us);
                if flow == 0 {
                    let what = format!("less than one unit flows in a burst of {}", show(us));
                    return wrong(Part::Burst, what);
                }
                units(Part::Burst, u64::try_from(flow).unwrap_or(u64::MAX))?
            }
            _ => self.units(Part::Burst)?.unwrap_or(self.amount),
        };
        Ok(Algorithm::TokenBucket { burst })
    }

    fn warm_up(&self) -> Checked<Algorithm> {
        let (amount, us) = (self.amount, self.us(Part::Warmup)?);
        if us == 0 {
            return wrong(Part::Warmup, "a warm-up lasts at least 1us");
        }
        // Its price is an area, the square of this, and must fit 128 bits.
        if us.checked_mul(amount).is_none_or(|ticks| ticks > 1 << 62) {
            let what = format!("a warm-up of {} is too long for an amount of {amount}", show(us));
            return wrong(Part::Warmup, what);
        }
        Ok(Algorithm::WarmUp { warmup: Duration::from_micros(us) })
    }

    fn leaky_bucket(&self) -> Checked<Algorithm> {
        match (self.units(Part::Capacity)?, self.units(Part::Queue)?) {
            (Some(capacity), None) => Ok(Algorithm::LeakyBucket { capacity }),
            (None, Some(queue)) => Ok(Algorithm::LeakyQueue { queue }),
            (None, None) => {
                let what = "a `leaky` bucket needs `capacity` (what is over is refused) or `queue` (what is over \
                            waits)";
                wrong_unlike(Part::Shape, what, Part::Queue.about().example)
            }
            (Some(_), Some(_)) => wrong(Part::Queue, "a leaky bucket has `capacity` or `queue`, not both"),
        }
    }

    fn sliding(&self, period_us: u64) -> Checked<Algorithm> {
        let slices = self.number(Part::Slices).unwrap_or(SLICES_DEFAULT.min(period_us));
        if slices == 0 || slices > SLICES_MAX.min(period_us) {
            let what = format!("a sliding window has 1 to {SLICES_MAX} slices of at least 1us, not {slices}");
            return wrong(Part::Slices, what);
        }
        Ok(Algorithm::SlidingWindow { slices })
    }

    fn concurrency(&self, wait_us: u64) -> Checked<Algorithm> {
        let wrong = |part, what: &str| wrong_unlike(part, what, Shape::Concurrency.about().2);
        match (self.number(Part::Queue).unwrap_or(0), wait_us) {
            (0, 1..) => wrong(Part::Wait, "a `wait` for a slot needs a bounded `queue`"),
            (1.., 0) => wrong(Part::Queue, "a `queue` needs the longest `wait` in it"),
            (queue, _) if queue > QUEUE_MAX => {
                wrong(Part::Queue, &format!("a queue of {queue} is longer than {QUEUE_MAX}"))
            }
            (queue, _) => Ok(Algorithm::Concurrency { queue }),
        }
    }

    fn number(&self, option: Part) -> Option<u64> {
        match self.options.get(&option)? {
            Value::Units(n) => Some(*n),
            Value::Time(_) => None,
        }
    }

    fn units(&self, option: Part) -> Checked<Option<u64>> {
        self.number(option).map(|n| units(option, n)).transpose()
    }

    /// 0 if it is not given.
    fn us(&self, option: Part) -> Checked<u64> {
        match self.options.get(&option) {
            Some(Value::Time(time)) => whole(option, *time),
            _ => Ok(0),
        }
    }
}

/// A full key must be usable again within ten years, or a state could outlive
/// the clock that it is kept by; and what lies ahead of now is memory, too.
fn drains_in_time(limit: &Limit) -> Checked<()> {
    let (amount, period) = (u128::from(limit.amount), u128::from(limit.period_us));
    let wait = u128::from(limit.wait_us);
    // Whole ticks, and in the word they have room for twice as long.
    let stepped = |units: u64| period * (u128::from(units).div_ceil(amount) + wait.div_ceil(period)) / 2;
    let smooth = |units: u64| u128::from(units) * period / amount + wait;
    let (part, units, us) = match limit.algorithm {
        Algorithm::TokenBucket { burst } => (Part::Burst, burst, smooth(burst)),
        Algorithm::LeakyBucket { capacity } => (Part::Capacity, capacity, smooth(capacity)),
        Algorithm::LeakyQueue { queue } => (Part::Queue, queue + 1, smooth(queue + 1)),
        Algorithm::Ticked { cap } => (Part::Cap, cap, stepped(cap)),
        Algorithm::FixedWindow => (Part::Period, limit.amount, stepped(limit.amount)),
        Algorithm::SlidingLog => return ahead(limit, amount * wait.div_ceil(period)),
        Algorithm::SlidingWindow { slices } => {
            return ahead(limit, wait.div_ceil(period.div_ceil(u128::from(slices))));
        }
        Algorithm::WarmUp { .. } | Algorithm::Concurrency { .. } => return Ok(()),
    };
    if us > u128::from(LONGEST_US) {
        // What lasts longer is what has to become less.
        let (part, waited) = match us.saturating_sub(wait) {
            drain if wait > drain => (Part::Wait, format!(" after a wait of {}", show(limit.wait_us))),
            _ => (part, String::new()),
        };
        let what = format!(
            "a full key of {units}, of which {amount} drain in {}, takes more than ten years{waited}",
            show(limit.period_us)
        );
        return wrong(part, what);
    }
    Ok(())
}

fn ahead(limit: &Limit, entries: u128) -> Checked<()> {
    if entries > u128::from(AHEAD_MAX) {
        let what = format!(
            "a wait of {} keeps up to {entries} entries ahead, at most {AHEAD_MAX} are allowed",
            show(limit.wait_us)
        );
        return wrong_unlike(Part::Wait, what, "1000 per 1s sliding-log wait 5s");
    }
    Ok(())
}

impl Shape {
    /// Its word in the grammar, its name in a sentence, and a limit of this kind.
    fn about(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::TokenBucket => ("token-bucket", "a token bucket", "1000/s burst 20"),
            Self::Ticked => ("every", "a ticked bucket (`every`)", "20 every 1s cap 100"),
            Self::Leaky => ("leaky", "a leaky bucket", "leaky 20/s capacity 100"),
            Self::FixedWindow => ("fixed-window", "a fixed window", "20 per 1s fixed-window"),
            Self::SlidingWindow => ("sliding-window", "a sliding window", "20 per 1s sliding-window"),
            Self::SlidingLog => ("sliding-log", "a sliding log", "20 per 1s sliding-log"),
            Self::Concurrency => ("concurrent", "a concurrency limit", "10 concurrent queue 50 wait 2s"),
        }
    }

    pub(crate) fn word(self) -> &'static str {
        self.about().0
    }

    /// Why `other` cannot stand beside this one, and what to write instead.
    fn clash(self, other: Self) -> LimitError {
        let (why, instead) = match (self, other) {
            (Self::Concurrency, _) | (_, Self::Concurrency) => {
                ("what runs at once has no rate", Self::Concurrency)
            }
            (Self::Ticked, window) | (window, Self::Ticked) => {
                ("`every` refills a bucket in ticks, other kinds have an amount `per` period", window)
            }
            _ => ("a limit has one algorithm", other),
        };
        let (word, beside, (_, _, example)) = (other.word(), self.word(), instead.about());
        LimitError::new(format!("`{word}` does not go with `{beside}`: {why}"), example)
    }
}

fn whole(part: Part, time: Duration) -> Checked<u64> {
    match u64::try_from(time.as_micros()) {
        Ok(us) if us <= LONGEST_US && time.subsec_nanos().is_multiple_of(1_000) => Ok(us),
        _ => {
            let name = part.about().word;
            wrong(part, format!("a {name} of {time:?} is not a whole number of microseconds up to ten years"))
        }
    }
}

fn units(part: Part, n: u64) -> Checked<u64> {
    if n == 0 || n > AMOUNT_MAX {
        let name = part.about().word;
        return wrong(part, format!("`{name}` is 1 to 1,000,000,000,000 units, not {n}"));
    }
    Ok(n)
}

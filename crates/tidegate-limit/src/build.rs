//! The one place where a limit is checked, whether it came from text or from code.

use crate::duration::{LONGEST_US, show};
use crate::{Algorithm, Limit, LimitError};
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
    amount: u64,
    period: Span,
    shape: Shape,
    burst: Option<Burst>,
    wait: Option<Span>,
    warmup: Option<Span>,
    cap: Option<u64>,
    queue: Option<u64>,
    capacity: Option<u64>,
    slices: Option<u64>,
    offset: Option<Span>,
    /// The algorithm that was chosen by name, and the first other one beside it.
    named: Option<Shape>,
    clash: Option<(Shape, Shape)>,
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

#[derive(Clone, Copy, Debug)]
enum Burst {
    Units(u64),
    For(Span),
}

/// Whole microseconds, or what does not fit them, kept until `build` can say so.
#[derive(Clone, Copy, Debug)]
enum Span {
    Us(u64),
    Unfit(Duration),
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        match u64::try_from(duration.as_micros()) {
            Ok(us) if us <= LONGEST_US && duration.subsec_nanos().is_multiple_of(1_000) => Self::Us(us),
            _ => Self::Unfit(duration),
        }
    }
}

/// A part of a limit that can be wrong: the parser knows where it stood in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

type Checked<T> = Result<T, (Part, LimitError)>;

fn wrong<T>(part: Part, what: impl Into<String>, example: &'static str) -> Checked<T> {
    Err((part, LimitError::new(what, example)))
}

impl LimitBuilder {
    pub(crate) fn per(amount: u64, period: Duration) -> Self {
        Self::new(amount, period.into(), Shape::TokenBucket)
    }

    pub(crate) fn every(amount: u64, tick: Duration) -> Self {
        Self::new(amount, tick.into(), Shape::Ticked)
    }

    pub(crate) fn concurrent(amount: u64) -> Self {
        Self::new(amount, Span::Us(0), Shape::Concurrency)
    }

    fn new(amount: u64, period: Span, shape: Shape) -> Self {
        Self {
            amount,
            period,
            shape,
            burst: None,
            wait: None,
            warmup: None,
            cap: None,
            queue: None,
            capacity: None,
            slices: None,
            offset: None,
            named: (shape != Shape::TokenBucket).then_some(shape),
            clash: None,
        }
    }

    /// Units that may start at once. Default: the amount.
    pub fn burst(mut self, units: u64) -> Self {
        self.burst = Some(Burst::Units(units));
        self
    }

    /// As many units at once as flow in `duration`, rounded down.
    pub fn burst_for(mut self, duration: Duration) -> Self {
        self.burst = Some(Burst::For(duration.into()));
        self
    }

    /// The longest wait for a start. Default: none, so a call starts at once or is denied.
    pub fn wait(mut self, longest: Duration) -> Self {
        self.wait = Some(longest.into());
        self
    }

    /// Starts cold, at a third of the rate, and is warm after `period` of steady calls.
    pub fn warmup(mut self, period: Duration) -> Self {
        self.warmup = Some(period.into());
        self
    }

    /// Units that a ticked bucket can save up. Default: the amount.
    pub fn cap(mut self, units: u64) -> Self {
        self.cap = Some(units);
        self
    }

    /// A leaky bucket; say [`capacity`](Self::capacity) or [`queue`](Self::queue) too.
    pub fn leaky(self) -> Self {
        self.shape(Shape::Leaky)
    }

    /// Units that a leaky bucket holds before it refuses.
    pub fn capacity(mut self, units: u64) -> Self {
        self.capacity = Some(units);
        self
    }

    /// Units (leaky bucket) or calls (concurrency) that may wait.
    pub fn queue(mut self, longest: u64) -> Self {
        self.queue = Some(longest);
        self
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
    pub fn slices(mut self, slices: u64) -> Self {
        self.slices = Some(slices);
        self
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
    pub fn offset(mut self, later: Duration) -> Self {
        self.offset = Some(later.into());
        self
    }

    /// The algorithm by its word. A ticked bucket is a token bucket, and may be called one.
    pub(crate) fn named(self, shape: Shape) -> Self {
        match (self.named, shape) {
            (Some(Shape::Ticked), Shape::TokenBucket) => self,
            _ => self.shape(shape),
        }
    }

    fn shape(mut self, shape: Shape) -> Self {
        match self.named {
            Some(named) if named != shape => _ = self.clash.get_or_insert((named, shape)),
            _ => (self.shape, self.named) = (shape, Some(shape)),
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
        if let Some((one, other)) = self.clash {
            return Err((Part::Shape, one.clash(other)));
        }
        self.parts_belong_to_the_shape()?;
        let amount = self.checked_amount()?;
        let wait_us = match self.wait {
            None => 0,
            Some(span) => whole(Part::Wait, "wait", span, "1000/s wait 500ms")?,
        };
        if self.shape == Shape::Concurrency {
            let algorithm = self.concurrency(wait_us)?;
            return Ok(Limit { amount, period_us: 0, wait_us, offset_us: 0, algorithm });
        }
        let period_us = whole(Part::Period, "period", self.period, "5 per 10s")?;
        if period_us == 0 {
            return wrong(Part::Period, "a period lasts at least 1us", "5 per 10s");
        }
        if amount > RATE_MAX.saturating_mul(period_us) {
            return wrong(
                Part::Amount,
                format!("{amount} in {} is more than 1,000,000,000 a second", show(period_us)),
                "10000000/s",
            );
        }
        let algorithm = self.algorithm(amount, period_us)?;
        let offset_us = self.checked_offset(period_us)?;
        let limit = Limit { amount, period_us, wait_us, offset_us, algorithm };
        self.drains_in_time(&limit)?;
        Ok(limit)
    }

    fn checked_amount(&self) -> Checked<u64> {
        match self.amount {
            0 => wrong(
                Part::Amount,
                "a limit allows at least 1 (to refuse everything, leave the call out)",
                "1000/s",
            ),
            n if n > AMOUNT_MAX => {
                wrong(Part::Amount, format!("{n} is more than 1,000,000,000,000 units"), "10000000/s")
            }
            n => Ok(n),
        }
    }

    fn checked_offset(&self, period_us: u64) -> Checked<u64> {
        let example = "100/day fixed-window offset 8h";
        match self.offset {
            None => Ok(0),
            Some(span) => match whole(Part::Offset, "offset", span, example)? {
                us if us < period_us => Ok(us),
                us => {
                    let what = format!(
                        "an `offset` of {} is not less than the period of {}",
                        show(us),
                        show(period_us)
                    );
                    wrong(Part::Offset, what, example)
                }
            },
        }
    }

    fn parts_belong_to_the_shape(&self) -> Checked<()> {
        use Shape::{Concurrency, FixedWindow, Leaky, SlidingLog, SlidingWindow, Ticked, TokenBucket};
        let given = [
            (self.burst.is_some(), Part::Burst, "burst", &[TokenBucket][..], "100/min burst 20"),
            (self.warmup.is_some(), Part::Warmup, "warmup", &[TokenBucket], "100/s warmup 30s"),
            (self.cap.is_some(), Part::Cap, "cap", &[Ticked], "20 every 1s cap 100"),
            (self.capacity.is_some(), Part::Capacity, "capacity", &[Leaky], "leaky 50/s capacity 100"),
            (self.queue.is_some(), Part::Queue, "queue", &[Leaky, Concurrency], "leaky 50/s queue 100"),
            (
                self.slices.is_some(),
                Part::Slices,
                "slices",
                &[SlidingWindow],
                "5 per 10s sliding-window slices 20",
            ),
            (
                self.wait.is_some(),
                Part::Wait,
                "wait",
                &[TokenBucket, Ticked, FixedWindow, SlidingWindow, SlidingLog, Concurrency],
                "leaky 50/s queue 100",
            ),
            (
                self.offset.is_some(),
                Part::Offset,
                "offset",
                &[FixedWindow, Ticked],
                "100/day fixed-window offset 8h",
            ),
        ];
        for (is_given, part, name, shapes, example) in given {
            if is_given && !shapes.contains(&self.shape) {
                return wrong(part, format!("`{name}` does not go with {}", self.shape.name()), example);
            }
        }
        if self.warmup.is_some() && self.burst.is_some() {
            return wrong(
                Part::Burst,
                "`burst` does not go with `warmup`: a cold bucket has none",
                "100/s warmup 30s",
            );
        }
        Ok(())
    }

    fn algorithm(&self, amount: u64, period_us: u64) -> Checked<Algorithm> {
        match self.shape {
            Shape::TokenBucket => match self.warmup {
                Some(span) => self.warm_up(span, amount),
                None => self.token_bucket(amount, period_us),
            },
            Shape::Ticked => {
                let cap = units(Part::Cap, "cap", self.cap.unwrap_or(amount), "20 every 1s cap 100")?;
                Ok(Algorithm::Ticked { cap })
            }
            Shape::Leaky => self.leaky_bucket(),
            Shape::FixedWindow => Ok(Algorithm::FixedWindow),
            Shape::SlidingWindow => self.sliding(period_us),
            Shape::SlidingLog if amount > LOG_MAX => wrong(
                Part::Amount,
                format!("a sliding log keeps {amount} entries a key, at most {LOG_MAX} are allowed"),
                "5000000 per 1h sliding-window",
            ),
            Shape::SlidingLog => Ok(Algorithm::SlidingLog),
            Shape::Concurrency => self.concurrency(0),
        }
    }

    fn token_bucket(&self, amount: u64, period_us: u64) -> Checked<Algorithm> {
        let example = "100/min burst 20";
        let burst = match self.burst {
            None => amount,
            Some(Burst::Units(n)) => units(Part::Burst, "burst", n, example)?,
            Some(Burst::For(span)) => {
                let us = whole(Part::Burst, "burst", span, example)?;
                let flow = u128::from(amount) * u128::from(us) / u128::from(period_us);
                let flow = u64::try_from(flow).unwrap_or(u64::MAX);
                if flow == 0 {
                    let what = format!("less than one unit flows in a burst of {}", show(us));
                    return wrong(Part::Burst, what, example);
                }
                units(Part::Burst, "burst", flow, example)?
            }
        };
        Ok(Algorithm::TokenBucket { burst })
    }

    fn warm_up(&self, span: Span, amount: u64) -> Checked<Algorithm> {
        let us = whole(Part::Warmup, "warmup", span, "100/s warmup 30s")?;
        if us == 0 {
            return wrong(Part::Warmup, "a warm-up lasts at least 1us", "100/s warmup 30s");
        }
        // Its price is an area, the square of this, and must fit 128 bits.
        if us.checked_mul(amount).is_none_or(|ticks| ticks > 1 << 62) {
            let what = format!("a warm-up of {} is too long for an amount of {amount}", show(us));
            return wrong(Part::Warmup, what, "100/s warmup 30s");
        }
        Ok(Algorithm::WarmUp { warmup: Duration::from_micros(us) })
    }

    fn leaky_bucket(&self) -> Checked<Algorithm> {
        match (self.capacity, self.queue) {
            (Some(n), None) => {
                let capacity = units(Part::Capacity, "capacity", n, "leaky 50/s capacity 100")?;
                Ok(Algorithm::LeakyBucket { capacity })
            }
            (None, Some(n)) => {
                let queue = units(Part::Queue, "queue", n, "leaky 50/s queue 100")?;
                Ok(Algorithm::LeakyQueue { queue })
            }
            (None, None) => wrong(
                Part::Shape,
                "a `leaky` bucket needs `capacity` (what is over is refused) or `queue` (what is over waits)",
                "leaky 50/s queue 100",
            ),
            (Some(_), Some(_)) => wrong(
                Part::Queue,
                "a leaky bucket has `capacity` or `queue`, not both",
                "leaky 50/s queue 100",
            ),
        }
    }

    fn sliding(&self, period_us: u64) -> Checked<Algorithm> {
        let slices = self.slices.unwrap_or(SLICES_DEFAULT.min(period_us));
        if slices == 0 || slices > SLICES_MAX || slices > period_us {
            return wrong(
                Part::Slices,
                format!("a sliding window has 1 to {SLICES_MAX} slices of at least 1us, not {slices}"),
                "5 per 10s sliding-window slices 20",
            );
        }
        Ok(Algorithm::SlidingWindow { slices })
    }

    fn concurrency(&self, wait_us: u64) -> Checked<Algorithm> {
        let example = "10 concurrent queue 50 wait 2s";
        match (self.queue.unwrap_or(0), wait_us) {
            (0, 0) => Ok(Algorithm::Concurrency { queue: 0 }),
            (0, _) => wrong(Part::Wait, "a `wait` for a slot needs a bounded `queue`", example),
            (_, 0) => wrong(Part::Queue, "a `queue` needs the longest `wait` in it", example),
            (n, _) if n > QUEUE_MAX => {
                wrong(Part::Queue, format!("a queue of {n} is longer than {QUEUE_MAX}"), example)
            }
            (queue, _) => Ok(Algorithm::Concurrency { queue }),
        }
    }

    /// A full key must be usable again within ten years, or a state could outlive
    /// the clock that it is kept by; and what lies ahead of now is memory, too.
    fn drains_in_time(&self, limit: &Limit) -> Checked<()> {
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
            // A warm-up is bounded by its price, and slots do not drain.
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
            return wrong(part, what, "100/min burst 20");
        }
        Ok(())
    }
}

fn ahead(limit: &Limit, entries: u128) -> Checked<()> {
    if entries > u128::from(AHEAD_MAX) {
        let what = format!(
            "a wait of {} keeps up to {entries} entries ahead, at most {AHEAD_MAX} are allowed",
            show(limit.wait_us)
        );
        return wrong(Part::Wait, what, "1000 per 1s sliding-log wait 5s");
    }
    Ok(())
}

impl Shape {
    /// The word of the grammar.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::TokenBucket => "token-bucket",
            Self::Ticked => "every",
            Self::Leaky => "leaky",
            Self::FixedWindow => "fixed-window",
            Self::SlidingWindow => "sliding-window",
            Self::SlidingLog => "sliding-log",
            Self::Concurrency => "concurrent",
        }
    }

    /// Why `other` cannot stand beside this one, and what to write instead.
    pub(crate) fn clash(self, other: Self) -> LimitError {
        let (word, beside) = (other.word(), self.word());
        let (why, example) = match (self, other) {
            (Self::Concurrency, _) | (_, Self::Concurrency) => {
                ("what runs at once has no rate", "10 concurrent queue 50 wait 2s")
            }
            (Self::Ticked, window) | (window, Self::Ticked) => (
                "`every` refills a bucket in ticks, other kinds have an amount `per` period",
                match window {
                    Self::Leaky => "leaky 20/s capacity 100",
                    Self::FixedWindow => "20 per 1s fixed-window",
                    Self::SlidingWindow => "20 per 1s sliding-window",
                    Self::SlidingLog => "20 per 1s sliding-log",
                    Self::TokenBucket | Self::Ticked | Self::Concurrency => "20 every 1s cap 100",
                },
            ),
            _ => ("a limit has one algorithm", "5 per 10s sliding-log"),
        };
        LimitError::new(format!("`{word}` does not go with `{beside}`: {why}"), example)
    }

    fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "a token bucket",
            Self::Ticked => "a ticked bucket (`every`)",
            Self::Leaky => "a leaky bucket",
            Self::FixedWindow => "a fixed window",
            Self::SlidingWindow => "a sliding window",
            Self::SlidingLog => "a sliding log",
            Self::Concurrency => "a concurrency limit",
        }
    }
}

fn whole(part: Part, name: &str, span: Span, example: &'static str) -> Checked<u64> {
    match span {
        Span::Us(us) => Ok(us),
        Span::Unfit(duration) => wrong(
            part,
            format!("a {name} of {duration:?} is not a whole number of microseconds up to ten years"),
            example,
        ),
    }
}

fn units(part: Part, name: &str, n: u64, example: &'static str) -> Checked<u64> {
    if n == 0 || n > AMOUNT_MAX {
        return wrong(part, format!("`{name}` is 1 to 1,000,000,000,000 units, not {n}"), example);
    }
    Ok(n)
}

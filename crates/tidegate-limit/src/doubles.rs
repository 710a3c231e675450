//! Which limits a store can hold exactly that computes in 64-bit floating point.
//!
//! Redis's Lua has no integers: beyond 2⁵² it rounds. A limit that would need more is
//! refused for such a store, with the nearest that fits, instead of being counted
//! nearly right.

use crate::{Algorithm, Limit, LimitError};

const EXACT: u128 = 1 << 52;
/// Amounts that are tried on either side before only round ones are.
const STEPS: u64 = 1_000;

impl Limit {
    /// Checks that every number of this limit stays exact in 64-bit floating point,
    /// as in Redis's Lua. The memory store has no such bound.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// let limit: Limit = "1234567/day burst 100000".parse()?;
    /// let error = limit.exact_in_doubles().unwrap_err();
    /// assert!(error.to_string().contains("nearest that fits is `1234566/day burst 100000`"), "{error}");
    /// # Ok::<(), tidegate::LimitError>(())
    /// ```
    ///
    /// # Errors
    /// Names the nearest limit that fits.
    pub fn exact_in_doubles(&self) -> Result<(), LimitError> {
        if self.most() < EXACT {
            return Ok(());
        }
        let nearest = self
            .nearest_that_fits()
            .map_or_else(String::new, |limit| format!(": the nearest that fits is `{limit}`"));
        Err(LimitError::new(format!("`{self}` needs numbers beyond 2^52{nearest}"), "1000/s burst 20"))
    }

    /// The greatest number that counting this limit comes to: in ticks, or in millionths of a
    /// unit, in which a changed limit takes over what was used.
    fn most(&self) -> u128 {
        let (cell, _) = self.cell_and_drain();
        let units = match self.algorithm {
            Algorithm::TokenBucket { .. }
            | Algorithm::LeakyBucket { .. }
            | Algorithm::LeakyQueue { .. }
            | Algorithm::WarmUp { .. } => self.most_ticks() / u128::from(cell),
            Algorithm::Ticked { .. }
            | Algorithm::FixedWindow
            | Algorithm::SlidingWindow { .. }
            | Algorithm::SlidingLog
            | Algorithm::Concurrency { .. } => self.most_ticks(),
        };
        self.most_ticks().max((units + 1) * 1_000_000)
    }

    /// The greatest number in ticks: a unit is `cell` of them, a microsecond `drain`, with
    /// `cell / drain = period / amount`.
    fn most_ticks(&self) -> u128 {
        let (cell, drain) = self.cell_and_drain();
        let (cell, drain) = (u128::from(cell), u128::from(drain));
        let wait = u128::from(self.wait_us) * drain;
        match self.algorithm {
            Algorithm::TokenBucket { burst } => u128::from(burst) * cell + wait,
            Algorithm::LeakyBucket { capacity } => u128::from(capacity) * cell,
            Algorithm::LeakyQueue { queue } => (u128::from(queue) + 1) * cell,
            Algorithm::WarmUp { warmup } => 4 * warmup.as_micros() * drain + wait + 4 * cell,
            Algorithm::Ticked { cap } => {
                let ticks = self.wait_us.div_ceil(self.period_us.max(1));
                u128::from(cap) + u128::from(self.amount) * u128::from(ticks)
            }
            Algorithm::FixedWindow => {
                let windows = self.wait_us.div_ceil(self.period_us.max(1));
                u128::from(self.amount) * (1 + u128::from(windows))
            }
            Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog | Algorithm::Concurrency { .. } => {
                u128::from(self.amount)
            }
        }
    }

    fn nearest_that_fits(&self) -> Option<Self> {
        let with = |amount: u64| Self { amount, ..self.clone() };
        let fits = |limit: &Self| limit.amount > 0 && limit.most() < EXACT;
        let beside = (1..=STEPS).flat_map(|step| [self.amount.saturating_sub(step), self.amount + step]);
        let round = (1..13).map(|digits| self.amount - self.amount % 10u64.pow(digits));
        beside.chain(round).map(with).find(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_limits_fit_and_odd_ones_name_their_neighbour() {
        let limit = |text: &str| text.parse::<Limit>().unwrap();
        for fits in
            ["1000/s burst 1s wait 1s", "1/day", "10000000/s", "100/s warmup 30s", "leaky 50/s queue 100"]
        {
            assert_eq!(limit(fits).exact_in_doubles(), Ok(()), "{fits}");
        }
        for odd in ["999983/week burst 1000000", "1234567/day burst 1000000"] {
            let named = limit(odd).nearest_that_fits().unwrap();
            assert_eq!(named.exact_in_doubles(), Ok(()), "{odd} -> {named}");
            assert!(limit(odd).exact_in_doubles().is_err());
        }
        // More units than go from one limit to another exact to a millionth.
        assert!(limit("1000000/s burst 5000000000").exact_in_doubles().is_err());
    }
}

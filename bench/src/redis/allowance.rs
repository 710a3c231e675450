//! The limit that all contenders of a case are set to, and how much it lets through at most.

use serde::{Deserialize, Serialize};

const SECOND_US: u64 = 1_000_000;

/// `units` every `period_s` seconds, and as many at once.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Allowance {
    pub units: u64,
    pub period_s: u64,
}

impl Allowance {
    /// The hot key of the flash sale.
    pub const HOT: Self = Self { units: 1_000, period_s: 1 };
    /// More than any contender can use.
    pub const ENDLESS: Self = Self { units: 100_000_000, period_s: 1 };
    /// For many keys, none of which comes near it.
    pub const ROOMY: Self = Self { units: 100, period_s: 60 };
    /// A unit is remembered for a minute and a half: longer than it takes to count the bytes.
    pub const SLOW: Self = Self { units: 1_000, period_s: 86_400 };

    /// In our own words.
    pub fn text(&self) -> String {
        format!("{} per {}s", self.units, self.period_s)
    }

    pub fn period_us(&self) -> u64 {
        self.period_s * SECOND_US
    }

    /// What may be admitted from the first call to the last one, by the server's clock. Holds for
    /// a bucket, and so for windows too: they admit no more than a full one for each period begun.
    pub fn at_most(&self, elapsed_us: u64) -> u64 {
        self.units + self.freed(elapsed_us) as u64
    }

    /// Units that come back in this time.
    pub fn freed(&self, elapsed_us: u64) -> f64 {
        self.units as f64 * elapsed_us as f64 / self.period_us() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_what_came_back_may_be_admitted_and_not_one_more() {
        assert_eq!(Allowance::HOT.at_most(0), 1_000);
        assert_eq!(Allowance::HOT.at_most(2_500_999), 3_500);
        assert_eq!(Allowance::SLOW.at_most(86_400_000), 1_001);
    }
}

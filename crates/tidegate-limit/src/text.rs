//! A limit as text: the shortest that parses to the same limit, also for serde.

use crate::build::SLICES_DEFAULT;
use crate::duration::{bare_unit, show};
use crate::{Algorithm, Limit};
use std::fmt;

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (amount, period) = (self.amount, show(self.period_us));
        let rate = match bare_unit(self.period_us) {
            Some(unit) => format!("{amount}/{unit}"),
            None => format!("{amount} per {period}"),
        };
        match self.algorithm {
            Algorithm::TokenBucket { burst } if burst == amount => write!(f, "{rate}")?,
            Algorithm::TokenBucket { burst } => write!(f, "{rate} burst {burst}")?,
            Algorithm::WarmUp { warmup } => write!(f, "{rate} warmup {}", show(warmup.as_micros() as u64))?,
            Algorithm::Ticked { cap } if cap == amount => write!(f, "{amount} every {period}")?,
            Algorithm::Ticked { cap } => write!(f, "{amount} every {period} cap {cap}")?,
            Algorithm::LeakyBucket { capacity } => write!(f, "leaky {rate} capacity {capacity}")?,
            Algorithm::LeakyQueue { queue } => write!(f, "leaky {rate} queue {queue}")?,
            Algorithm::FixedWindow => write!(f, "{rate} fixed-window")?,
            Algorithm::SlidingWindow { slices } if slices == SLICES_DEFAULT.min(self.period_us) => {
                write!(f, "{rate} sliding-window")?;
            }
            Algorithm::SlidingWindow { slices } => write!(f, "{rate} sliding-window slices {slices}")?,
            Algorithm::SlidingLog => write!(f, "{rate} sliding-log")?,
            Algorithm::Concurrency { queue: 0 } => write!(f, "{amount} concurrent")?,
            Algorithm::Concurrency { queue } => write!(f, "{amount} concurrent queue {queue}")?,
        }
        if self.offset_us > 0 {
            write!(f, " offset {}", show(self.offset_us))?;
        }
        if self.wait_us > 0 {
            write!(f, " wait {}", show(self.wait_us))?;
        }
        Ok(())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Limit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Limit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

//! A limit as text: the shortest that parses to the same limit, also for serde.

use crate::build::SLICES_DEFAULT;
use crate::duration::{bare_unit, show};
use crate::{Algorithm, Limit};
use std::fmt;

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.algorithm {
            Algorithm::LeakyBucket { .. } | Algorithm::LeakyQueue { .. } => write!(f, "leaky ")?,
            Algorithm::TokenBucket { .. }
            | Algorithm::WarmUp { .. }
            | Algorithm::Ticked { .. }
            | Algorithm::FixedWindow
            | Algorithm::SlidingWindow { .. }
            | Algorithm::SlidingLog
            | Algorithm::Concurrency { .. } => {}
        }
        write!(f, "{}", self.amount)?;
        match (&self.algorithm, bare_unit(self.period_us)) {
            (Algorithm::Concurrency { .. }, _) => write!(f, " concurrent")?,
            (Algorithm::Ticked { .. }, _) => write!(f, " every {}", show(self.period_us))?,
            (_, Some(unit)) => write!(f, "/{unit}")?,
            (_, None) => write!(f, " per {}", show(self.period_us))?,
        }
        match self.algorithm {
            Algorithm::TokenBucket { burst } if burst != self.amount => write!(f, " burst {burst}")?,
            Algorithm::WarmUp { warmup } => {
                let us = u64::try_from(warmup.as_micros()).unwrap_or(u64::MAX);
                write!(f, " warmup {}", show(us))?;
            }
            Algorithm::Ticked { cap } if cap != self.amount => write!(f, " cap {cap}")?,
            Algorithm::LeakyBucket { capacity } => write!(f, " capacity {capacity}")?,
            Algorithm::LeakyQueue { queue } => write!(f, " queue {queue}")?,
            Algorithm::FixedWindow => write!(f, " fixed-window")?,
            Algorithm::SlidingWindow { slices } if slices == SLICES_DEFAULT.min(self.period_us) => {
                write!(f, " sliding-window")?;
            }
            Algorithm::SlidingWindow { slices } => write!(f, " sliding-window slices {slices}")?,
            Algorithm::SlidingLog => write!(f, " sliding-log")?,
            Algorithm::Concurrency { queue } if queue > 0 => write!(f, " queue {queue}")?,
            // The amount says the rest.
            Algorithm::TokenBucket { .. } | Algorithm::Ticked { .. } | Algorithm::Concurrency { .. } => {}
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

//! Which store a model stands for. Stores decide alike; they differ only in how finely they
//! can measure what goes from one limit to another.

use super::account::MILLION;

/// The store that is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Words of 64 bits, 14 of them for the ticks of a microsecond; or 128 bits.
    Memory,
    /// Doubles, exact up to 2^52.
    Redis,
}

impl Store {
    /// How many times finer than `unit` and `drain` in lowest terms the ticks of a bucket are:
    /// a power of ten that makes a tick at most a millionth of a unit, where there is room.
    pub fn finer(self, unit: i128, drain: i128, full: i128) -> i128 {
        let is_word = drain <= 1 << 14;
        let has_room = |k: i128| match self {
            Self::Memory => !is_word || drain * k <= 1 << 14,
            Self::Redis => (full / unit + 1) * unit * k < 1 << 52,
        };
        let mut k = 1;
        while unit * k < MILLION && has_room(k * 10) {
            k *= 10;
        }
        k
    }
}

//! The keys, and the order in which they are requested. Both are the same for all contenders, built
//! before anything is timed, and repeatable: the seed is fixed.
//!
//! The order holds the keys themselves, one behind the other, not numbers that point to them: in a
//! server the key has just been read from a request and is in the cache, so what is timed should be
//! the limiter's cache misses and not the bench's own.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use std::fmt::Write;

const SEED: u64 = 20_260_101;

/// Shares no factor with 10⁸, so that multiplying by it visits every 8-digit number once: the keys
/// look random and yet all differ.
const SCATTER: u64 = 61_803_399;
const IDS: u64 = 100_000_000;

/// A key such as `user:12345678`. It owns a `String` because governor's keyed limiter, with string
/// keys, takes nothing else.
#[derive(Clone, Default)]
pub struct Key(String);

impl Key {
    pub fn numbered(number: u32) -> Self {
        let mut key = Self::default();
        key.renumber(number);
        key
    }

    /// Becomes another key without allocating, for those who only pass through many keys once.
    pub fn renumber(&mut self, number: u32) {
        self.0.clear();
        let id = u64::from(number) * SCATTER % IDS;
        write!(self.0, "user:{id:08}").expect("a String takes whatever is written to it");
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn as_string(&self) -> &String {
        &self.0
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Which keys are requested.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    Uniform,
    /// Exponent 0.99: over a million keys the first gets 6.5 % of the requests.
    Zipf,
}

/// `length` requests for keys below `count`.
pub fn requests(spread: Spread, count: u32, length: usize) -> Vec<Key> {
    let mut random = SmallRng::seed_from_u64(SEED);
    match spread {
        Spread::Uniform => (0..length).map(|_| Key::numbered(random.random_range(0..count))).collect(),
        Spread::Zipf => {
            let ranks = Zipf::new(f64::from(count), 0.99).expect("the exponent and the count are positive");
            // Ranks begin at 1. They are scattered, or the favourites would be the keys that were
            // inserted first and lie side by side in the peers' heaps.
            (0..length)
                .map(|_| ranks.sample(&mut random) as u64 - 1)
                .map(|rank| Key::numbered((rank * SCATTER % u64::from(count)) as u32))
                .collect()
        }
    }
}

/// One key many times over: hot keys run through the same loop as cold ones, and the compiler
/// cannot know that it may hash once for all.
pub fn hot() -> Vec<Key> {
    vec![Key::numbered(7); 256]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn keys_all_differ_and_are_13_bytes() {
        let keys: HashSet<String> = (0..100_000).map(|n| Key::numbered(n).0).collect();
        assert_eq!(keys.len(), 100_000);
        assert!(keys.iter().all(|key| key.len() == "user:12345678".len()));
    }

    #[test]
    fn zipf_has_a_favourite_with_its_known_share_and_stays_within_the_keys() {
        let count = 1_000_000;
        let requests = requests(Spread::Zipf, count, 200_000);
        let mut seen: HashMap<&str, u32> = HashMap::new();
        for key in &requests {
            *seen.entry(key.as_str()).or_default() += 1;
        }
        let top = seen.values().max().copied().unwrap_or(0);
        assert!((12_000..14_000).contains(&top), "{top}");
        let known: HashSet<String> = (0..count).map(|n| Key::numbered(n).0).collect();
        assert!(seen.keys().all(|key| known.contains(*key)));
    }
}

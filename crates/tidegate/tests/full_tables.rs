//! How many keys a full store holds, and in how much memory: docs/limits.md states both.
//!
//! `cargo test --release -p tidegate --test full_tables -- --nocapture` prints what it
//! measures; `TIDEGATE_KEYS` says for how many keys. A binary of its own with one test,
//! because resident memory is a process's.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use tidegate::{Denial, Gate, GateOptions, Limiter, ManualClock, Overflow};

/// What docs/limits.md says, for each key of `max_keys`: keys, and bytes.
mod promised {
    /// Full of keys of one word.
    pub(crate) const WORDS: f64 = 2.2;
    pub(crate) const BYTES_OF_WORDS: f64 = 100.0;
    /// Full of keys of both sorts, each state of a fixed size.
    pub(crate) const BOTH: f64 = 3.2;
    pub(crate) const BYTES_OF_BOTH: f64 = 400.0;
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Fills the store by a flood of new keys: how many were let in.
fn flood(gate: &Gate, keys: usize) -> usize {
    let (mut held, mut full) = (0, 0);
    for key in 0..3 * keys as u64 {
        match gate.check(&key.to_le_bytes()).denial() {
            None => held += 1,
            Some(Denial::Full) => full += 1,
            other => panic!("a new key of {gate:?} was denied as {other:?}"),
        }
    }
    assert!(full > keys / 2, "the store was not filled");
    held
}

#[test]
fn a_full_store_holds_as_many_keys_in_as_many_bytes_as_the_docs_say() {
    let keys = std::env::var("TIDEGATE_KEYS").map_or(100_000, |keys| keys.parse().unwrap());
    let each = |total: usize| total as f64 / keys as f64;
    let before = resident_bytes();
    // The clock stands still, so that no key becomes idle.
    let limiter = Limiter::builder().clock(ManualClock::new()).max_keys(keys).build();
    let gate = |name, limit| {
        let options = GateOptions::new().overflow(Overflow::Refuse);
        limiter.gate_with(name, limit, options).unwrap()
    };

    let words = flood(&gate("words", "1/h"), keys);
    let bytes = each(resident_bytes() - before);
    println!("max_keys({keys}), one-word keys: {words} held, {bytes:.1} bytes for each of max_keys");
    assert!((1.0..promised::WORDS).contains(&each(words)), "{words} keys of one word for {keys}");
    assert!(bytes < promised::BYTES_OF_WORDS, "{bytes} bytes for one of `max_keys`");

    // Two words a key; what windows and logs hold beside that depends on the limit.
    let held = words + flood(&gate("long", "999983/h burst 1"), keys);
    let bytes = each(resident_bytes() - before);
    println!("max_keys({keys}), both sorts: {held} held, {bytes:.1} bytes for each of max_keys");
    assert!((2.0..promised::BOTH).contains(&each(held)), "{held} keys of both sorts for {keys}");
    assert!(bytes < promised::BYTES_OF_BOTH, "{bytes} bytes for one of `max_keys`");
}

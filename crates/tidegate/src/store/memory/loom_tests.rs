//! Every interleaving of the compare-and-swap paths, by loom: `RUSTFLAGS="--cfg tidegate_loom"`.
//!
//! The real gate on tables as small as they can be, one group, so that every key
//! meets every other. What is checked is what a user is promised: no unit is granted
//! twice, no key has two entries, no write lands on another key's state, nothing torn is
//! ever acted on.

use super::flat::{ENTRIES, Fingerprint};
use super::gate::MemoryGate;
use super::limit_words::LimitWords;
use super::version::LimitVersion;
use super::{HashedCheck, Pages, Tables, decide_all};
use crate::algorithm::{Mode, Plan, Word, word_at};
use crate::clock::{ManualClock, StoreClock, Timestamp};
use crate::decision::DecisionOutcome;
use crate::limiter::Overflow;
use crate::sync::AtomicU64;
use loom::thread::{self, JoinHandle};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const NOW_US: u64 = 1_000;

fn gate(limit: &str) -> Arc<MemoryGate> {
    let clock = ManualClock::at(Timestamp::from_micros(NOW_US));
    let tables = Tables::new(StoreClock::Other(Arc::new(clock)), 1, Pages::AsTouched);
    Arc::new(MemoryGate::new(0, limit.parse().expect("a limit"), Arc::new(tables), Overflow::Share))
}

/// One check for one unit on another thread.
fn check_apart(gate: &Arc<MemoryGate>, hash: u64) -> JoinHandle<bool> {
    let gate = gate.clone();
    thread::spawn(move || gate.check(hash, 1).is_allowed())
}

/// Fills every entry but the first with keys that stay.
fn crowd(gate: &MemoryGate, first: u64, word: u64) {
    let group = gate.tables.flat.group(0).lock();
    for entry in 0..ENTRIES {
        let (hash, word) = if entry == 0 { (first, word) } else { (100 + entry as u64, u64::MAX >> 1) };
        group.write(entry, Fingerprint::new(hash, 1), word);
    }
}

/// How many entries a key has, in the table and in the shards.
fn entries(gate: &MemoryGate, hash: u64) -> usize {
    let in_group = gate
        .tables
        .flat
        .group(0)
        .lock()
        .fingerprints()
        .filter(|fingerprint| fingerprint.is_key_of(hash))
        .count();
    let spilled = gate.tables.shards.lock(gate.tables.shards.index(hash)).get(0, hash).is_some();
    in_group + usize::from(spilled)
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

/// As many interleavings as fit in some seconds: the limit_words are eight words, each of
/// which can be seen old or new, so that all of them would take hours.
fn model_in_time(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_duration = Some(std::time::Duration::from_secs(15));
    builder.check(f);
}

#[test]
fn two_checks_of_a_new_key_grant_its_unit_once() {
    model(|| {
        let gate = gate("1/s");
        let other = check_apart(&gate, 7);
        let mine = gate.check(7, 1).is_allowed();
        assert!(mine ^ other.join().expect("no panic"));
        assert_eq!(entries(&gate, 7), 1);
    });
}

#[test]
fn a_known_key_is_charged_for_every_grant() {
    model(|| {
        let gate = gate("1/s burst 2");
        assert!(gate.check(7, 1).is_allowed());
        let other = check_apart(&gate, 7);
        let mine = gate.check(7, 1).is_allowed();
        assert!(mine ^ other.join().expect("no panic"));
        assert!(!gate.check(7, 1).is_allowed());
    });
}

#[test]
fn a_late_check_never_charges_the_entry_of_another_key() {
    model(|| {
        // Key 7 is idle and its entry the only one that can be taken over. It comes back
        // while another key takes it: one of them has to find another entry.
        let gate = gate("1000/s burst 1");
        crowd(&gate, 7, word_at(5));
        let other = check_apart(&gate, 8);
        assert!(gate.check(7, 1).is_allowed());
        assert!(other.join().expect("no panic"));
        for hash in [7, 8] {
            assert_eq!(entries(&gate, hash), 1, "key {hash}");
            assert!(!gate.check(hash, 1).is_allowed(), "key {hash} was charged");
        }
    });
}

#[test]
fn several_limits_are_charged_all_or_none() {
    model(|| {
        let (narrow, wide) = (gate("1/s"), gate("1/s burst 2"));
        let both = |narrow: &MemoryGate, wide: &MemoryGate| {
            let check = |gate| HashedCheck::new(gate, 7, 1);
            let results = decide_all(&[check(narrow), check(wide)], Mode::Check);
            results.iter().all(|result| result.decision.is_allowed())
        };
        let other = {
            let (narrow, wide) = (narrow.clone(), wide.clone());
            thread::spawn(move || both(&narrow, &wide))
        };
        let mine = both(&narrow, &wide);
        assert!(mine ^ other.join().expect("no panic"));
        assert_eq!(wide.peek(7, 1).remaining(), 1, "the denied one spent nothing");
    });
}

#[test]
fn a_changed_limit_gives_no_unit_twice() {
    model_in_time(|| {
        let gate = gate("1/s burst 2");
        assert!(gate.check(7, 1).is_allowed());
        let other = check_apart(&gate, 7);
        gate.change("7/s burst 2".parse().expect("a limit"));
        let mine = gate.check(7, 1).is_allowed();
        assert!(mine ^ other.join().expect("no panic"));
    });
}

#[test]
fn a_key_that_comes_during_a_change_is_charged_once() {
    model_in_time(|| {
        let gate = gate("1/s burst 2");
        let newcomer = {
            let gate = gate.clone();
            thread::spawn(move || (gate.check(7, 1).is_allowed(), gate.peek(7, 1).remaining()))
        };
        gate.change("7/s burst 2".parse().expect("a limit"));
        assert_eq!(newcomer.join().expect("no panic"), (true, 1));
        assert_eq!(gate.peek(7, 1).remaining(), 1);
    });
}

#[test]
fn numbers_are_never_read_torn() {
    model(|| {
        let clock = StoreClock::Other(Arc::new(ManualClock::at(Timestamp::from_micros(NOW_US))));
        let version =
            |number, text: &str| LimitVersion::new(number, text.parse().expect("a limit"), &clock, 0);
        let (old, new) = (version(1, "1/s burst 5"), version(2, "7/s burst 3"));
        let limit_words = Arc::new(LimitWords::new(&old));
        let writer = {
            let limit_words = limit_words.clone();
            thread::spawn(move || limit_words.store(&new))
        };
        if let Ok(limit) = limit_words.read::<Word>() {
            let seen = (limit.version, limit.capacity, limit.bucket.scale.drain);
            assert!(seen == (1, 5, 1) || seen == (2, 3, 7), "{seen:?}");
        }
        writer.join().expect("no panic");
    });
}

/// The checker can fail: a store that looks and writes without the sequence number
/// grants one unit twice, and loom finds it.
#[test]
#[should_panic(expected = "granted 2")]
fn a_store_that_reads_and_writes_apart_is_caught() {
    model(|| {
        let word = Arc::new(AtomicU64::new(0));
        let check = |word: &AtomicU64| {
            let Plan::Word(bucket) = Plan::new(&"1/s".parse().expect("a limit"), 0) else {
                panic!("one word")
            };
            let seen = word.load(Ordering::SeqCst);
            let (outcome, next, _) = bucket.decide_at(NOW_US, seen, 1, Mode::Check);
            word.store(next, Ordering::SeqCst);
            matches!(outcome, DecisionOutcome::Allow { .. })
        };
        let other = {
            let word = word.clone();
            thread::spawn(move || check(&word))
        };
        let granted = u8::from(check(&word)) + u8::from(other.join().expect("no panic"));
        assert!(granted == 1, "granted {granted}");
    });
}

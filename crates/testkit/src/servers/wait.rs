//! Waiting for something outside the process: the one place with a clock and a sleep.

use std::thread;
use std::time::{Duration, Instant};

/// Asks again and again until it is so.
///
/// # Panics
/// When it is not so by then; says `what` it waited for.
#[track_caller]
pub fn wait_until(what: &str, at_most: Duration, is_so: impl FnMut() -> bool) {
    assert!(wait_for(at_most, is_so), "waited {at_most:?} in vain until {what}");
}

/// The same, and tells whether it became so.
#[allow(clippy::disallowed_methods, reason = "other processes run on real time")]
pub(super) fn wait_for(at_most: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() >= at_most {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Lets time pass.
#[allow(clippy::disallowed_methods, reason = "tests of real servers take real time")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_until_it_is_so() {
        let mut asked = 0;
        wait_until("asked thrice", Duration::from_secs(5), || {
            asked += 1;
            asked == 3
        });
        assert_eq!(asked, 3);
    }

    #[test]
    #[should_panic(expected = "in vain until pigs fly")]
    fn it_says_what_it_waited_for() {
        wait_until("pigs fly", Duration::from_millis(3), || false);
    }
}

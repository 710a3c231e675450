//! A process's use of the processors, from Linux's `/proc`.

use std::fs::read_to_string;

/// Ticks a second in `/proc`; the kernel uses this unit for programs whatever its own clock does.
pub const TICKS_PER_SECOND: u64 = 100;

/// A process's processor time, user and system together, in ticks.
#[derive(Debug, PartialEq, Eq)]
pub struct Times {
    pub itself: u64,
    /// Of those of its children that ended and were waited for.
    pub ended_children: u64,
}

/// Of the process with this number, or of `self`.
pub fn times(process: &str) -> Option<Times> {
    parse(&read_to_string(format!("/proc/{process}/stat")).ok()?)
}

fn parse(stat: &str) -> Option<Times> {
    // The name is in parentheses and may contain any character. Behind it, counted from the state:
    // utime, stime, and those of the children that ended, are at 11 to 14.
    let fields = numbers(stat.rsplit_once(") ")?.1.split_once(' ')?.1);
    let part = |from: usize| fields.get(from..from + 2).map(|two| two.iter().sum());
    Some(Times { itself: part(10)?, ended_children: part(12)? })
}

/// The numbers in a line. A negative one counts as none, to keep its place.
pub fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let line = "7 (redis) (x y) S 1 7 7 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 5 0 99 1 1";
        assert_eq!(parse(line), Some(Times { itself: 120, ended_children: 7 }));
    }

    #[test]
    fn a_line_that_ends_too_early_is_no_answer() {
        assert_eq!(parse("7 (redis) S 1 7 7"), None);
    }
}

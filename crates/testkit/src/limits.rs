//! The limits that the suite is run under, for every store: each algorithm with rates
//! that do not divide, periods of microseconds and of days, and waits.

#![allow(missing_docs, reason = "the names say it")]

pub const SMOOTH: [&str; 17] = [
    "1000/s",
    "7/s burst 3",
    "7/s burst 3 wait 1s",
    "1000/s burst 1s wait 1s",
    "999983/s",
    "999983/s burst 5 wait 10us",
    "1234567/day burst 9",
    "1234567/day burst 9 wait 1h",
    "1/day burst 2",
    "1/day burst 2 wait 36h",
    "10000000/s burst 5",
    "10000000/s burst 5 wait 1us",
    "3 per 7us",
    "3 per 7us burst 2 wait 20us",
    "300000007/s burst 1000",
    "16384 per 16381us burst 3 wait 5us",
    "16385 per 16384us burst 3 wait 5us",
];
pub const LEAKY: [&str; 5] = [
    "leaky 50/s capacity 10",
    "leaky 7/s capacity 1",
    "leaky 50/s queue 10",
    "leaky 7/s queue 3",
    "leaky 999983/s queue 4",
];
pub const TICKED: [&str; 8] = [
    "20 every 1s cap 100",
    "5 every 1s cap 8 wait 1s",
    "5 every 1s cap 2 wait 2500ms",
    "3 every 7us cap 10 wait 3us",
    "1000000 every 1s cap 2000000",
    "1 every 1day cap 3 wait 50h",
    "5 every 1s cap 8 offset 300ms wait 1s",
    "2 every 1week cap 3 offset 30h wait 9day",
];
pub const FIXED: [&str; 9] = [
    "5 per 10s fixed-window",
    "5 per 10s fixed-window wait 25s",
    "1000000 per 1min fixed-window",
    "3 per 7us fixed-window wait 5us",
    "1 per 1us fixed-window",
    "5/day fixed-window offset 8h",
    "7/week fixed-window wait 8day",
    "4 per 3weeks fixed-window offset 5day",
    "3 per 7us fixed-window offset 5us wait 5us",
];
pub const WINDOWS: [&str; 7] = [
    "5 per 10s sliding-window",
    "5 per 10s sliding-window slices 1",
    "5 per 10s sliding-window slices 3 wait 12s",
    "9 per 10us sliding-window slices 4",
    "9 per 10us sliding-window wait 7us",
    "100 per 1min sliding-window slices 60 wait 90s",
    "7 per 1s sliding-window slices 1000",
];
pub const LOGS: [&str; 5] = [
    "5 per 10s sliding-log",
    "5 per 10s sliding-log wait 12s",
    "9 per 10us sliding-log wait 7us",
    "1 per 1us sliding-log",
    "100 per 1min sliding-log",
];
pub const WARM: [&str; 6] = [
    "100/s warmup 30s",
    "10/s warmup 2s wait 1s",
    "7/s warmup 3s wait 2s",
    "999983/s warmup 1ms wait 30us",
    "3 per 7us warmup 11us wait 40us",
    "1/s warmup 1us wait 5s",
];
pub const HELD: [&str; 2] = ["3 concurrent", "10 concurrent queue 5 wait 2s"];

/// Each can be changed to each.
pub const CHANGES: [&str; 10] = [
    "7/s burst 3",
    "1000/s burst 1s wait 1s",
    "999983/s burst 5 wait 10us",
    "leaky 50/s queue 10",
    "20 every 1s cap 100",
    "5 per 1s fixed-window wait 2s",
    "5 per 1s fixed-window offset 700ms wait 2s",
    "9 every 1s cap 12 offset 250ms",
    "5 per 10s sliding-window slices 3",
    "50 per 1s sliding-log wait 1s",
];

/// What nodes are mixed of, and what is changed to and fro: all kinds, small and large rates,
/// long and short memories. No two of them count alike. Redis holds all of them exactly.
pub const MIXED: [&str; 26] = [
    "10/s burst 10",
    "11/s burst 10",
    "20/s burst 10",
    "10/s burst 30",
    "10/s burst 1 wait 1s",
    "100/s burst 120",
    "1000/s burst 1s",
    "1000/day burst 1000",
    "1000003/day burst 1000",
    "100/day burst 5 wait 1h",
    "999983/s burst 5 wait 10us",
    "3 per 7us burst 2",
    "leaky 50/s capacity 7",
    "leaky 50/s queue 10",
    "leaky 7/s queue 3",
    "20 every 1s cap 100",
    "5 every 1s cap 2 wait 2500ms",
    "5 per 1s fixed-window wait 2s",
    "100 per 1day fixed-window",
    "5 per 10s sliding-window slices 3",
    "100 per 1min sliding-window slices 60",
    "50 per 1s sliding-log wait 1s",
    "5 per 10s sliding-log",
    "100 per 1day sliding-log",
    "10/s warmup 2s wait 1s",
    "100/s warmup 30s",
];

/// Some of these count alike, and share one count of a key.
pub const ALIKE: [&str; 10] = [
    "10/s burst 10",
    "leaky 10/s capacity 10",
    "leaky 10/s queue 9",
    "leaky 50/s queue 10",
    "5 per 1s fixed-window",
    "5 every 1s cap 5",
    "5 per 10s sliding-log",
    "9 per 10s sliding-log",
    "5 per 10s sliding-window slices 3",
    "7 per 10s sliding-window slices 3",
];

/// One of each kind, for requests under several.
pub const TOGETHER: [&str; 9] =
    [SMOOTH[1], SMOOTH[2], SMOOTH[5], LEAKY[2], TICKED[1], FIXED[1], WINDOWS[2], LOGS[1], WARM[1]];

/// Hands every algorithm that counts starts, with its limits, to a macro: `name: LIMITS, ...`,
/// behind whatever else it is given. One list for the suites of all stores.
#[macro_export]
macro_rules! for_every_algorithm {
    ($then:ident $(, $with:expr)?) => {
        $then! { $($with =>)?
            a_smooth_bucket: SMOOTH,
            a_leaky_bucket: LEAKY,
            a_ticked_bucket: TICKED,
            a_fixed_window: FIXED,
            a_sliding_window: WINDOWS,
            a_sliding_log: LOGS,
            a_warm_up: WARM,
        }
    };
}

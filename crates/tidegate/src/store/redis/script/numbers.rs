//! The numbers and letters that the client and the script agree on, declared once.
//!
//! [`SCRIPT`] is `decide.lua` with these names replaced by their values. Lua locals would do, too,
//! but each call of the script would set them up anew, which costs a short call a quarter more of
//! the server's time. The text is constant in a build, so a server keeps one.

use crate::algorithm;
use std::sync::LazyLock;

macro_rules! shared {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:literal;)*) => {
        $(
            $(#[$doc])*
            #[allow(dead_code, reason = "some are only the script's")]
            pub(crate) const $name: $type = $value;
        )*

        const SHARED: &[(&str, &str)] = &[$((stringify!($name), stringify!($value))),*];
    };
}

pub(crate) static SCRIPT: LazyLock<String> = LazyLock::new(|| {
    let script = include_str!("decide.lua").to_string();
    SHARED.iter().fold(script, |script, (name, value)| script.replace(name, value))
});

shared! {
    // Kinds of limits, as the script counts them.
    KIND_BUCKET: u64 = 1;
    KIND_STEPPED: u64 = 2;
    KIND_WARM_UP: u64 = 3;
    KIND_SLICES: u64 = 4;
    KIND_SLOTS: u64 = 5;

    // The letter with which the tag of a kind's limits begins. It stands in Redis.
    TAG_BUCKET: char = 'b';
    TAG_STEPPED: char = 't';
    TAG_WARM_UP: char = 'w';
    TAG_SLICES: char = 'l';

    // How a check is decided.
    MODE_CHECK: u64 = 0;
    MODE_RESERVE: u64 = 1;
    MODE_PEEK: u64 = 2;
    MODE_HOLD: u64 = 3;

    // Operations. What each takes and returns stands in the script, above its code.
    OP_RUNS: u64 = 1;
    OP_SEVERAL: u64 = 2;
    OP_REFUND: u64 = 3;
    OP_CHARGE_DEBT: u64 = 4;
    OP_RESET: u64 = 5;
    OP_RELEASE: u64 = 6;
    OP_RENEW: u64 = 7;
    OP_QUEUE: u64 = 8;
    OP_LEAVE: u64 = 9;
    OP_HEARTBEAT: u64 = 10;
    /// Every greater number is one unit of a bucket: of the limit at the position beyond this.
    OP_UNIT: u64 = 31;

    // How one stands that queues for slots.
    QUEUED_WAITING: i64 = 0;
    QUEUED_HELD: i64 = 1;
    QUEUED_FULL: i64 = 2;
    QUEUED_GONE: i64 = 3;

    // What came of renewing slots.
    RENEWED_LOST: i64 = 0;
    RENEWED_HELD: i64 = 1;
    /// They are held, but the server takes no writes.
    RENEWED_NOT: i64 = 2;

    /// What Redis's Lua computes exactly.
    EXACT: u64 = 4503599627370496;
    MILLIONTHS: u64 = 1000000;
    /// Counts of a key beside the one of the limit that wrote last, and how long each is kept.
    OTHERS_MAX: u64 = 3;
    KEPT_US: u64 = 60000000;
}

const _: () = assert!(
    EXACT == 1 << 52
        && MILLIONTHS == algorithm::MILLIONTHS
        && OTHERS_MAX == algorithm::OTHERS_MAX as u64
        && KEPT_US == algorithm::KEPT_AT_LEAST_US
);

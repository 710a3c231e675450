//! What things are called in Redis and in the broker.

use crate::goods::GoodsId;

/// Keys of one goods. They share a hash tag, so a cluster keeps them on one node.
pub(super) struct Keys {
    pub(super) meta: String,
    pub(super) path: String,
    pub(super) key: String,
    pub(super) user: String,
    pub(super) order: String,
    pub(super) out: String,
    pub(super) back: String,
    pub(super) lease: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, goods: &GoodsId) -> Self {
        let name = |part: &str| format!("{prefix}:{{{goods}}}:{part}");
        Self {
            meta: name("meta"),
            path: name("path"),
            key: name("key"),
            user: name("user"),
            order: name("order"),
            out: name("out"),
            back: name("back"),
            lease: name("lease"),
        }
    }
}

/// The channel on which goods are named that have changed.
pub(super) fn news(prefix: &str) -> String {
    format!("{prefix}:news")
}

/// The queue of a goods: always the same, in every process and release.
pub(super) fn shard(goods: &GoodsId, shards: u16) -> u16 {
    let mixed = goods.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |mixed, byte| {
        (mixed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    u16::try_from(mixed % u64::from(shards.max(1))).unwrap_or(0)
}

pub(super) fn exchange(prefix: &str) -> String {
    format!("{prefix}.orders")
}

pub(super) fn queue(prefix: &str, shard: u16) -> String {
    format!("{prefix}.orders.{shard}")
}

/// Exchange and queue of what could not be read.
pub(super) fn dead(prefix: &str) -> String {
    format!("{prefix}.dead")
}

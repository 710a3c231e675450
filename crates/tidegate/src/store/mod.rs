//! Where the state is and whose clock counts.

pub(crate) mod cancelled;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;

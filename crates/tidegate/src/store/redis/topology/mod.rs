//! Which servers there are, and which one has a key.

pub(crate) mod cluster;
pub(crate) mod sentinel;

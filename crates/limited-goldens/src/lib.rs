//! Nothing but the tests beside it: what the compiler says about `#[limited(...)]`.
//!
//! A crate of its own, because what the tests of an attribute's crate need is built for the
//! compiler too, a second time.

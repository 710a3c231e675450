// Compiles in a crate that denies what it can, beside other attributes.
#![deny(warnings, missing_docs, unused, unreachable_pub)]
#![forbid(unsafe_code)]
//! Documented.

use tidegate::{Limiter, Refusal, limited};

/// Documented.
#[limited("5/s")]
#[tracing::instrument]
fn above(id: u64) -> Result<u64, Refusal> {
    Ok(id)
}

#[tracing::instrument(skip_all)]
#[limited("5/s wait 1ms", key = id)]
async fn below(id: u64) -> Result<u64, Refusal> {
    Ok(id)
}

#[limited("5/s", otherwise = panic!("{id} is too much"))]
fn diverging(id: u64) -> u64 {
    id
}

fn gives_up(_: u64, refusal: Refusal) -> ! {
    panic!("{refusal}")
}

#[limited("5/s", otherwise = gives_up)]
fn calls_a_diverging_one(id: u64) -> u64 {
    id
}

// Only one of the two applies.
#[cfg_attr(all(), limited("5/s"))]
#[cfg_attr(any(), limited("6/s"))]
fn conditional() -> Result<u64, Refusal> {
    Ok(1)
}

const EVERYONE: &str = "everyone";

// Constants on purpose.
#[limited("5/s", key = const { "everyone" }, and(limit = "6/s", key = (id, const { 7 })), and(limit = "7/s", key = EVERYONE))]
fn constant(id: u64) -> Result<u64, Refusal> {
    Ok(id)
}

// Looked up by a name at each call.
#[limited("5/s", key = tenant("x-tenant"), otherwise = "too busy, come back later")]
fn looked_up() -> &'static str {
    "here"
}

fn tenant(name: &str) -> usize {
    name.len()
}

struct Desk;

// For the methods that are not async.
#[limited("5/s wait 1ms", blocking)]
impl Desk {
    fn waits(&self) -> Result<u64, Refusal> {
        Ok(1)
    }

    async fn awaits(&self) -> Result<u64, Refusal> {
        Ok(1)
    }
}

#[limited("5/s")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Refusal> {
    assert_eq!(above(7)?, 7);
    assert_eq!(below(7).await?, 7);
    assert_eq!(diverging(7) + calls_a_diverging_one(7), 14);
    assert_eq!(conditional()? + Desk.waits()? + Desk.awaits().await?, 3);
    assert_eq!((constant(7)?, looked_up()), (7, "here"));
    assert_eq!(Limiter::global().gates().len(), 12);
    Ok(())
}

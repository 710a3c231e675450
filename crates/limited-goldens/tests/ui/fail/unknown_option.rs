#![allow(unused)]
use tidegate::{Refusal, limited};

#[limited("5/s", keys = id)]
fn a(id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", otherwize = |_| Ok(()))]
fn b() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", fallback = |_| Ok(()))]
fn c() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", and(limit = "6/s", banana = 7))]
fn d() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", by = users)]
fn e() -> Result<(), Refusal> {
    Ok(())
}

fn main() {}

#![allow(unused)]
use tidegate::{Refusal, limited};

#[limited("5/s", key)]
fn a(id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s" key = id)]
fn b(id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited(key = id, "5/s")]
fn c(id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited(5)]
fn d() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", name = "not a name")]
fn e() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", and(limit = "6/s", limiter = limiter))]
fn f(limiter: tidegate::Limiter) -> Result<(), Refusal> {
    Ok(())
}

fn main() {}

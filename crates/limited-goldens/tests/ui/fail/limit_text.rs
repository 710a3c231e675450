#![allow(unused)]
use tidegate::{Refusal, limited};

#[limited("1000/s burst fast")]
fn a() -> Result<(), Refusal> {
    Ok(())
}

#[limited(limit = "10 concurrent", and(limit = "5 per"), and(limit = "5 per 10s sliding-logg"))]
fn b() -> Result<(), Refusal> {
    Ok(())
}

const LIMIT: &str = "5/s";

#[limited(limit = LIMIT)]
fn c() -> Result<(), Refusal> {
    Ok(())
}

#[limited(LIMIT, key = id)]
fn d(id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited(limits::CHECKOUT)]
fn e() -> Result<(), Refusal> {
    Ok(())
}

#[limited(concat!("5", "/s"))]
fn f() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", name = NAME)]
fn g() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", and(LIMIT))]
fn h() -> Result<(), Refusal> {
    Ok(())
}

#[limited(limit = 10/s)]
fn i() -> Result<(), Refusal> {
    Ok(())
}

fn main() {}

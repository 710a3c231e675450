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

fn main() {}

#![allow(unused)]
use tidegate::{Refusal, limited};

#[limited("5/s", limit = "6/s")]
fn a() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", name = "x", name = "y")]
fn b() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", name = "x", and(limit = "6/s", name = "x"))]
fn c() -> Result<(), Refusal> {
    Ok(())
}

fn main() {}

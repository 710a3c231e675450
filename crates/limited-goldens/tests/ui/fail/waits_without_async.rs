#![allow(unused)]
use tidegate::{Refusal, limited};

#[limited("5/s wait 1s")]
fn a() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", and(limit = "leaky 5/s queue 10"))]
fn b() -> Result<(), Refusal> {
    Ok(())
}

fn main() {}

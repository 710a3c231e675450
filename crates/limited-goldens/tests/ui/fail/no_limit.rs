#![allow(unused)]
use tidegate::{Refusal, limited};

#[limited]
fn a() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", and(by = user))]
fn b() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", and)]
fn c() -> Result<(), Refusal> {
    Ok(())
}

fn main() {}

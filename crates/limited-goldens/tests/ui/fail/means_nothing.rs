#![allow(unused)]
use tidegate::{Refusal, limited};

#[limited("5/s", by = ())]
fn a() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", by = (ip, ip))]
fn b() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s wait 1s", blocking)]
async fn c() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", blocking)]
fn d() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", cost = 10)]
fn e() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", and(limit = "6/s", cost = 0))]
fn f() -> Result<(), Refusal> {
    Ok(())
}

fn main() {}

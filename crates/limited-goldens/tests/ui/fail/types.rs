#![allow(unused)]
use tidegate::{Refusal, limited};

struct Order;

#[limited("5/s", key = order)]
fn a(order: Order) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", by = ip(address))]
fn b(address: &str) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", cost = cost)]
fn c(cost: i32) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", limiter = limiter)]
fn d(limiter: u8) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", by = user(account))]
fn e(account: Order) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", by = user(account))]
fn f(account: Option<Order>) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", cost = 5i32)]
fn g() -> Result<(), Refusal> {
    Ok(())
}

fn main() {}

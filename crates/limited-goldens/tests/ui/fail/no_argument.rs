#![allow(unused)]
use tidegate::{Refusal, limited};

struct Order {
    goods_id: u64,
}

#[limited("5/s", key = good_id)]
fn a(user: u64, goods_id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", key = (order.goods_id, basket.id))]
fn b(order: Order) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", cost = items.len(), limiter = self.limiter)]
fn c() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", key = order.goods)]
fn d(order: Order) -> Result<(), Refusal> {
    Ok(())
}

fn main() {}

#![allow(unused)]
use tidegate::{Refusal, limited};

struct Order {
    goods_id: u64,
}

#[limited("5/s", key = "goods_id")]
fn a(user: u64, goods_id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", key = "#order.goodsId")]
fn b(order: Order) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", key = "goods:{goods_id}")]
fn c(goods_id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", key = "everyone")]
fn d(user: u64, goods_id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", key = b"report")]
fn e() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", key = 7)]
fn f(id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", key = (user, "goodsId"))]
fn g(user: u64, goods_id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", by = user, key = "goods")]
fn h(goods_id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", by = user("account"))]
fn i(account: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", by = ip("address"))]
fn j(address: std::net::IpAddr) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", key = format!("goods_id"))]
fn k(goods_id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", and(limit = "6/s", key = "goods_id".to_string()))]
fn l(goods_id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", otherwise = defer(key = "order_id"))]
async fn m(order_id: u64) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    Ok(())
}

fn main() {}

// What people write who come from annotations in other languages.
#![allow(unused)]
use tidegate::{Limiter, Refusal, limited};

fn stand_in(_: Refusal) -> &'static str {
    "older"
}

struct LimitType;

impl LimitType {
    const IP: u8 = 1;
}

struct Desk {
    limiter: Limiter,
}

#[limited(limit = 10, period = 60)]
fn a() -> Result<(), Refusal> {
    Ok(())
}

#[limited("10/s", period = 60)]
fn b() -> Result<(), Refusal> {
    Ok(())
}

#[limited(permitsPerSecond = 1000, maxBurstSeconds = 1)]
fn c() -> Result<(), Refusal> {
    Ok(())
}

#[limited("10/s", maxWaitSecond = 1)]
fn d() -> Result<(), Refusal> {
    Ok(())
}

#[limited("10/s", blockHandler = "stand_in")]
fn e() -> &'static str {
    "new"
}

#[limited("10/s", otherwise = "stand_in")]
fn f() -> &'static str {
    "new"
}

#[limited("10/s", limitType = LimitType::IP)]
fn g() -> Result<(), Refusal> {
    Ok(())
}

#[limited("10/s", by = LimitType::IP)]
fn h() -> Result<(), Refusal> {
    Ok(())
}

#[limited("10/s", by = IP)]
fn i() -> Result<(), Refusal> {
    Ok(())
}

#[limited("10/s", by = "user")]
fn j() -> Result<(), Refusal> {
    Ok(())
}

#[limited("10/s", by = "account")]
fn k(account: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("10/s", by = user, missing = "refuse")]
fn l() -> Result<(), Refusal> {
    Ok(())
}

#[limited("10/s", by = user, missing = Missing::Refuse)]
fn m() -> Result<(), Refusal> {
    Ok(())
}

#[limited("10/s", cost = "items.len()")]
fn n(items: &[u8]) -> Result<(), Refusal> {
    Ok(())
}

#[limited("10/s", limiter = "main limiter")]
fn o() -> Result<(), Refusal> {
    Ok(())
}

#[limited("10/s", crate = "tidegate")]
fn p() -> Result<(), Refusal> {
    Ok(())
}

#[limited(name = "backend")]
fn q() -> Result<(), Refusal> {
    Ok(())
}

#[limited("10/s", resource = "backend")]
fn r() -> Result<(), Refusal> {
    Ok(())
}

#[limited("10/s", cacheKey = goods_id)]
fn s(goods_id: u64) -> Result<(), Refusal> {
    Ok(())
}

fn main() {}

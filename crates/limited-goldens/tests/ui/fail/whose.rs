#![allow(unused)]
use tidegate::{Refusal, limited};

#[limited("5/s", by = custom)]
fn a() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", by = global, key = id)]
fn b(id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", key = id, missing = refuse)]
fn c(id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", by = user, missing = allow)]
fn d() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", by = (user, global))]
fn e() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", key = ())]
fn f() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", by = user.id)]
fn g(user: User) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", by = account)]
fn h(account: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", by = (ip, self.owner.name()), key = goods)]
fn i(goods: u64) -> Result<(), Refusal> {
    Ok(())
}

struct User {
    id: u64,
}

fn main() {}

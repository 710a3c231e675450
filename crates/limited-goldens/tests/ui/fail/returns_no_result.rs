#![allow(unused)]
use tidegate::{Refusal, limited};

#[limited("5/s")]
fn a() {}

#[limited("5/s")]
fn b() -> u64 {
    7
}

#[limited("5/s")]
async fn c() -> Option<String> {
    None
}

struct ShopError;

#[limited("5/s")]
fn d() -> Result<(), ShopError> {
    Ok(())
}

#[limited("5/s")]
fn e() -> ! {
    loop {}
}

fn main() {}

#![allow(unused)]
use tidegate::{Refusal, limited};

fn stand_in(_: u64, _: Refusal) -> u64 {
    7
}

async fn async_stand_in(_: u64, _: Refusal) -> u64 {
    7
}

#[limited("5/s", otherwise = stand_in)]
fn a((id, _): (u64, u64)) -> u64 {
    id
}

#[limited("5/s", otherwise = async_stand_in.await)]
fn b(id: u64) -> u64 {
    id
}

#[limited("5/s", otherwise = || 7)]
fn c(id: u64) -> u64 {
    id
}

#[limited("5/s", otherwise = defer(id))]
fn d(id: u64) -> u64 {
    id
}

#[limited("5/s", otherwise = stand_in)]
fn e(id: &str) -> u64 {
    7
}

#[limited("5/s", otherwise = stand_in)]
fn f(#[cfg(unix)] id: u64) -> u64 {
    id
}

fn main() {}

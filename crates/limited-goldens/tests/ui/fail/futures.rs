#![allow(unused)]
use std::future::Future;
use std::pin::Pin;
use tidegate::{Refusal, limited};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T>>>;

#[limited("5/s")]
fn a() -> Pin<Box<dyn Future<Output = Result<(), Refusal>>>> {
    println!("runs");
    Box::pin(async { Ok(()) })
}

async fn inner() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s")]
fn b() -> BoxFuture<Result<(), Refusal>> {
    Box::pin(inner())
}

#[limited("5/s")]
fn c() -> impl Future<Output = Result<(), Refusal>> {
    inner()
}

fn main() {}

#![allow(unused)]
use tidegate::{Refusal, limited};

struct Shop;

// As it looks without the dependency.
#[limited("5/s", otherwise = defer(crate = ::not_in_cargo_toml))]
async fn without_the_journal(id: u64) -> Result<(), Refusal> {
    Ok(())
}

fn main() {}

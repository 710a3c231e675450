#![allow(unused)]
use tidegate::{Refusal, limited};
use tidegate_journal::Deferred;

struct Silent;

impl From<Refusal> for Silent {
    fn from(_: Refusal) -> Self {
        Self
    }
}

impl From<Deferred> for Silent {
    fn from(_: Deferred) -> Self {
        Self
    }
}

#[limited("5/s", otherwise = defer)]
async fn says_nothing(id: u64) -> Result<(), Silent> {
    Ok(())
}

fn main() {}

#![allow(unused)]
use tidegate::{Refusal, limited};
use tidegate_journal::Deferred;

#[derive(Debug)]
struct Answer;

impl From<Refusal> for Answer {
    fn from(_: Refusal) -> Self {
        Self
    }
}

impl From<Deferred> for Answer {
    fn from(_: Deferred) -> Self {
        Self
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}

struct Shop;

impl Shop {
    // Nothing in it says that it is in an `impl`.
    #[limited("5/s", otherwise = defer)]
    async fn open(id: u64) -> Result<(), Answer> {
        Ok(())
    }
}

trait Ships {
    async fn ship(&self, id: u64) -> Result<(), Answer>;
}

impl Ships for Shop {
    #[limited("5/s", otherwise = defer)]
    async fn ship(&self, id: u64) -> Result<(), Answer> {
        Ok(())
    }
}

fn main() {}

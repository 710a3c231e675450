#![allow(unused)]
use tidegate::{Refusal, limited};

struct Desk;

#[limited("5/s wait 1s")]
impl Desk {
    async fn a(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn b(&self) -> Result<(), Refusal> {
        Ok(())
    }

    async fn c(&self) {}

    #[limited(off)]
    fn d(&self) {}
}

struct Empty;

#[limited("5/s")]
impl Empty {
    const A: u8 = 1;
}

fn main() {}

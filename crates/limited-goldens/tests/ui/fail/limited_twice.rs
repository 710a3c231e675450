#![allow(unused)]
use tidegate::{Refusal, limited};

#[limited("5/s")]
#[limited("100/min")]
fn a() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s")]
#[cfg_attr(all(), tidegate::limited("100/min"))]
async fn b() -> Result<(), Refusal> {
    Ok(())
}

use tidegate::limited as gated;

#[gated("5/s")]
#[gated("100/min")]
fn renamed() -> Result<(), Refusal> {
    Ok(())
}

struct Desk;

#[limited("5/s")]
#[limited("100/min")]
impl Desk {
    fn c(&self) -> Result<(), Refusal> {
        Ok(())
    }
}

fn main() {}

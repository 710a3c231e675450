#![allow(unused)]
use tidegate::{Refusal, limited};

#[limited("5/s")]
const fn a() -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s")]
struct B;

#[limited("5/s")]
trait C {
    fn c(&self) -> Result<(), Refusal>;
}

trait D {
    #[limited("5/s")]
    fn d(&self) -> Result<(), Refusal>;
}

#[limited(off)]
fn e() -> Result<(), Refusal> {
    Ok(())
}

fn main() {}

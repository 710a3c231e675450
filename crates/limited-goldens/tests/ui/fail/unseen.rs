#![allow(unused)]
use tidegate::{Refusal, limited};

struct Desk;

macro_rules! method {
    () => {
        fn unseen(&self) -> Result<(), Refusal> {
            Ok(())
        }
    };
}

#[limited("5/s")]
impl Desk {
    method!();

    #[cfg_attr(all(), limited("6/s"))]
    fn a(&self) -> Result<(), Refusal> {
        Ok(())
    }
}

fn main() {}

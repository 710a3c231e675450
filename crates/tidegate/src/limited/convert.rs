//! What a refused function returns, and what a call costs: where the attribute meets the
//! types of the function, with words for a type that does not fit.

use crate::decision::Denial;
use crate::refusal::Refusal;
use std::num::NonZero;
use std::time::Duration;

/// Return types that can be made of a refusal.
#[diagnostic::on_unimplemented(
    message = "`#[limited]` cannot turn a refusal into `{Self}`",
    label = "this function has no way to say that it was refused",
    note = "return `Result<T, E>` where `E: From<tidegate::Refusal>`",
    note = "or say what to return instead: `otherwise = |refusal| ...` or `otherwise = path::to::function`"
)]
pub trait FromRefusal {
    /// The refusal as what the function returns.
    fn from_refusal(refusal: Refusal) -> Self;
}

impl<T, E: ErrorFromRefusal> FromRefusal for Result<T, E> {
    fn from_refusal(refusal: Refusal) -> Self {
        Err(E::from(refusal))
    }
}

/// Errors that a refusal can become.
#[diagnostic::on_unimplemented(
    message = "`#[limited]` cannot turn a refusal into the error `{Self}`",
    label = "`{Self}` does not implement `From<tidegate::Refusal>`",
    note = "write `impl From<tidegate::Refusal> for {Self}`, if the type is yours",
    note = "or say what to return instead: `otherwise = |refusal| Err(...)`"
)]
pub trait ErrorFromRefusal: From<Refusal> {}

#[diagnostic::do_not_recommend]
impl<E: From<Refusal>> ErrorFromRefusal for E {}

/// Calls `f`, whose argument's type is known here.
pub fn otherwise<T, F: FnOnce(Refusal) -> T>(refusal: Refusal, f: F) -> T {
    f(refusal)
}

/// How soon a refused call is worth another try, or why never.
pub fn retry_in(refusal: &Refusal) -> Result<Duration, String> {
    match refusal.decision().denial() {
        Some(Denial::Never | Denial::NeedsPermit | Denial::Unidentified) => Err(refusal.to_string()),
        // Somebody may give a slot back at any moment.
        _ => Ok(refusal.retry_after().unwrap_or(Duration::from_millis(100))),
    }
}

/// What `cost = ...` can be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a cost",
    label = "`cost = ...` takes an unsigned whole number, such as `u32`, `u64` or `usize`"
)]
pub trait Cost {
    /// In units of the limit.
    fn units(self) -> u64;
}

macro_rules! costs {
    ($($number:ty),*) => {
        $(impl Cost for $number {
            #[allow(clippy::cast_lossless, reason = "the same words for all of them")]
            fn units(self) -> u64 {
                self as u64
            }
        }

        impl Cost for NonZero<$number> {
            fn units(self) -> u64 {
                self.get().units()
            }
        })*
    };
}

costs!(u8, u16, u32, u64, usize);

impl<T: Cost + Copy> Cost for &T {
    fn units(self) -> u64 {
        (*self).units()
    }
}

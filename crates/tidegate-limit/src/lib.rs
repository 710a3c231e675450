//! What is allowed: an algorithm with its numbers, parsed or built once and impossible to
//! hold in a broken state.
//!
//! Use it through the crate `tidegate`, which re-exports everything. It is a crate of its
//! own so that the attribute `#[limited]` reads a limit with the library's own parser,
//! while it is compiled.
//!
//! Nothing here counts anything; the counting is in `tidegate`.

mod limit;

mod build;
mod parse;
mod text;

mod doubles;
mod duration;
mod error;
mod name;

pub use build::LimitBuilder;
#[doc(hidden)]
pub use duration::{parse as parse_duration, show as show_duration};
pub use error::LimitError;
pub use limit::{Algorithm, Limit};
#[doc(hidden)]
pub use name::{NAME_MAX, NAME_RULE, is_gate_name};

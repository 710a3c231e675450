//! Errors that point at what somebody wrote: one, or all of them at once.

use std::fmt::Display;
use syn::spanned::Spanned;
use syn::{Error, Result};

/// An error that points here.
pub(crate) fn fail<T>(at: &impl Spanned, what: impl Display) -> Result<T> {
    Err(Error::new(at.span(), what))
}

/// All of them together.
pub(crate) fn fail_with_all(errors: Vec<Error>) -> Result<()> {
    let all = errors.into_iter().reduce(|mut all, error| {
        all.combine(error);
        all
    });
    all.map_or(Ok(()), Err)
}

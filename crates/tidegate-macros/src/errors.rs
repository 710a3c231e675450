//! Errors that point at what somebody wrote: one, or all of them at once.

use std::fmt::Display;
use syn::spanned::Spanned;
use syn::{Error, Result};

/// An error that points here.
pub(crate) fn fail<T>(at: &impl Spanned, what: impl Display) -> Result<T> {
    Err(Error::new(at.span(), what))
}

/// Errors that are reported together.
#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn into_result(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

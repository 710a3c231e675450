//! Other `#[limited]`s beside the one that is read.

use crate::errors::fail;
use crate::expressions::ends_in;
use proc_macro2::TokenTree;
use syn::spanned::Spanned;
use syn::{Attribute, Meta, Result};

/// Refuses a second attribute on one thing: both would count, and under one name.
pub(crate) fn check_once(attributes: &[Attribute]) -> Result<()> {
    attributes.iter().find(|attribute| is_limited(attribute)).map_or(Ok(()), |other| twice(other.path()))
}

pub(crate) fn twice(at: &impl Spanned) -> Result<()> {
    fail(
        at,
        "`#[limited]` stands here twice: write the other limit into the first, as `and(limit = \"...\")`",
    )
}

pub(crate) fn is_limited(attribute: &Attribute) -> bool {
    ends_in(attribute.path(), "limited")
}

/// True for `#[cfg_attr(..., limited(...))]`, of which only the compiler knows whether it
/// applies.
pub(crate) fn is_conditional(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
    let is_limited = |token: TokenTree| matches!(token, TokenTree::Ident(word) if word == "limited");
    let tokens = list.tokens.clone().into_iter();
    attribute.path().is_ident("cfg_attr") && tokens.skip_while(|token| !is_comma(token)).any(is_limited)
}

//! One function: its body begins with the statement that limits it.
//!
//! The body itself is not moved anywhere, so that `?`, `return`, generics, lifetimes and
//! `self` stay what they were.

use crate::errors::fail;
use crate::key::Part;
use crate::rule::Rules;
use crate::{arguments, attributes, constant, future, replay, statement};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, Ident, ImplItemFn, Item, ItemFn, Macro, Result, Signature, Visibility, parse_quote,
};

/// What is limited.
pub(crate) struct Function<'a> {
    pub(crate) attributes: &'a mut Vec<Attribute>,
    pub(crate) visibility: &'a Visibility,
    pub(crate) signature: &'a mut Signature,
    pub(crate) block: &'a mut Block,
    /// In an `impl` block, as far as that can be seen: an attribute above a function that
    /// has no `self` does not see what it is in.
    pub(crate) is_method: bool,
}

impl<'a> Function<'a> {
    pub(crate) fn item(function: &'a mut ItemFn) -> Self {
        let ItemFn { attrs: attributes, vis: visibility, sig: signature, block, .. } = function;
        let is_method = signature.receiver().is_some() || names_self(signature, block);
        Self { attributes, visibility, signature, block, is_method }
    }

    pub(crate) fn method(method: &'a mut ImplItemFn) -> Self {
        let ImplItemFn { attrs: attributes, vis: visibility, sig: signature, block, .. } = method;
        Self { attributes, visibility, signature, block, is_method: true }
    }
}

/// True if `Self` stands in it, which no free function can say. Items within have a `Self` of
/// their own; what a macro is given counts as it stands.
fn names_self(signature: &Signature, block: &Block) -> bool {
    struct Named(bool);
    impl<'a> Visit<'a> for Named {
        fn visit_ident(&mut self, ident: &'a Ident) {
            self.0 |= ident == "Self";
        }

        fn visit_macro(&mut self, called: &'a Macro) {
            self.0 |= stands_in(called.tokens.clone());
            visit::visit_macro(self, called);
        }

        fn visit_item(&mut self, _: &'a Item) {}
    }
    let mut named = Named(false);
    named.visit_signature(signature);
    named.visit_block(block);
    named.0
}

fn stands_in(code: TokenStream) -> bool {
    code.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "Self",
        TokenTree::Group(group) => stands_in(group.stream()),
        _ => false,
    })
}

/// Puts the limits in front of a function's body, and returns the functions that are generated
/// beside it.
pub(crate) fn limit(rules: &Rules, function: &mut Function<'_>) -> Result<Vec<ItemFn>> {
    let Function { signature, block, .. } = function;
    if let Some(constness) = &signature.constness {
        let what = "a `const fn` cannot be limited: it can run while it is compiled, where nobody counts";
        return fail(constness, what);
    }
    let is_async = signature.asyncness.is_some() || future::body(signature, block)?.is_some();
    check_waiting(rules, signature, is_async)?;
    check_expressions(rules, signature)?;
    let mut refused = statement::refused(rules, signature, is_async)?;
    let mut generated = Vec::new();
    if let Some(deferral) = &rules.deferral {
        (refused, generated) = replay::split(rules, deferral, function, &refused)?;
    }
    let Function { signature, block, .. } = function;
    let limiting = statement::limiting(rules, is_async, &refused);
    let body = match future::body(signature, block)? {
        Some(body) => body,
        None => block,
    };
    let stmts = std::mem::take(&mut body.stmts);
    if stmts.first().is_some_and(statement::is_limiting) {
        attributes::twice(&signature.ident)?;
    }
    *body = parse_quote!({ #limiting #(#stmts)* });
    Ok(generated)
}

/// Refuses `blocking` on one async function. On an `impl` block it is for those methods
/// that are not.
pub(crate) fn check_blocking(rules: &Rules, signature: &Signature) -> Result<()> {
    let Some(span) = rules.blocking.filter(|_| signature.asyncness.is_some()) else { return Ok(()) };
    fail(&span, format!("`{}` is async and awaits: leave `blocking` out", signature.ident))
}

fn check_waiting(rules: &Rules, signature: &Signature, is_async: bool) -> Result<()> {
    let Some(rule) = rules.waits().filter(|_| !is_async && rules.blocking.is_none()) else { return Ok(()) };
    let function = &signature.ident;
    let what = format!(
        "`{}` can tell a caller to wait, and `{function}` is not async: make it `async fn`, \
         leave the wait out, or write `blocking` to wait on the thread",
        rule.limit
    );
    fail(&rule.text, what)
}

/// Refuses keys that are the same at every call, and names that no argument has.
fn check_expressions(rules: &Rules, signature: &Signature) -> Result<()> {
    for rule in &rules.limits {
        let effect = match rule.parts.len() {
            1 => "all calls would share one allowance",
            _ => "it would tell no calls apart",
        };
        for part in &rule.parts {
            let (option, given, around) = match part {
                Part::Value(key) if rule.parts.len() > 1 => ("key", key, ("", "")),
                Part::Value(key) => ("key", key, ("key = ", "")),
                Part::Ip(Some(given)) => ("by", given, ("by = ip(", ")")),
                Part::User(Some(given)) => ("by", given, ("by = user(", ")")),
                Part::Ip(None) | Part::User(None) => continue,
            };
            constant::check(given, around, effect, signature)?;
            arguments::check(option, Some(given), signature)?;
        }
        arguments::check("cost", rule.cost.as_ref(), signature)?;
    }
    arguments::check("limiter", rules.limiter.as_ref(), signature)?;
    rules.deferral.as_ref().map_or(Ok(()), |deferral| deferral.check_arguments(signature))
}

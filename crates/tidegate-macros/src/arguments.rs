//! The arguments of a function: which names an expression over them can use, and how they
//! are passed on to the function that `otherwise` names.

use crate::errors::fail;
use crate::expressions::{as_word, inner};
use crate::suggest::suggestion;
use proc_macro2::Span;
use quote::format_ident;
use syn::visit::{self, Visit};
use syn::{Expr, FnArg, Ident, Pat, PatIdent, Receiver, Result, Signature, Type, parse_quote};

/// The names that the arguments bind.
pub(crate) fn names(signature: &Signature) -> Vec<String> {
    struct Names(Vec<String>);
    impl<'a> Visit<'a> for Names {
        fn visit_receiver(&mut self, _: &'a Receiver) {
            self.0.push("self".into());
        }

        fn visit_pat_ident(&mut self, bound: &'a PatIdent) {
            // Each case of `A(x) | B(x)` binds it.
            if !self.0.iter().any(|name| bound.ident == name) {
                self.0.push(bound.ident.to_string());
            }
            visit::visit_pat_ident(self, bound);
        }

        fn visit_type(&mut self, _: &'a Type) {}
    }
    let mut names = Names(Vec::new());
    signature.inputs.iter().for_each(|argument| names.visit_fn_arg(argument));
    names.0
}

/// Refuses an expression that begins with a name which no argument has. A constant is
/// written with a capital, and what is deeper than a field or a method is the compiler's.
pub(crate) fn check(option: &str, given: Option<&Expr>, signature: &Signature) -> Result<()> {
    let Some(expression) = given else { return Ok(()) };
    match expression {
        Expr::Field(field) => check(option, Some(&field.base), signature),
        Expr::MethodCall(call) => check(option, Some(&call.receiver), signature),
        Expr::Index(index) => check(option, Some(&index.expr), signature),
        Expr::Path(_) => as_word(expression).map_or(Ok(()), |name| check_name(option, name, signature)),
        other => check(option, inner(other), signature),
    }
}

fn check_name(option: &str, name: &Ident, signature: &Signature) -> Result<()> {
    let (names, text) = (names(signature), name.to_string());
    if text.starts_with(char::is_uppercase) || names.contains(&text) {
        return Ok(());
    }
    let hint = suggestion(&text, &names);
    let there_is = match names.as_slice() {
        [] => "it has none".to_string(),
        names => format!("there is `{}`", names.join("`, `")),
    };
    let function = &signature.ident;
    fail(name, format!("`{option}` names `{name}`, which is no argument of `{function}`{hint}; {there_is}"))
}

/// The arguments as expressions. One that nobody has named gets a name.
pub(crate) fn passed_on(signature: &mut Signature) -> Result<Vec<Expr>> {
    let pass = |(at, argument): (usize, &mut FnArg)| {
        let typed = match argument {
            FnArg::Receiver(Receiver { self_token, .. }) => return Ok(parse_quote!(#self_token)),
            FnArg::Typed(typed) => typed,
        };
        if let Some(cfg) = typed.attrs.iter().find(|attribute| attribute.path().is_ident("cfg")) {
            let what = "whether there is an argument under `#[cfg]` is not known yet when it is passed on to \
                        `otherwise`: write two functions, each under its `#[cfg]`, or \
                        `otherwise = |refusal| ...`";
            return fail(cfg, what);
        }
        let ident = match &*typed.pat {
            Pat::Ident(ident) if ident.subpat.is_none() && ident.by_ref.is_none() => ident.ident.clone(),
            Pat::Wild(_) => {
                let ident = format_ident!("__tidegate_argument_{at}", span = Span::mixed_site());
                *typed.pat = parse_quote!(#ident);
                ident
            }
            other => {
                let what = "an argument that is taken apart here cannot be passed on to `otherwise`: \
                            name it and take it apart inside, or write `otherwise = |refusal| ...`";
                return fail(other, what);
            }
        };
        Ok(parse_quote!(#ident))
    };
    signature.inputs.iter_mut().enumerate().map(pass).collect()
}

//! The attribute `#[limited(...)]`; use it as `tidegate::limited`, with the feature `macros`.
//!
//! It reads the limit with the library's own parser, so that a wrong one does not compile,
//! and puts one statement in front of the function's body. What that statement calls is
//! `tidegate::__private`, the library's folder `limited/`; nothing is counted here.

mod arguments;
mod attributes;
mod block;
mod constant;
mod deferral;
mod errors;
mod expressions;
mod function;
mod future;
mod key;
mod options;
mod owned;
mod replay;
mod rule;
mod statement;
mod suggest;

use function::Function;
use proc_macro::TokenStream;
use quote::{ToTokens, quote};
use rule::Rules;
use syn::{ImplItem, Item, ItemImpl, Result, TraitItemFn};

/// Use it as `tidegate::limited`, where all of it is explained.
#[proc_macro_attribute]
pub fn limited(options: TokenStream, item: TokenStream) -> TokenStream {
    let item = proc_macro2::TokenStream::from(item);
    match expand(options, item.clone()) {
        Ok(limited) => limited.into(),
        Err(error) => {
            // The function stays, so that its callers are not reported as wrong, too.
            let mut out = error.into_compile_error();
            out.extend(without_own_attributes(item));
            out.into()
        }
    }
}

fn expand(options: TokenStream, item: proc_macro2::TokenStream) -> Result<proc_macro2::TokenStream> {
    let rules = Rules::new(&syn::parse(options)?)?;
    let targets = "`#[limited]` goes on functions, methods and `impl` blocks";
    let wrong = |what: &str| errors::fail(&rules.span, what);
    match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Fn(mut function)) => {
            attributes::check_once(&function.attrs)?;
            function::check_blocking(&rules, &function.sig)?;
            let generated = function::limit(&rules, &mut Function::item(&mut function))?;
            Ok(quote!(#function #(#generated)*))
        }
        Ok(Item::Impl(mut block)) => {
            block::limit(&rules, &mut block)?;
            Ok(block.into_token_stream())
        }
        Ok(Item::Trait(_)) => {
            wrong(&format!("{targets}: write it on the `impl`, or on a method that has a body"))
        }
        _ if syn::parse2::<TraitItemFn>(item).is_ok() => {
            wrong("a method without a body cannot be limited: write it where the body is")
        }
        Ok(_) => wrong(targets),
        Err(error) => Err(error),
    }
}

/// An `impl` block as it is, but for the attributes that only made sense in a limited one.
fn without_own_attributes(item: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    let Ok(mut block) = syn::parse2::<ItemImpl>(item.clone()) else { return item };
    for item in &mut block.items {
        if let ImplItem::Fn(method) = item {
            method.attrs.retain(|attribute| !attributes::is_limited(attribute));
        }
    }
    block.into_token_stream()
}

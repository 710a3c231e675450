//! The attribute `#[limited(...)]`; use it as `tidegate::limited`, with the feature `macros`.

mod arguments;
mod block;
mod function;
mod options;
mod rule;
mod suggest;

use options::Options;
use proc_macro::TokenStream;
use quote::ToTokens;
use rule::Rules;
use syn::{Error, Item, Result};

/// TO WRITE
#[proc_macro_attribute]
pub fn limited(options: TokenStream, item: TokenStream) -> TokenStream {
    let item = proc_macro2::TokenStream::from(item);
    match expand(options, item.clone()) {
        Ok(limited) => limited.into(),
        Err(error) => {
            // The function stays, so that what calls it is not reported as wrong, too.
            let mut out = error.into_compile_error();
            out.extend(without_own_attributes(item));
            out.into()
        }
    }
}

fn expand(options: TokenStream, item: proc_macro2::TokenStream) -> Result<proc_macro2::TokenStream> {
    let options: Options = syn::parse(options)?;
    let rules = Rules::new(options)?;
    let place = "`#[limited]` goes on functions, methods and `impl` blocks";
    match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Fn(mut function)) => {
            function::limit(&rules, &mut function.sig, &mut function.block)?;
            Ok(function.into_token_stream())
        }
        Ok(Item::Impl(mut block)) => {
            block::limit(&rules, &mut block)?;
            Ok(block.into_token_stream())
        }
        Ok(Item::Trait(_)) => {
            let what = format!("{place}: write it on the `impl`, or on a method that has a body");
            Err(Error::new(rules.span, what))
        }
        Ok(_) => Err(Error::new(rules.span, place)),
        Err(_) if syn::parse2::<syn::TraitItemFn>(item).is_ok() => Err(Error::new(
            rules.span,
            "a method without a body cannot be limited: write it where the body is",
        )),
        Err(error) => Err(error),
    }
}

/// An `impl` block as it is, but for the attributes that only made sense in a limited one.
fn without_own_attributes(item: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    match syn::parse2::<syn::ItemImpl>(item.clone()) {
        Ok(mut block) => {
            for item in &mut block.items {
                if let syn::ImplItem::Fn(method) = item {
                    method.attrs.retain(|attribute| !attribute.path().is_ident("limited"));
                }
            }
            block.into_token_stream()
        }
        Err(_) => item,
    }
}

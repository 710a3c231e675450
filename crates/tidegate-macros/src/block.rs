//! An `impl` block: its methods are limited as if the attribute stood above each, but for
//! those that have one of their own.

use crate::errors::{fail, fail_with_all};
use crate::function::Function;
use crate::options::Options;
use crate::rule::Rules;
use crate::{attributes, function};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{Attribute, Error, ImplItem, ItemImpl, Result};

/// Limits the methods of a block.
pub(crate) fn limit(rules: &Rules, block: &mut ItemImpl) -> Result<()> {
    attributes::check_once(&block.attrs)?;
    if let (Some(deferral), Some(_)) = (&rules.deferral, &block.trait_) {
        let what = "`defer` puts functions beside each method, and the `impl` of a trait has no place for \
                    them: write it on a method of the type itself, and call that one from here";
        return fail(&deferral.span, what);
    }
    let (mut generated, mut errors) = (Vec::new(), Vec::new());
    let (mut methods, mut limited) = (0, 0);
    for item in &mut block.items {
        let method = match item {
            ImplItem::Fn(method) => method,
            ImplItem::Const(_) | ImplItem::Type(_) => continue,
            unseen => {
                let what = "methods that are made here would not be limited, as `#[limited]` does not see \
                            them: put this into an `impl` block of its own";
                errors.push(Error::new(unseen.span(), what));
                continue;
            }
        };
        methods += 1;
        let done = own(&method.attrs).and_then(|own| {
            match own {
                Own::None => {
                    limited += 1;
                    generated.extend(function::limit(rules, &mut Function::method(method))?);
                }
                Own::Off(at) => drop(method.attrs.remove(at)),
                // Its own attribute is read when the compiler comes to it.
                Own::Other => {}
            }
            Ok(())
        });
        if let Err(mut error) = done {
            let hint =
                format!("`{}` is in a limited `impl` block: `#[limited(off)]` exempts it", method.sig.ident);
            error.combine(Error::new(method.sig.ident.span(), hint));
            errors.push(error);
        }
    }
    if let Some(name) = rules.deferral.as_ref().and_then(|deferral| deferral.method.as_ref())
        && limited > 1
    {
        let what = "several methods would have this one name in the journal, and run each other's calls: leave \
                    `method` out, or write it on each of them";
        errors.push(Error::new(name.span(), what));
    }
    if methods == 0 && errors.is_empty() {
        return fail(&rules.span, "there is no method to limit in this `impl` block");
    }
    let generated = generated.into_iter().map(|function| ImplItem::Verbatim(function.into_token_stream()));
    block.items.extend(generated);
    fail_with_all(errors)
}

/// What a method says about itself.
enum Own {
    None,
    /// The index of its `#[limited(off)]`.
    Off(usize),
    Other,
}

fn own(attributes: &[Attribute]) -> Result<Own> {
    if let Some(conditional) = attributes.iter().find(|attribute| attributes::is_conditional(attribute)) {
        let what = "a limited `impl` block cannot see whether this applies: write `#[limited(...)]` without \
                    `cfg_attr` on two methods with `#[cfg(...)]`, or move the method out of the block";
        return fail(conditional.path(), what);
    }
    let Some(at) = attributes.iter().position(attributes::is_limited) else { return Ok(Own::None) };
    // A wrong one is reported when the compiler comes to it.
    let is_off = attributes[at].parse_args::<Options>().is_ok_and(|options| options.off.is_some());
    Ok(if is_off { Own::Off(at) } else { Own::Other })
}

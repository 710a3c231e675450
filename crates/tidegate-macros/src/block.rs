//! An `impl` block: its methods are limited as if the attribute stood above each, but for
//! those that have one of their own.

use crate::function;
use crate::options::Options;
use crate::rule::Rules;
use syn::{Attribute, Error, ImplItem, ItemImpl, Result};

/// Limits the methods of a block.
pub(crate) fn limit(rules: &Rules, block: &mut ItemImpl) -> Result<()> {
    let mut errors: Option<Error> = None;
    let mut limited = 0;
    for item in &mut block.items {
        let ImplItem::Fn(method) = item else { continue };
        limited += 1;
        let done = match own(&method.attrs)? {
            Own::None => function::limit(rules, &mut method.sig, &mut method.block),
            Own::Off(at) => {
                method.attrs.remove(at);
                Ok(())
            }
            // Its own attribute is read when the compiler comes to it.
            Own::Other => Ok(()),
        };
        if let Err(mut error) = done {
            let hint =
                format!("`{}` is in a limited `impl` block: `#[limited(off)]` exempts it", method.sig.ident);
            error.combine(Error::new(method.sig.ident.span(), hint));
            match &mut errors {
                Some(errors) => errors.combine(error),
                None => errors = Some(error),
            }
        }
    }
    if limited == 0 {
        return Err(Error::new(rules.span, "there is no method to limit in this `impl` block"));
    }
    errors.map_or(Ok(()), Err)
}

/// What a method says about itself.
enum Own {
    None,
    /// The place of its `#[limited(off)]`.
    Off(usize),
    Other,
}

fn own(attributes: &[Attribute]) -> Result<Own> {
    let is_limited = |attribute: &Attribute| {
        attribute.path().segments.last().is_some_and(|segment| segment.ident == "limited")
    };
    let Some(at) = attributes.iter().position(is_limited) else { return Ok(Own::None) };
    // A wrong one is reported when the compiler comes to it.
    let is_off = attributes[at].parse_args::<Options>().is_ok_and(|options| options.off.is_some());
    Ok(if is_off { Own::Off(at) } else { Own::Other })
}

//! The arguments of a call that is recorded: a name each, and a type that owns everything. A
//! call is replayed long after whatever it borrowed from is gone.

use crate::errors::fail;
use crate::expressions::ends_in;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Error, FnArg, GenericParam, Ident, Lifetime, Pat, PatType, Result, Safety, Signature, Type,
    TypeImplTrait, TypeReference, parse_quote,
};

/// One argument of a function that can be deferred.
pub(crate) struct Argument {
    pub(crate) ident: Ident,
    /// In the record.
    pub(crate) name: String,
    /// As the function takes it.
    pub(crate) given: Type,
    /// As it is read from its record.
    pub(crate) owned: Type,
    pub(crate) is_borrowed: bool,
}

/// The arguments, without `self`. A `mut` moves along with the body: here nothing changes them.
pub(crate) fn arguments(signature: &mut Signature) -> Result<Vec<Argument>> {
    let mut arguments = Vec::new();
    for input in &mut signature.inputs {
        match input {
            FnArg::Typed(typed) => arguments.push(argument(typed)?),
            FnArg::Receiver(receiver) => receiver.mutability = None,
        }
    }
    Ok(arguments)
}

fn argument(typed: &mut PatType) -> Result<Argument> {
    let ident = match &mut *typed.pat {
        Pat::Ident(bound) if bound.subpat.is_none() && bound.by_ref.is_none() => {
            bound.mutability = None;
            bound.ident.clone()
        }
        other => {
            return fail(other, "an argument is recorded by its name: name it, and take it apart inside");
        }
    };
    let given = ungrouped(&typed.ty).clone();
    let (mut owned, is_borrowed) = match &given {
        Type::Reference(reference) => (owner(reference)?, true),
        other => (other.clone(), false),
    };
    check_owned(&owned)?;
    Forever.visit_type_mut(&mut owned);
    Ok(Argument { name: ident.unraw().to_string(), ident, given, owned, is_borrowed })
}

/// What `$t:ty` of a `macro_rules!` stands for: it comes in a group that nobody wrote.
fn ungrouped(given: &Type) -> &Type {
    match given {
        Type::Group(group) => ungrouped(&group.elem),
        Type::Paren(paren) => ungrouped(&paren.elem),
        other => other,
    }
}

/// The type that owns what `&T` borrows.
fn owner(reference: &TypeReference) -> Result<Type> {
    if let Some(mutable) = &reference.mutability {
        let what = "what is written through `&mut` would be lost when the call runs later: take the value, \
                    and return what became of it";
        return fail(mutable, what);
    }
    Ok(match ungrouped(&reference.elem) {
        Type::Slice(slice) => {
            let element = &slice.elem;
            parse_quote!(::std::vec::Vec<#element>)
        }
        Type::Path(path) if path.path.is_ident("str") => parse_quote!(::std::string::String),
        Type::Path(path) if ends_in(&path.path, "Path") => parse_quote!(::std::path::PathBuf),
        other => other.clone(),
    })
}

/// Refuses types that still borrow when one `&` is left out.
fn check_owned(owned: &Type) -> Result<()> {
    #[derive(Default)]
    struct Inner(Option<Error>);
    impl<'a> Visit<'a> for Inner {
        fn visit_type_reference(&mut self, inner: &'a TypeReference) {
            let source = inner.to_token_stream().to_string();
            let what = format!(
                "`{}` is inside of another type, and nothing would be left to borrow from when the call runs \
                 later: take what is owned, `Option<String>` for example",
                source.replace("& ", "&")
            );
            self.0.get_or_insert_with(|| Error::new(inner.span(), what));
        }

        fn visit_type_impl_trait(&mut self, inner: &'a TypeImplTrait) {
            let what = "`impl` in an argument can be any type, and the replay would not know which: name one";
            self.0.get_or_insert_with(|| Error::new(inner.span(), what));
            visit::visit_type_impl_trait(self, inner);
        }
    }
    let mut inner = Inner::default();
    inner.visit_type(owned);
    inner.0.map_or(Ok(()), Err)
}

/// `Cow<'_, str>` becomes `Cow<'static, str>`.
struct Forever;

impl VisitMut for Forever {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        lifetime.ident = Ident::new("static", lifetime.ident.span());
        visit_mut::visit_lifetime_mut(self, lifetime);
    }
}

/// Refuses what stands for more than one function.
pub(crate) fn check_generics(signature: &Signature) -> Result<()> {
    let is_lifetime = |parameter: &&GenericParam| matches!(parameter, GenericParam::Lifetime(_));
    if let Some(parameter) = signature.generics.params.iter().find(|parameter| !is_lifetime(parameter)) {
        let what = format!(
            "`{}` is many functions, and the replay would not know which was called: write one function \
             for each type, and let it call this one",
            signature.ident
        );
        return fail(parameter, what);
    }
    let Safety::Unsafe(word) = &signature.safety else { return Ok(()) };
    fail(word, "an `unsafe fn` cannot be deferred: nobody vouches for the call that is made later")
}

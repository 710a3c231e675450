//! What an argument is while its call lies in the journal: a name, and a type that owns
//! everything. A call is replayed long after whatever it borrowed from is gone.

use quote::ToTokens;
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
    /// As the function takes it.
    pub(crate) given: Type,
    /// As it is read from its record.
    pub(crate) owned: Type,
    pub(crate) is_borrowed: bool,
}

impl Argument {
    /// The name in the record.
    pub(crate) fn name(&self) -> String {
        self.ident.to_string().trim_start_matches("r#").to_string()
    }
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
    let Pat::Ident(bound) = &mut *typed.pat else { return Err(unnamed(&typed.pat)) };
    if bound.subpat.is_some() || bound.by_ref.is_some() {
        return Err(unnamed(&typed.pat));
    }
    bound.mutability = None;
    let (ident, given) = (bound.ident.clone(), ungrouped(&typed.ty).clone());
    let (mut owned, is_borrowed) = match &given {
        Type::Reference(reference) => (owner(reference)?, true),
        other => (other.clone(), false),
    };
    check_whole(&owned)?;
    Forever.visit_type_mut(&mut owned);
    Ok(Argument { ident, given, owned, is_borrowed })
}

/// What `$t:ty` of a `macro_rules!` stands for: it comes in a group that nobody wrote.
fn ungrouped(given: &Type) -> &Type {
    match given {
        Type::Group(group) => ungrouped(&group.elem),
        Type::Paren(paren) => ungrouped(&paren.elem),
        other => other,
    }
}

fn unnamed(pattern: &Pat) -> Error {
    let what = "an argument is recorded by its name: name it, and take it apart inside";
    Error::new(pattern.span(), what)
}

/// What is kept of `&T`.
fn owner(reference: &TypeReference) -> Result<Type> {
    if let Some(mutable) = &reference.mutability {
        let what = "what is written through `&mut` would be lost when the call runs later: take the value, \
                    and return what became of it";
        return Err(Error::new(mutable.span(), what));
    }
    Ok(match ungrouped(&reference.elem) {
        Type::Slice(slice) => {
            let element = &slice.elem;
            parse_quote!(::std::vec::Vec<#element>)
        }
        Type::Path(path) if path.path.is_ident("str") => parse_quote!(::std::string::String),
        Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Path") => {
            parse_quote!(::std::path::PathBuf)
        }
        other => other.clone(),
    })
}

/// Refuses what cannot be owned by leaving out one `&`.
fn check_whole(owned: &Type) -> Result<()> {
    #[derive(Default)]
    struct Inner(Option<Error>);
    impl<'a> Visit<'a> for Inner {
        fn visit_type_reference(&mut self, inner: &'a TypeReference) {
            let shown = inner.to_token_stream().to_string();
            let what = format!(
                "`{}` is inside of another type, and nothing would be left to borrow from when the call runs \
                 later: take what is owned, `Option<String>` for example",
                shown.replace("& ", "&")
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
    for parameter in &signature.generics.params {
        if let GenericParam::Type(_) | GenericParam::Const(_) = parameter {
            let what = format!(
                "`{}` is many functions, and the replay would not know which was called: write one function \
                 for each type, and let it call this one",
                signature.ident
            );
            return Err(Error::new(parameter.span(), what));
        }
    }
    match &signature.safety {
        Safety::Unsafe(word) => {
            let what = "an `unsafe fn` cannot be deferred: nobody vouches for the call that is made later";
            Err(Error::new(word.span(), what))
        }
        _ => Ok(()),
    }
}

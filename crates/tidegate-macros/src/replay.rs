//! The functions that are generated beside one whose refused calls are deferred: its body without
//! limits, its limits without body, and both together as what a worker replays.
//!
//! ```text
//! ship              checks its limits, then `unguarded`; if refused, it records its arguments
//! ship_deferred     what a worker is given
//!   gate            checks the same limits, with the arguments of a record
//!   unguarded       the body as it was written
//!   method          the name in the journal
//! ```

use crate::deferral::Deferral;
use crate::errors::fail;
use crate::expressions::ends_in;
use crate::function::Function;
use crate::key::Part;
use crate::owned::{self, Argument};
use crate::rule::Rules;
use crate::statement::{self, code, code_at, placed};
use crate::{arguments, attributes, future};
use proc_macro2::{Span, TokenStream};
use quote::format_ident;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, Ident, ItemFn, Path, Receiver, ReceiverKind, Result, ReturnType, Signature, Type, parse_quote,
};

/// Moves the body out of the function. Returns what a refused call returns, and the functions
/// that are generated. `refused` is what it returns if it cannot be recorded.
pub(crate) fn split(
    rules: &Rules,
    deferral: &Deferral,
    function: &mut Function<'_>,
    refused: &TokenStream,
) -> Result<(TokenStream, Vec<ItemFn>)> {
    check(rules, deferral, function)?;
    let written = function.signature.clone();
    let arguments = owned::arguments(function.signature)?;
    let passed = arguments::passed_on(function.signature)?;
    let (journal, name) = (deferral.krate(), function.signature.ident.unraw().to_string());
    let generated = Generated { rules, deferral, journal, function, name, arguments };
    let mut functions =
        vec![generated.unguarded(written), generated.gate(), generated.method(), generated.deferred()?];
    let (recorded, called) = (generated.recorded(refused), generated.path("unguarded"));
    let awaited = function.signature.asyncness.map(|_| code!(.await));
    *function.block = parse_quote!({ #called(#(#passed),*)#awaited });
    let cfgs = picked(function.attributes, &["cfg"]);
    functions.iter_mut().for_each(|function| function.attrs.extend(cfgs.iter().cloned()));
    // What is expected of the body is expected where it is now.
    function.attributes.retain(|attribute| !attribute.path().is_ident("expect"));
    Ok((recorded, functions))
}

fn check(rules: &Rules, deferral: &Deferral, function: &Function<'_>) -> Result<()> {
    let signature = &*function.signature;
    owned::check_generics(signature)?;
    if function.block.stmts.first().is_some_and(statement::is_limiting) {
        attributes::twice(&signature.ident)?;
    }
    if let Some(returned) = future::returned(signature) {
        let what = "the future that this function returns cannot be made again later: make it `async fn`";
        return fail(returned, what);
    }
    if signature.asyncness.is_none() && rules.blocking.is_none() {
        let what = format!(
            "`defer` waits until the call is on the disk, and `{}` is not async: make it `async fn`, or \
             write `blocking` to wait on the thread",
            signature.ident
        );
        return fail(&deferral.span, what);
    }
    if rules.limits.iter().flat_map(|rule| &rule.parts).any(Part::is_caller) {
        let what = "nobody calls when the call runs later: name an argument that says whose call it is, as in \
                    `by = user(account)`, to defer it";
        return fail(&deferral.span, what);
    }
    match signature.receiver() {
        Some(receiver) if !is_shared(receiver) => {
            let what = "the replay calls the method on something that others hold, too: take `&self` or \
                        `self: Arc<Self>`";
            fail(receiver, what)
        }
        _ => Ok(()),
    }
}

fn is_shared(receiver: &Receiver) -> bool {
    matches!(receiver.kind, ReceiverKind::Reference(_, _, None)) || is_arc(receiver)
}

fn is_arc(receiver: &Receiver) -> bool {
    let ReceiverKind::Typed(_, given) = &receiver.kind else { return false };
    matches!(&**given, Type::Path(path) if ends_in(&path.path, "Arc"))
}

/// Something of the journal as if it stood at the function's return type, so that an error
/// points there.
fn at_return(signature: &Signature, what: &Path) -> TokenStream {
    let span = match &signature.output {
        ReturnType::Type(_, returned) => returned.span(),
        ReturnType::Default => signature.ident.span(),
    };
    placed(what, span.resolved_at(Span::mixed_site()))
}

/// Attributes of these names.
fn picked(attributes: &[Attribute], names: &[&str]) -> Vec<Attribute> {
    let is_named = |attribute: &&Attribute| names.iter().any(|name| attribute.path().is_ident(name));
    attributes.iter().filter(is_named).cloned().collect()
}

/// What the functions are made of that are generated.
struct Generated<'a> {
    rules: &'a Rules,
    deferral: &'a Deferral,
    /// The journal's crate.
    journal: TokenStream,
    function: &'a Function<'a>,
    name: String,
    arguments: Vec<Argument>,
}

impl Generated<'_> {
    fn ident(&self, what: &str) -> Ident {
        format_ident!("__tidegate_{}_{what}", self.name, span = self.function.signature.ident.span())
    }

    fn path(&self, what: &str) -> TokenStream {
        let ident = self.ident(what);
        if self.function.is_method { code!(Self::#ident) } else { code!(#ident) }
    }

    /// The body as it was written.
    fn unguarded(&self, written: Signature) -> ItemFn {
        let signature = Signature { ident: self.ident("unguarded"), abi: None, ..written };
        let lints = picked(self.function.attributes, &["allow", "expect", "warn", "deny", "forbid"]);
        let block = &*self.function.block;
        parse_quote!(#(#lints)* #signature #block)
    }

    /// Its limits, as a worker's gate.
    fn gate(&self) -> ItemFn {
        let Self { rules: Rules { krate, .. }, journal, function, .. } = self;
        let signature = Signature {
            ident: self.ident("gate"),
            abi: None,
            asyncness: parse_quote!(async),
            output: parse_quote!(-> #journal::Go),
            ..function.signature.clone()
        };
        let refused = code! {
            match #krate::__private::retry_in(&__tidegate_refusal) {
                ::core::result::Result::Ok(__tidegate_wait) => #journal::Go::ask_again(__tidegate_wait),
                ::core::result::Result::Err(__tidegate_reason) => #journal::Go::never(__tidegate_reason),
            }
        };
        let limiting = statement::limiting(self.rules, true, &refused);
        syn::parse_quote_spanned! {Span::mixed_site()=>
            #[allow(dead_code, unused_variables, clippy::all, clippy::pedantic)]
            #signature {
                #limiting
                #journal::Go::now().holding(__tidegate_held)
            }
        }
    }

    /// The name in the journal.
    fn method(&self) -> ItemFn {
        let Self { rules: Rules { krate, .. }, name, .. } = self;
        let ident = self.ident("method");
        let named = match &self.deferral.method {
            Some(given) => code!(::std::string::String::from(#given)),
            None if self.function.is_method => {
                code!(#krate::__private::deferred_method(::core::any::type_name::<Self>(), #name))
            }
            None => code! {
                fn __tidegate_path() -> &'static str {
                    ::core::any::type_name_of_val(&__tidegate_path)
                }
                #krate::__private::deferred_function(__tidegate_path())
            },
        };
        parse_quote!(fn #ident() -> ::std::string::String { #named })
    }

    /// What a worker is given.
    fn deferred(&self) -> Result<ItemFn> {
        let Self { deferral: Deferral { krate, .. }, journal, name, arguments, .. } = self;
        let (visibility, signature) = (self.function.visibility, &*self.function.signature);
        let ident = format_ident!("{name}_deferred", span = signature.ident.span());
        let receiver = signature.receiver();
        let input = receiver.map(|_| code!(this: ::std::sync::Arc<Self>));
        let bound =
            receiver.map(|_| code!(where Self: ::core::marker::Send + ::core::marker::Sync + 'static));
        let again = receiver.map(|_| code!(let this = ::std::sync::Arc::clone(&this);));
        let this = receiver.map(|receiver| if is_arc(receiver) { code!(this,) } else { code!(&this,) });
        let read = arguments.iter().map(|Argument { ident, name, owned, .. }| {
            code_at!(owned=> let #ident: #owned = __tidegate_replayed.read(#name)?;)
        });
        let read: TokenStream = read.collect();
        let passed = arguments.iter().map(|Argument { ident, is_borrowed, .. }| match is_borrowed {
            true => code!(&#ident),
            false => code!(#ident),
        });
        let passed = code!(#this #(#passed),*);
        let replay = |run: TokenStream| {
            code! {{
                #again
                move |__tidegate_replayed: #journal::site::Replayed| {
                    #again
                    async move {
                        #read
                        #run
                    }
                }
            }}
        };
        let (gate, unguarded, method) = (self.path("gate"), self.path("unguarded"), self.path("method"));
        let gate = replay(code!(::core::result::Result::Ok(#gate(#passed).await)));
        let run = match signature.asyncness {
            Some(_) => code!(#unguarded(#passed).await),
            None => code!(#journal::site::on_a_thread(move || #unguarded(#passed)).await),
        };
        let body = replay(code! {
            #[allow(unused_imports)]
            use #journal::site::{MayPass as _, SaysWhether as _};
            match #run {
                ::core::result::Result::Ok(value) => ::core::result::Result::Ok(value),
                ::core::result::Result::Err(error) => {
                    ::core::result::Result::Err((&error).__tidegate_kind().job_error(error))
                }
            }
        });
        let made = at_return(signature, &parse_quote!(#krate::site::method));
        let doc = format!(
            " What a worker needs to replay the calls that [`{name}`] deferred, behind the same limits: \
             `Worker::with` takes it."
        );
        syn::parse2(code! {
            #[doc = #doc]
            #visibility fn #ident(#input) -> #journal::Method #bound {
                let __tidegate_gate = #gate;
                let __tidegate_body = #body;
                #made(&#method(), __tidegate_gate, __tidegate_body)
            }
        })
    }

    /// What a refused call returns: that it was recorded, or that it was refused and why it
    /// could not be recorded.
    fn recorded(&self, refused: &TokenStream) -> TokenStream {
        let Self { rules: Rules { krate: tidegate, .. }, deferral, journal, arguments, .. } = self;
        let (krate, signature, method) = (&deferral.krate, &*self.function.signature, self.path("method"));
        let with = arguments
            .iter()
            .map(|Argument { ident, name, given, .. }| code_at!(given=> .with(#name, &#ident)));
        let to_text = |key: &syn::Expr| code_at!(key=> .key(::std::string::ToString::to_string(&(#key))));
        let key = deferral.key.as_ref().map(to_text);
        let deadline = deferral.deadline.as_ref().map(|time| code!(.deadline_in(#time)));
        let priority = deferral.priority.as_ref().map(|priority| code!(.priority(#priority)));
        let own = statement::optional_reference(journal, "Journal", deferral.journal.as_ref());
        let record = match signature.asyncness {
            Some(_) => code!(#journal::site::record(__tidegate_call, __tidegate_journal).await),
            None => code!(#journal::site::record_blocking(__tidegate_call, __tidegate_journal)),
        };
        let kept = at_return(signature, &parse_quote!(#krate::site::Kept::kept));
        code! {
            // A call that can never run is not kept.
            match #tidegate::__private::retry_in(&__tidegate_refusal) {
                ::core::result::Result::Err(_) => #refused,
                ::core::result::Result::Ok(_) => {
                    let __tidegate_call = #journal::site::Arguments::of(#method())#(#with)*.call();
                    let __tidegate_call = __tidegate_call.map(|call| call #key #deadline #priority);
                    #own
                    match #record {
                        ::core::result::Result::Ok(__tidegate_deferred) => #kept(__tidegate_deferred),
                        ::core::result::Result::Err(__tidegate_error) => {
                            let __tidegate_refusal = __tidegate_refusal.because(__tidegate_error);
                            #refused
                        }
                    }
                }
            }
        }
    }
}

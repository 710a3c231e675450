//! The statement that stands in front of a limited body: it decides, and returns if the call is
//! refused.

use crate::deferral::RETURNS;
use crate::errors::fail;
use crate::expressions::{as_number, as_word};
use crate::key::Part;
use crate::rule::{Otherwise, Rule, Rules};
use crate::{arguments, future};
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident};
use syn::spanned::Spanned;
use syn::{Expr, Ident, LitStr, Local, Pat, Path, Result, ReturnType, Signature, Stmt, Type};

/// Code whose names are its own: they neither see nor are seen by the function's.
macro_rules! code {
    ($($code:tt)*) => { ::quote::quote_spanned!(::proc_macro2::Span::mixed_site()=> $($code)*) };
}
pub(crate) use code;

/// The same, where an error in it points at what somebody wrote.
macro_rules! code_at {
    ($at:expr=> $($code:tt)*) => {
        ::quote::quote_spanned!($at.span().resolved_at(::proc_macro2::Span::mixed_site())=> $($code)*)
    };
}
pub(crate) use code_at;

/// A path as if it stood at this place, so that an error points there and not at the whole
/// attribute.
pub(crate) fn placed(path: &Path, at: Span) -> TokenStream {
    let located = |mut token: TokenTree| {
        // Only where it stands: what it means, `$crate` for example, stays.
        token.set_span(token.span().located_at(at));
        token
    };
    path.to_token_stream().into_iter().map(located).collect()
}

/// True for the statement that another `#[limited]` has put there, one that was imported
/// under another name for example.
pub(crate) fn is_limiting(first: &Stmt) -> bool {
    let Stmt::Local(Local { pat: Pat::Ident(bound), .. }) = first else { return false };
    bound.ident == "__tidegate_held"
}

/// The statement that lets the call through or returns.
pub(crate) fn limiting(rules: &Rules, is_async: bool, refused: &TokenStream) -> TokenStream {
    let krate = &rules.krate;
    let statics = rules.limits.iter().enumerate().map(|(at, rule)| limit(krate, at, rule));
    let checks = rules.limits.iter().enumerate().map(|(at, rule)| check(rules, at, rule));
    let limiter = optional_reference(krate, "Limiter", rules.limiter.as_ref());
    let decide = decide(rules, is_async);
    // Declared first, it is dropped last: what it holds is held until the body is over.
    code! {
        let __tidegate_held = {
            fn __tidegate_path() -> &'static str {
                ::core::any::type_name_of_val(&__tidegate_path)
            }
            #[allow(unused_imports)]
            use #krate::__private::AlwaysKnown as _;
            #(#statics)*
            #[allow(unused_variables)]
            #limiter
            #(#checks)*
            match #decide {
                ::core::result::Result::Ok(__tidegate_held) => __tidegate_held,
                ::core::result::Result::Err(__tidegate_refusal) => {
                    #[allow(unreachable_code)]
                    return #refused;
                }
            }
        };
    }
}

/// Binds what somebody wrote as an `Option<&T>`, with `T` a type of that crate: `Limiter` as
/// `__tidegate_limiter`. Statements, not a block: what the expression makes has to live on.
pub(crate) fn optional_reference(krate: &impl ToTokens, of: &str, given: Option<&Expr>) -> TokenStream {
    let span = given.map_or_else(Span::mixed_site, |given| given.span().resolved_at(Span::mixed_site()));
    let of_type = Ident::new(of, span);
    let name = format_ident!("__tidegate_{}", of.to_lowercase(), span = Span::mixed_site());
    match given {
        None => code!(let #name: ::core::option::Option<&#krate::#of_type> = ::core::option::Option::None;),
        Some(given) => {
            let own = code_at!(given=> let __tidegate_own: &#krate::#of_type = &(#given););
            code!(#own let #name = ::core::option::Option::Some(__tidegate_own);)
        }
    }
}

/// The static of one limit.
fn limit(krate: &Path, at: usize, rule: &Rule) -> TokenStream {
    let (ident, limit, nth) = (limit_ident(at), &rule.text, rule.nth);
    let (name, prefix) = (optional(rule.name.as_ref()), optional(rule.prefix.as_ref()));
    let (callers, missing) = (rule.callers(), Ident::new(rule.missing, Span::mixed_site()));
    code! {
        static #ident: #krate::__private::FunctionLimit =
            #krate::__private::FunctionLimit::new(#krate::__private::Definition {
                name: #name,
                nth: #nth,
                callers: #callers,
                missing: #krate::__private::Missing::#missing,
                prefix: #prefix,
                limit: #limit,
                path: __tidegate_path,
                location: ::core::concat!(::core::file!(), ":", ::core::line!()),
            });
    }
}

fn optional(text: Option<&LitStr>) -> TokenStream {
    text.map_or(code!(::core::option::Option::None), |text| code!(::core::option::Option::Some(#text)))
}

/// What a call checks of one limit: key and cost; of a fixed key, the cost alone.
fn check(rules: &Rules, at: usize, rule: &Rule) -> TokenStream {
    let (krate, limit, check) = (&rules.krate, limit_ident(at), check_ident(at));
    let cost = match &rule.cost {
        None => code!(1),
        Some(cost) if is_plain_number(cost) => code!(#cost),
        Some(cost) => {
            let krate = placed(krate, cost.span());
            code_at!(cost=> #krate::__private::Cost::units(#cost))
        }
    };
    if rules.has_fixed_key() {
        return code!(let #check: u64 = #cost;);
    }
    let count = rule.parts.len();
    let parts = rule.parts.iter().map(|part| match part {
        Part::Value(value) => code_at!(value=> .part(&(#value))),
        Part::Ip(Some(given)) => code_at!(given=> .ip(&(#given))),
        Part::User(Some(given)) => {
            let krate = placed(krate, given.span());
            code_at!(given=> .user(#krate::__private::Given(&(#given)).user()))
        }
        Part::Ip(None) => code!(.caller_ip()),
        Part::User(None) => code!(.caller_user()),
    });
    code!(let #check = #krate::__private::CallCheck::new(&#limit, #limit.key(#count)#(#parts)*, #cost);)
}

/// True for whole numbers without a type, and what is computed from them: they become what
/// a cost is, not the `i32` that they would be otherwise.
fn is_plain_number(expression: &Expr) -> bool {
    match expression {
        Expr::Binary(both) => is_plain_number(&both.left) && is_plain_number(&both.right),
        Expr::Paren(inner) => is_plain_number(&inner.expr),
        Expr::Group(inner) => is_plain_number(&inner.expr),
        other => as_number(other).is_some_and(|number| number.suffix().is_empty()),
    }
}

/// The expression that decides, of type `Result<_, Refusal>`.
fn decide(rules: &Rules, is_async: bool) -> TokenStream {
    let (krate, limit, check) = (&rules.krate, limit_ident(0), check_ident(0));
    // Who waits is settled here, not by what a limit is changed to while the program runs.
    let method = match rules.waits() {
        Some(_) => "acquire",
        None if rules.is_one_rate() => "check",
        None => "hold",
    };
    let suffix = if is_async { "_async" } else { "" };
    let method = format_ident!("{method}{suffix}", span = Span::mixed_site());
    let awaited = is_async.then(|| code!(.await));
    if rules.has_fixed_key() {
        return code!(#limit.#method(#check)#awaited);
    }
    if rules.is_one_rate() {
        return code!(#check.#method(__tidegate_limiter)#awaited);
    }
    let checks = (0..rules.limits.len()).map(check_ident);
    code!(#krate::__private::CallChecks::new(__tidegate_limiter, &[#(&#checks),*]).#method()#awaited)
}

/// What a refused call returns.
pub(crate) fn refused(rules: &Rules, signature: &mut Signature, is_async: bool) -> Result<TokenStream> {
    let krate = &rules.krate;
    let refusal = code!(__tidegate_refusal);
    match &rules.otherwise {
        Otherwise::Value(Expr::Tuple(unit)) if unit.elems.is_empty() => Ok(TokenStream::new()),
        Otherwise::Value(value) => Ok(code!(#value)),
        Otherwise::Call { called, is_awaited } => {
            if *is_awaited && !is_async {
                return fail(called, format!("`otherwise` awaits, and `{}` is not async", signature.ident));
            }
            let awaited = is_awaited.then(|| code!(.await));
            if let Expr::Closure(_) = called {
                return Ok(code!(#krate::__private::otherwise(#refusal, #called)#awaited));
            }
            // A name that an argument has is the argument, not a function beside it.
            if as_word(called).is_some_and(|name| arguments::names(signature).contains(&name.to_string())) {
                return Ok(code!(#called #awaited));
            }
            let arguments = arguments::passed_on(signature)?;
            Ok(code_at!(called=> #called(#(#arguments,)* #refusal)#awaited))
        }
        Otherwise::Error if !is_async && let Some(returned) = future::returned(signature) => {
            let what = "this function returns a future and is not understood: make it `async fn`, let \
                        `async move { ... }` be all that it returns, in `Box::pin(...)` for a boxed one, or \
                        write `otherwise = |refusal| ...`";
            fail(returned, what)
        }
        Otherwise::Error => {
            let what = "this function has no way to say that it was refused: return `Result<T, E>` where \
                        `E: From<tidegate::Refusal>`, or write `otherwise = |refusal| ...`";
            let what = if rules.deferral.is_some() { RETURNS } else { what };
            match &signature.output {
                ReturnType::Default => fail(&signature.ident, what),
                ReturnType::Type(_, returned) if matches!(**returned, Type::Never(_)) => fail(returned, what),
                ReturnType::Type(_, returned) => {
                    let krate = placed(krate, returned.span());
                    Ok(code_at!(returned=> #krate::__private::FromRefusal::from_refusal(#refusal)))
                }
            }
        }
    }
}

fn limit_ident(at: usize) -> Ident {
    format_ident!("__TIDEGATE_LIMIT_{at}", span = Span::mixed_site())
}

fn check_ident(at: usize) -> Ident {
    format_ident!("__tidegate_check_{at}", span = Span::mixed_site())
}

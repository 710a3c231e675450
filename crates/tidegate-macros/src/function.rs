//! One function: its body begins with the question whether it may run.
//!
//! The body itself is not moved anywhere, so that `?`, `return`, generics, lifetimes and
//! `self` stay what they were.

use crate::arguments;
use crate::rule::{Otherwise, Part, Rule, Rules};
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::spanned::Spanned;
use syn::{Block, Error, Expr, ExprLit, Lit, Path, Result, ReturnType, Signature, Stmt, Type, parse_quote};

/// Names in it are its own: they neither see nor are seen by the function's.
macro_rules! code {
    ($($code:tt)*) => { quote_spanned!(Span::mixed_site()=> $($code)*) };
}

/// Puts the limits in front of a function's body.
pub(crate) fn limit(rules: &Rules, signature: &mut Signature, block: &mut Block) -> Result<()> {
    if let Some(constness) = &signature.constness {
        let what = "a `const fn` cannot be limited: it can run while it is compiled, where nobody counts";
        return Err(Error::new(constness.span(), what));
    }
    let is_async = signature.asyncness.is_some() || boxed_future(signature, block).is_some();
    check_waiting(rules, signature, is_async)?;
    check_arguments(rules, signature)?;
    let refused = refused(rules, signature, is_async)?;
    let question = question(rules, is_async);
    let ask = ask(rules, &question, &refused);
    let body = match boxed_future(signature, block) {
        Some(body) if signature.asyncness.is_none() => body,
        _ => block,
    };
    let stmts = std::mem::take(&mut body.stmts);
    *body = parse_quote!({ #ask #(#stmts)* });
    Ok(())
}

/// The body of the future that a function returns in a box, as `#[async_trait]` makes it.
fn boxed_future<'a>(signature: &Signature, block: &'a mut Block) -> Option<&'a mut Block> {
    let ReturnType::Type(_, returned) = &signature.output else { return None };
    let Type::Path(returned) = &**returned else { return None };
    if returned.path.segments.last()?.ident != "Pin" {
        return None;
    }
    let Some(Stmt::Expr(Expr::Call(call), None)) = block.stmts.last_mut() else { return None };
    let Expr::Path(called) = &*call.func else { return None };
    let mut called = called.path.segments.iter().rev();
    if called.next()?.ident != "pin" || called.next()?.ident != "Box" {
        return None;
    }
    match call.args.first_mut()? {
        Expr::Async(future) => Some(&mut future.block),
        _ => None,
    }
}

fn check_waiting(rules: &Rules, signature: &Signature, is_async: bool) -> Result<()> {
    let Some(rule) = rules.waits().filter(|_| !is_async && rules.blocking.is_none()) else { return Ok(()) };
    let function = &signature.ident;
    let what = format!(
        "`{}` can tell a caller to wait, and `{function}` is not async: make it `async fn`, \
         leave the wait out, or write `blocking` to wait on the thread",
        rule.limit
    );
    Err(Error::new(rule.text.span(), what))
}

fn check_arguments(rules: &Rules, signature: &Signature) -> Result<()> {
    for rule in &rules.limits {
        for part in &rule.parts {
            match part {
                Part::Value(key) => arguments::check("key", key, signature)?,
                Part::Ip(given) | Part::User(given) => arguments::check("by", given, signature)?,
                Part::CallerIp | Part::CallerUser => {}
            }
        }
        if let Some(cost) = &rule.cost {
            arguments::check("cost", cost, signature)?;
        }
    }
    if let Some(limiter) = &rules.limiter {
        arguments::check("limiter", limiter, signature)?;
    }
    Ok(())
}

/// The statement that lets the call through or returns.
fn ask(rules: &Rules, question: &TokenStream, refused: &TokenStream) -> TokenStream {
    let krate = &rules.krate;
    let sites = rules.limits.iter().enumerate().map(|(at, rule)| site(rules, at, rule));
    let values = rules.limits.iter().enumerate().map(|(at, rule)| values(rules, at, rule));
    let limiter = match &rules.limiter {
        None => {
            code!(let __tidegate_limiter: ::core::option::Option<&#krate::Limiter> = ::core::option::Option::None;)
        }
        Some(limiter) => {
            let span = limiter.span().resolved_at(Span::mixed_site());
            let own = quote_spanned!(span=> let __tidegate_own: &#krate::Limiter = &(#limiter););
            code!(#own let __tidegate_limiter = ::core::option::Option::Some(__tidegate_own);)
        }
    };
    // Declared first, it is dropped last: what it holds is held until the body is over.
    code! {
        let __tidegate_held = {
            fn __tidegate_path() -> &'static str {
                ::core::any::type_name_of_val(&__tidegate_path)
            }
            #[allow(unused_imports)]
            use #krate::site::Shown as _;
            #(#sites)*
            #[allow(unused_variables)]
            #limiter
            #(#values)*
            match #question {
                ::core::result::Result::Ok(__tidegate_held) => __tidegate_held,
                ::core::result::Result::Err(__tidegate_refusal) => return #refused,
            }
        };
    }
}

/// The static of one limit.
fn site(rules: &Rules, at: usize, rule: &Rule) -> TokenStream {
    let (krate, ident) = (&rules.krate, site_ident(at));
    let text = |text: &Option<syn::LitStr>| match text {
        Some(text) => code!(::core::option::Option::Some(#text)),
        None => code!(::core::option::Option::None),
    };
    let (name, prefix, limit, nth) = (text(&rule.name), text(&rule.prefix), &rule.text, rule.nth);
    code! {
        static #ident: #krate::site::Site = #krate::site::Site::new(#krate::site::Text {
            name: #name,
            nth: #nth,
            prefix: #prefix,
            limit: #limit,
            path: __tidegate_path,
            place: ::core::concat!(::core::file!(), ":", ::core::line!()),
        });
    }
}

/// The key and the cost of one limit.
fn values(rules: &Rules, at: usize, rule: &Rule) -> TokenStream {
    let krate = &rules.krate;
    let (site, key_ident, cost_ident) = (site_ident(at), key_ident(at), cost_ident(at));
    let missing = if rule.refuses_unknown { code!(Refuse) } else { code!(Share) };
    let missing = code!(#krate::site::Missing::#missing);
    let mut key = TokenStream::new();
    if !is_fixed(rules) {
        let count = rule.parts.len();
        let parts = rule.parts.iter().map(|part| match part {
            Part::Value(value) => {
                let span = value.span().resolved_at(Span::mixed_site());
                quote_spanned!(span=> .part(&(#value)))
            }
            Part::Ip(given) => {
                let span = given.span().resolved_at(Span::mixed_site());
                quote_spanned!(span=> .ip(&(#given), #missing))
            }
            Part::User(given) => {
                let span = given.span().resolved_at(Span::mixed_site());
                quote_spanned!(span=> .user(#krate::site::Known(&(#given)).shown(), #missing))
            }
            Part::CallerIp => code!(.caller_ip(#missing)),
            Part::CallerUser => code!(.caller_user(#missing)),
        });
        key = code!(let #key_ident = #site.key(#count)#(#parts)*;);
    }
    let cost = match &rule.cost {
        None => code!(1),
        Some(cost @ Expr::Lit(ExprLit { lit: Lit::Int(_), .. })) => code!(#cost),
        Some(cost) => {
            let span = cost.span().resolved_at(Span::mixed_site());
            let krate = placed(krate, span);
            quote_spanned!(span=> #krate::site::Cost::units(#cost))
        }
    };
    code!(#key let #cost_ident: u64 = #cost;)
}

/// The expression that decides, of type `Result<_, Refusal>`.
fn question(rules: &Rules, is_async: bool) -> TokenStream {
    let krate = &rules.krate;
    let waits_or_holds = rules.waits().is_some() || rules.holds();
    if rules.limits.len() == 1 && !waits_or_holds {
        let (site, key, cost) = (site_ident(0), key_ident(0), cost_ident(0));
        return match (is_fixed(rules), is_async) {
            (true, false) => code!(#site.check_fixed(#cost)),
            (true, true) => code!(#site.check_fixed_async(#cost).await),
            (false, false) => code!(#site.check(__tidegate_limiter, &#key, #cost)),
            (false, true) => code!(#site.check_async(__tidegate_limiter, &#key, #cost).await),
        };
    }
    let asks = (0..rules.limits.len()).map(|at| {
        let (site, key, cost) = (site_ident(at), key_ident(at), cost_ident(at));
        code!(#krate::site::Ask { site: &#site, key: &#key, cost: #cost })
    });
    let asks = code!(#krate::site::Asks::new(__tidegate_limiter, &[#(#asks),*]));
    // Who waits is settled here, not by what a limit is changed to while the program runs.
    match (rules.waits().is_some(), rules.holds(), is_async) {
        (true, _, false) => code!(#asks.block()),
        (true, _, true) => code!(#asks.acquire().await),
        (false, true, false) => code!(#asks.take()),
        (false, true, true) => code!(#asks.take_async().await),
        (false, false, false) => code!(#asks.check()),
        (false, false, true) => code!(#asks.check_async().await),
    }
}

/// True if every call asks for the same key of the process's limiter, once.
fn is_fixed(rules: &Rules) -> bool {
    match rules.limits.as_slice() {
        [rule] => {
            rule.parts.is_empty() && rules.limiter.is_none() && rules.waits().is_none() && !rules.holds()
        }
        _ => false,
    }
}

/// What is returned instead.
fn refused(rules: &Rules, signature: &mut Signature, is_async: bool) -> Result<TokenStream> {
    let krate = &rules.krate;
    let refusal = code!(__tidegate_refusal);
    let check_await = |is_awaited: bool, at: &Expr| match is_awaited && !is_async {
        true => {
            let what = format!("`otherwise` awaits, and `{}` is not async", signature.ident);
            Err(Error::new(at.span(), what))
        }
        false => Ok(is_awaited.then(|| code!(.await))),
    };
    match &rules.otherwise {
        Otherwise::Value(Expr::Tuple(unit)) if unit.elems.is_empty() => Ok(TokenStream::new()),
        Otherwise::Value(value) => Ok(code!(#value)),
        Otherwise::Closure { closure, is_awaited } => {
            let awaited = check_await(*is_awaited, closure)?;
            Ok(code!(#krate::site::otherwise(#refusal, #closure)#awaited))
        }
        Otherwise::Call { path, is_awaited } => {
            let awaited = check_await(*is_awaited, path)?;
            let arguments = arguments::passed_on(signature)?;
            let span = path.span().resolved_at(Span::mixed_site());
            Ok(quote_spanned!(span=> #path(#(#arguments,)* #refusal)#awaited))
        }
        Otherwise::Error => {
            let what = "this function has no way to say that it was refused: return `Result<T, E>` where \
                        `E: From<tidegate::Refusal>`, or write `otherwise = |refusal| ...`";
            match &signature.output {
                ReturnType::Default => Err(Error::new(signature.ident.span(), what)),
                ReturnType::Type(_, returned) if matches!(**returned, Type::Never(_)) => {
                    Err(Error::new(returned.span(), what))
                }
                ReturnType::Type(_, returned) => {
                    let span = returned.span().resolved_at(Span::mixed_site());
                    let krate = placed(krate, span);
                    Ok(quote_spanned!(span=> #krate::site::Refused::refused(#refusal)))
                }
            }
        }
    }
}

/// The library's path as if it stood here, so that an error points here and not at the
/// whole attribute.
fn placed(krate: &Path, span: Span) -> TokenStream {
    let here = |mut token: TokenTree| {
        token.set_span(span);
        token
    };
    krate.to_token_stream().into_iter().map(here).collect()
}

fn site_ident(at: usize) -> syn::Ident {
    format_ident!("__TIDEGATE_SITE_{at}", span = Span::mixed_site())
}

fn key_ident(at: usize) -> syn::Ident {
    format_ident!("__tidegate_key_{at}", span = Span::mixed_site())
}

fn cost_ident(at: usize) -> syn::Ident {
    format_ident!("__tidegate_cost_{at}", span = Span::mixed_site())
}

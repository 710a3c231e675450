//! One function: its body begins with the question whether it may run.
//!
//! The body itself is not moved anywhere, so that `?`, `return`, generics, lifetimes and
//! `self` stay what they were.

use crate::constant::{self, Place};
use crate::deferral::RETURNS;
use crate::rule::{Otherwise, Part, Rule, Rules};
use crate::{arguments, attributes, future, replay};
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, Error, Expr, ExprLit, Ident, ImplItemFn, Item, ItemFn, Lit, Local, Macro, Pat, Path,
    Result, ReturnType, Signature, Stmt, Type, Visibility, parse_quote,
};

/// Names in it are its own: they neither see nor are seen by the function's.
macro_rules! code {
    ($($code:tt)*) => { quote_spanned!(Span::mixed_site()=> $($code)*) };
}
pub(crate) use code;

/// What is limited.
pub(crate) struct Function<'a> {
    pub(crate) attributes: &'a mut Vec<Attribute>,
    pub(crate) visibility: &'a Visibility,
    pub(crate) signature: &'a mut Signature,
    pub(crate) block: &'a mut Block,
    /// In an `impl` block, as far as that can be seen: an attribute above a function that
    /// has no `self` does not see what it is in.
    pub(crate) is_method: bool,
}

impl<'a> Function<'a> {
    pub(crate) fn item(function: &'a mut ItemFn) -> Self {
        let ItemFn { attrs: attributes, vis: visibility, sig: signature, block, .. } = function;
        let is_method = signature.receiver().is_some() || names_self(signature, block);
        Self { attributes, visibility, signature, block, is_method }
    }

    pub(crate) fn method(method: &'a mut ImplItemFn) -> Self {
        let ImplItemFn { attrs: attributes, vis: visibility, sig: signature, block, .. } = method;
        Self { attributes, visibility, signature, block, is_method: true }
    }
}

/// True if `Self` stands in it, which no free function can say. Items within have a `Self` of
/// their own; what a macro is given counts as it stands.
fn names_self(signature: &Signature, block: &Block) -> bool {
    struct Named(bool);
    impl<'a> Visit<'a> for Named {
        fn visit_ident(&mut self, ident: &'a Ident) {
            self.0 |= ident == "Self";
        }

        fn visit_macro(&mut self, called: &'a Macro) {
            self.0 |= stands_in(called.tokens.clone());
            visit::visit_macro(self, called);
        }

        fn visit_item(&mut self, _: &'a Item) {}
    }
    let mut named = Named(false);
    named.visit_signature(signature);
    named.visit_block(block);
    named.0
}

fn stands_in(code: TokenStream) -> bool {
    code.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "Self",
        TokenTree::Group(group) => stands_in(group.stream()),
        _ => false,
    })
}

/// Puts the limits in front of a function's body, and returns what has to stand beside it.
pub(crate) fn limit(rules: &Rules, function: &mut Function<'_>) -> Result<Vec<ItemFn>> {
    let Function { signature, block, .. } = function;
    if let Some(constness) = &signature.constness {
        let what = "a `const fn` cannot be limited: it can run while it is compiled, where nobody counts";
        return Err(Error::new(constness.span(), what));
    }
    let is_async = signature.asyncness.is_some() || future::body(signature, block)?.is_some();
    check_waiting(rules, signature, is_async)?;
    check_arguments(rules, signature)?;
    let mut refused = refused(rules, signature, is_async)?;
    let mut beside = Vec::new();
    if let Some(deferral) = &rules.deferral {
        (refused, beside) = replay::split(rules, deferral, function, &refused)?;
    }
    let Function { signature, block, .. } = function;
    let question = question(rules, is_async);
    let ask = ask(rules, &question, &refused, None);
    let body = match future::body(signature, block)? {
        Some(body) => body,
        None => block,
    };
    let stmts = std::mem::take(&mut body.stmts);
    if stmts.first().is_some_and(is_ask) {
        return Err(attributes::twice(&signature.ident));
    }
    *body = parse_quote!({ #ask #(#stmts)* });
    Ok(beside)
}

/// True for the statement that another `#[limited]` has put there, one that was imported
/// under another name for example.
pub(crate) fn is_ask(first: &Stmt) -> bool {
    let Stmt::Local(Local { pat: Pat::Ident(bound), .. }) = first else { return false };
    bound.ident == "__tidegate_held"
}

/// Refuses `blocking` on one async function. On an `impl` block it is for those methods
/// that are not.
pub(crate) fn check_blocking(rules: &Rules, signature: &Signature) -> Result<()> {
    let Some(span) = rules.blocking.filter(|_| signature.asyncness.is_some()) else { return Ok(()) };
    let what = format!("`{}` is async and awaits: leave `blocking` out", signature.ident);
    Err(Error::new(span, what))
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
            let (option, given, around) = match part {
                Part::Value(key) if rule.parts.len() > 1 => ("key", key, ("", "")),
                Part::Value(key) => ("key", key, ("key = ", "")),
                Part::Ip(given) => ("by", given, ("by = ip(", ")")),
                Part::User(given) => ("by", given, ("by = user(", ")")),
                Part::CallerIp | Part::CallerUser => continue,
            };
            let effect = match rule.parts.len() {
                1 => "all calls would share one allowance",
                _ => "it would tell no calls apart",
            };
            constant::check(&Place { effect, around }, given, signature)?;
            arguments::check(option, given, signature)?;
        }
        if let Some(cost) = &rule.cost {
            arguments::check("cost", cost, signature)?;
        }
    }
    if let Some(limiter) = &rules.limiter {
        arguments::check("limiter", limiter, signature)?;
    }
    if let Some(deferral) = &rules.deferral {
        deferral.check_arguments(signature)?;
    }
    Ok(())
}

/// The statement that lets the call through or returns. It may stand beside the function whose
/// limits it asks.
pub(crate) fn ask(
    rules: &Rules,
    question: &TokenStream,
    refused: &TokenStream,
    beside: Option<&str>,
) -> TokenStream {
    let krate = &rules.krate;
    let sites = rules.limits.iter().enumerate().map(|(at, rule)| site(rules, at, rule, beside));
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
                ::core::result::Result::Err(__tidegate_refusal) => {
                    #[allow(unreachable_code)]
                    return #refused;
                }
            }
        };
    }
}

/// The static of one limit.
fn site(rules: &Rules, at: usize, rule: &Rule, beside: Option<&str>) -> TokenStream {
    let (krate, ident) = (&rules.krate, site_ident(at));
    let (name, prefix, limit, nth) = (optional(&rule.name), optional(&rule.prefix), &rule.text, rule.nth);
    let beside = optional(&beside);
    code! {
        static #ident: #krate::site::Site = #krate::site::Site::new(#krate::site::Text {
            name: #name,
            nth: #nth,
            prefix: #prefix,
            limit: #limit,
            path: __tidegate_path,
            beside: #beside,
            place: ::core::concat!(::core::file!(), ":", ::core::line!()),
        });
    }
}

fn optional(text: &Option<impl ToTokens>) -> TokenStream {
    match text {
        Some(text) => code!(::core::option::Option::Some(#text)),
        None => code!(::core::option::Option::None),
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
                let krate = placed(krate, span);
                quote_spanned!(span=> .user(#krate::site::Known(&(#given)).shown(), #missing))
            }
            Part::CallerIp => code!(.caller_ip(#missing)),
            Part::CallerUser => code!(.caller_user(#missing)),
        });
        key = code!(let #key_ident = #site.key(#count)#(#parts)*;);
    }
    let cost = match &rule.cost {
        None => code!(1),
        Some(cost) if is_literal(cost) => code!(#cost),
        Some(cost) => {
            let span = cost.span().resolved_at(Span::mixed_site());
            let krate = placed(krate, span);
            quote_spanned!(span=> #krate::site::Cost::units(#cost))
        }
    };
    code!(#key let #cost_ident: u64 = #cost;)
}

/// True for whole numbers without a type, and what is reckoned from them: they become what
/// a cost is, not the `i32` that they would be otherwise.
fn is_literal(expression: &Expr) -> bool {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.suffix().is_empty(),
        Expr::Binary(both) => is_literal(&both.left) && is_literal(&both.right),
        Expr::Paren(inner) => is_literal(&inner.expr),
        Expr::Group(inner) => is_literal(&inner.expr),
        _ => false,
    }
}

/// The expression that decides, of type `Result<_, Refusal>`.
pub(crate) fn question(rules: &Rules, is_async: bool) -> TokenStream {
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
        // A name that an argument has is the argument, not a function beside it.
        Otherwise::Call { path: argument, is_awaited } if is_argument(argument, signature) => {
            let awaited = check_await(*is_awaited, argument)?;
            Ok(code!(#argument #awaited))
        }
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
        Otherwise::Error if !is_async && let Some(returned) = future::returned(signature) => {
            let what = "this function returns a future and is not understood: make it `async fn`, let \
                        `async move { ... }` be all that it returns, in `Box::pin(...)` for a boxed one, or \
                        write `otherwise = |refusal| ...`";
            Err(Error::new(returned.span(), what))
        }
        Otherwise::Error => {
            let what = "this function has no way to say that it was refused: return `Result<T, E>` where \
                        `E: From<tidegate::Refusal>`, or write `otherwise = |refusal| ...`";
            let what = if rules.deferral.is_some() { RETURNS } else { what };
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

fn is_argument(expression: &Expr, signature: &Signature) -> bool {
    let Expr::Path(path) = expression else { return false };
    path.path.get_ident().is_some_and(|name| arguments::names(signature).contains(name))
}

/// The library's path as if it stood here, so that an error points here and not at the
/// whole attribute.
pub(crate) fn placed(krate: &Path, span: Span) -> TokenStream {
    let here = |mut token: TokenTree| {
        // Only where it stands: what it means, `$crate` for example, stays.
        token.set_span(token.span().located_at(span));
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

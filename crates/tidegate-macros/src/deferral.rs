//! `otherwise = defer`: what it says, as far as it can be checked without the function.

use crate::errors::fail;
use crate::expressions::{as_number, as_text, ungrouped};
use crate::options::{crate_path, seen, unknown};
use crate::suggest::suggestion;
use crate::{arguments, constant};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, ExprAssign, LitStr, Path, Result, Signature, parse_quote};

/// How a refused call is recorded.
pub(crate) struct Deferral {
    /// The word `defer`.
    pub(crate) span: Span,
    pub(crate) method: Option<LitStr>,
    pub(crate) journal: Option<Expr>,
    pub(crate) key: Option<Expr>,
    pub(crate) deadline: Option<Expr>,
    pub(crate) priority: Option<Expr>,
    /// Where the journal is.
    pub(crate) krate: Path,
}

/// A method's name in the journal is at most so long, in bytes.
const METHOD_MAX: usize = 64;

/// What to write on a function that cannot say it.
pub(crate) const RETURNS: &str = "this function has no way to say that it was deferred: return `Result<T, E>` \
                                  where `E: From<tidegate_journal::Deferred> + From<tidegate::Refusal>`";

const KNOWN: [&str; 6] = ["key", "deadline", "priority", "method", "journal", "crate"];

impl Deferral {
    /// `defer` or `defer(...)`; none if it is something else.
    pub(crate) fn read(otherwise: &Expr) -> Result<Option<Self>> {
        let (word, options) = match otherwise {
            Expr::Paren(inner) => return Self::read(&inner.expr),
            Expr::Await(awaited) => {
                let awaits =
                    |deferral: Self| fail(&deferral.span, "`defer` awaits by itself: leave `.await` out");
                return Self::read(&awaited.base)?.map_or(Ok(None), awaits);
            }
            Expr::Call(call) => (&*call.func, Some(&call.args)),
            other => (other, None),
        };
        if !matches!(word, Expr::Path(word) if word.path.is_ident("defer")) {
            return Ok(None);
        }
        let mut deferral = Self {
            span: word.span(),
            method: None,
            journal: None,
            key: None,
            deadline: None,
            priority: None,
            krate: parse_quote!(::tidegate_journal),
        };
        let mut before = Vec::new();
        for option in options.into_iter().flatten() {
            let Expr::Assign(ExprAssign { left, right, .. }) = option else {
                let what = "`defer(...)` takes options, such as `defer(key = order_id, deadline = \"1h\")`; \
                            a function of that name is called as `self::defer`";
                return fail(option, what);
            };
            let (word, given) = (left.to_token_stream().to_string(), ungrouped((**right).clone()));
            seen(&mut before, left, &word)?;
            match word.as_str() {
                "key" => deferral.key = Some(given),
                "deadline" => deferral.deadline = Some(deadline(&given)?),
                "priority" => deferral.priority = Some(priority(&given)?),
                "method" => deferral.method = Some(method(&given)?),
                "journal" => deferral.journal = Some(given),
                "crate" => deferral.krate = crate_path(&given, "my_journal")?,
                _ => {
                    let hint = suggestion(&word, &KNOWN);
                    return unknown(left, &word, &format!(" of `defer`{hint}"), &KNOWN);
                }
            }
        }
        Ok(Some(deferral))
    }

    /// Refuses names that no argument has.
    pub(crate) fn check_arguments(&self, signature: &Signature) -> Result<()> {
        if let Some(key) = &self.key {
            constant::check(key, ("key = ", ""), "all deferred calls would be one record", signature)?;
        }
        let Self { key, deadline, priority, journal, .. } = self;
        let options = [("key", key), ("deadline", deadline), ("priority", priority), ("journal", journal)];
        options.iter().try_for_each(|(option, given)| arguments::check(option, given.as_ref(), signature))
    }

    /// The journal's path as if it stood at the word `defer`, so that an error points there
    /// if there is no such crate.
    pub(crate) fn krate(&self) -> TokenStream {
        crate::statement::placed(&self.krate, self.span)
    }
}

/// A text, which is read now, or an expression of type `Duration`.
fn deadline(given: &Expr) -> Result<Expr> {
    let Expr::Lit(_) = given else { return Ok(given.clone()) };
    let Some(text) = as_text(given) else {
        return fail(given, "`deadline` is a duration: write for example `deadline = \"1h\"`");
    };
    match tidegate_limit::parse_duration(&text.value()) {
        Ok(time) if time.is_zero() => {
            fail(text, "a deadline of 0 lets nothing start: write for example `1h`")
        }
        Ok(time) => {
            let micros = time.as_micros() as u64;
            syn::parse2(quote_spanned!(text.span()=> ::core::time::Duration::from_micros(#micros)))
        }
        Err(what) => fail(text, format!("{what}; write for example `1h`")),
    }
}

fn priority(given: &Expr) -> Result<Expr> {
    match as_number(given) {
        Some(number) if number.base10_parse::<u64>()? > 9 => {
            fail(number, "`priority` is 0 to 9, the highest first")
        }
        _ => Ok(given.clone()),
    }
}

fn method(given: &Expr) -> Result<LitStr> {
    let Some(text) = as_text(given) else {
        return fail(given, "`method` is a text, known when it is compiled: write `method = \"ship\"`");
    };
    let name = text.value();
    if name.is_empty() || name.len() > METHOD_MAX || name.contains('\0') {
        let what =
            format!("a method's name has 1 to {METHOD_MAX} bytes, and no NUL: write `method = \"ship\"`");
        return fail(text, what);
    }
    Ok(text.clone())
}

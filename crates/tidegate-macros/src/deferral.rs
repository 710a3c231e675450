//! `otherwise = defer`: what it says, as far as it can be checked without the function.

use crate::arguments;
use crate::constant::{self, Place};
use crate::options::ungrouped;
use crate::suggest::suggestion;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprAssign, ExprLit, Lit, LitStr, Path, Result, Signature, Token, parse_quote};

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
    /// `defer` or `defer(...)`; nothing if it is something else.
    pub(crate) fn read(otherwise: &Expr) -> Result<Option<Self>> {
        let (word, options) = match otherwise {
            Expr::Path(path) => (path, None),
            Expr::Paren(inner) => return Self::read(&inner.expr),
            Expr::Await(awaited) => {
                return match Self::read(&awaited.base)? {
                    Some(deferral) => {
                        Err(Error::new(deferral.span, "`defer` awaits by itself: leave `.await` out"))
                    }
                    None => Ok(None),
                };
            }
            Expr::Call(call) => match &*call.func {
                Expr::Path(path) => (path, Some(&call.args)),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        if !word.path.is_ident("defer") {
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
        if let Some(options) = options {
            deferral.options(options)?;
        }
        Ok(Some(deferral))
    }

    fn options(&mut self, options: &Punctuated<Expr, Token![,]>) -> Result<()> {
        let mut seen = Vec::new();
        for option in options {
            let Expr::Assign(ExprAssign { left, right, .. }) = option else {
                let what = "`defer(...)` takes options, such as `defer(key = order_id, deadline = \"1h\")`; \
                            a function of that name is called as `self::defer`";
                return Err(Error::new(option.span(), what));
            };
            let (word, given) = (left.to_token_stream().to_string(), ungrouped((**right).clone()));
            if seen.contains(&word) {
                return Err(Error::new(left.span(), format!("`{word}` stands there twice")));
            }
            match word.as_str() {
                "key" => self.key = Some(given),
                "deadline" => self.deadline = Some(deadline(&given)?),
                "priority" => self.priority = Some(priority(&given)?),
                "method" => self.method = Some(method(&given)?),
                "journal" => self.journal = Some(given),
                "crate" => self.krate = krate(&given)?,
                _ => {
                    let hint = suggestion(&word, KNOWN.into_iter());
                    let known = KNOWN.map(|known| format!("`{known}`")).join(", ");
                    let what = format!("`{word}` is not an option of `defer`{hint}; there are {known}");
                    return Err(Error::new(left.span(), what));
                }
            }
            seen.push(word);
        }
        Ok(())
    }

    /// Refuses names that no argument has.
    pub(crate) fn check_arguments(&self, signature: &Signature) -> Result<()> {
        let options = [
            ("key", &self.key),
            ("deadline", &self.deadline),
            ("priority", &self.priority),
            ("journal", &self.journal),
        ];
        if let Some(key) = &self.key {
            let place = Place { effect: "all deferred calls would be one record", around: ("key = ", "") };
            constant::check(&place, key, signature)?;
        }
        for (option, given) in options {
            if let Some(given) = given {
                arguments::check(option, given, signature)?;
            }
        }
        Ok(())
    }

    /// The journal's path as if it stood at the word `defer`, so that an error points there
    /// if there is no such crate.
    pub(crate) fn krate(&self) -> TokenStream {
        crate::function::placed(&self.krate, self.span)
    }
}

/// A text, which is read now, or an expression of type `Duration`.
fn deadline(given: &Expr) -> Result<Expr> {
    let Expr::Lit(ExprLit { lit, .. }) = given else { return Ok(given.clone()) };
    let Lit::Str(text) = lit else {
        let what = "`deadline` is a duration: write for example `deadline = \"1h\"`";
        return Err(Error::new(lit.span(), what));
    };
    let time = tidegate_limit::parse_duration(&text.value());
    let time = time.map_err(|what| Error::new(text.span(), format!("{what}; write for example `1h`")))?;
    if time.is_zero() {
        return Err(Error::new(text.span(), "a deadline of 0 lets nothing start: write for example `1h`"));
    }
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    syn::parse2(quote_spanned!(text.span()=> ::core::time::Duration::from_micros(#micros)))
}

fn priority(given: &Expr) -> Result<Expr> {
    if let Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) = given
        && number.base10_parse::<u64>()? > 9
    {
        return Err(Error::new(number.span(), "`priority` is 0 to 9, the highest first"));
    }
    Ok(given.clone())
}

fn method(given: &Expr) -> Result<LitStr> {
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = given else {
        let what = "`method` is a text, known when it is compiled: write `method = \"ship\"`";
        return Err(Error::new(given.span(), what));
    };
    let name = text.value();
    if name.is_empty() || name.len() > METHOD_MAX || name.contains('\0') {
        let what =
            format!("a method's name has 1 to {METHOD_MAX} bytes, and no NUL: write `method = \"ship\"`");
        return Err(Error::new(text.span(), what));
    }
    Ok(text.clone())
}

fn krate(given: &Expr) -> Result<Path> {
    match given {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path.clone()),
        other => {
            let what = "`crate` is a path: write for example `crate = my_journal`";
            Err(Error::new(other.span(), what))
        }
    }
}

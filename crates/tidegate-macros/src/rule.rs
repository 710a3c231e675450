//! What the options mean: the limits of a function, checked as far as they can be without
//! the function.

use crate::deferral::Deferral;
use crate::options::{By, Options};
use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, Lit, LitStr, Path, Result, parse_quote};
use tidegate_limit::{Algorithm, Limit};

/// Everything that `#[limited(...)]` says.
pub(crate) struct Rules {
    pub(crate) limits: Vec<Rule>,
    pub(crate) limiter: Option<Expr>,
    pub(crate) otherwise: Otherwise,
    /// A refused call is recorded; `otherwise` is for one that cannot be.
    pub(crate) deferral: Option<Deferral>,
    pub(crate) blocking: Option<Span>,
    pub(crate) krate: Path,
    /// Where to point if nothing better is known.
    pub(crate) span: Span,
}

/// One limit.
pub(crate) struct Rule {
    pub(crate) limit: Limit,
    pub(crate) text: LitStr,
    pub(crate) name: Option<LitStr>,
    /// Its place among the limits of the function that share a name.
    pub(crate) nth: usize,
    pub(crate) prefix: Option<LitStr>,
    pub(crate) parts: Vec<Part>,
    pub(crate) refuses_unknown: bool,
    pub(crate) cost: Option<Expr>,
}

/// A part of a key.
pub(crate) enum Part {
    Value(Expr),
    CallerIp,
    CallerUser,
    Ip(Expr),
    User(Expr),
}

/// What a refused call does.
pub(crate) enum Otherwise {
    /// `Err(E::from(refusal))`.
    Error,
    /// A function is called with the arguments and the refusal.
    Call { path: Expr, is_awaited: bool },
    /// A closure is called with the refusal.
    Closure { closure: Expr, is_awaited: bool },
    /// This is returned.
    Value(Expr),
}

impl Rules {
    pub(crate) fn new(options: &Options) -> Result<Self> {
        if let Some(span) = options.off {
            let what = "`off` exempts a method of a limited `impl` block: here is nothing to switch off";
            return Err(Error::new(span, what));
        }
        let deferral = options.otherwise.as_ref().map(Deferral::read).transpose()?.flatten();
        let otherwise = options.otherwise.clone().filter(|_| deferral.is_none());
        let span = options.limit.as_ref().map_or_else(Span::call_site, LitStr::span);
        let mut rules = Self {
            limits: Vec::new(),
            limiter: options.limiter.clone(),
            otherwise: Otherwise::new(otherwise)?,
            deferral,
            blocking: options.blocking,
            krate: options.krate.clone().unwrap_or_else(|| parse_quote!(::tidegate)),
            span,
        };
        let mut errors: Option<Error> = None;
        let mut note = |error: Error| match &mut errors {
            Some(errors) => errors.combine(error),
            None => errors = Some(error),
        };
        let (name, prefix) = (options.name.clone(), options.prefix.clone());
        let and = options.and.iter().map(|(span, options)| (*span, options));
        let all = std::iter::once((Span::call_site(), options)).chain(and);
        for (nth, (span, options)) in all.enumerate() {
            match Rule::new(options, span) {
                Ok(mut rule) => {
                    if rule.name.is_none() {
                        rule.nth = nth + 1;
                        rule.name.clone_from(&name);
                        rule.prefix = rule.prefix.or_else(|| prefix.clone());
                    }
                    rules.limits.push(rule);
                }
                Err(error) => note(error),
            }
        }
        for (at, rule) in rules.limits.iter().enumerate() {
            let is_same = |other: &&Rule| other.gate() == rule.gate() && other.limit != rule.limit;
            if rule.name.is_some()
                && let (Some(other), Some(name)) = (rules.limits[..at].iter().find(is_same), &rule.name)
            {
                let (text, name_text) = (other.limit.to_string(), name.value());
                note(Error::new(
                    name.span(),
                    format!("gate `{name_text}` is `{text}` already: write another name"),
                ));
            }
        }
        if let Some(span) = rules.blocking
            && rules.waits().is_none()
            && rules.deferral.is_none()
        {
            note(Error::new(
                span,
                "`blocking` is for a limit that can wait, and none here does: leave it out",
            ));
        }
        match errors {
            Some(errors) => Err(errors),
            None => Ok(rules),
        }
    }

    /// True if a caller may have to wait.
    pub(crate) fn waits(&self) -> Option<&Rule> {
        self.limits.iter().find(|rule| rule.limit.can_wait())
    }

    /// True if something is held until the function returns.
    pub(crate) fn holds(&self) -> bool {
        self.limits.iter().any(|rule| matches!(rule.limit.algorithm(), Algorithm::Concurrency { .. }))
    }
}

impl Rule {
    fn new(options: &Options, span: Span) -> Result<Self> {
        let Some(text) = options.limit.clone() else {
            let what = "there is no limit: write for example `limit = \"1000/s burst 20\"`";
            return Err(Error::new(span, what));
        };
        let limit: Limit = text.value().parse().map_err(|error| Error::new(text.span(), error))?;
        if let Some(name) = &options.name
            && !tidegate_limit::is_gate_name(&name.value())
        {
            let what = format!(
                "`{}` is not a name of a gate: {}",
                name.value().escape_debug(),
                tidegate_limit::NAME_RULE
            );
            return Err(Error::new(name.span(), what));
        }
        if let Some(Expr::Lit(ExprLit { lit: Lit::Int(cost), .. })) = &options.cost {
            limit.check_cost(cost.base10_parse()?).map_err(|what| Error::new(cost.span(), what))?;
        }
        let parts = parts(options)?;
        let refuses_unknown = match &options.missing {
            None => false,
            Some(word) if word == "share" => false,
            Some(word) if word == "refuse" => true,
            Some(word) => {
                let what =
                    format!("`missing` is `share` (one allowance for all of them) or `refuse`, not `{word}`");
                return Err(Error::new(word.span(), what));
            }
        };
        if let Some(word) = &options.missing
            && parts.iter().all(|part| matches!(part, Part::Value(_)))
        {
            let what = "`missing` is for callers that are not known: it goes with `by = ip` or `by = user`";
            return Err(Error::new(word.span(), what));
        }
        Ok(Self {
            limit,
            text,
            name: options.name.clone(),
            nth: 1,
            prefix: options.prefix.clone(),
            parts,
            refuses_unknown,
            cost: options.cost.clone(),
        })
    }

    fn gate(&self) -> (Option<String>, usize) {
        (self.name.as_ref().map(LitStr::value), self.nth)
    }
}

/// The parts of the key, who calls first.
fn parts(options: &Options) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for (at, By { word, given }) in options.by.iter().enumerate() {
        let shown = |given: &Option<Expr>| given.to_token_stream().to_string();
        let is_same = |other: &By| other.word == *word && shown(&other.given) == shown(given);
        if options.by[..at].iter().any(is_same) {
            return Err(Error::new(word.span(), format!("`{word}` stands in `by` twice")));
        }
        match (word.to_string().as_str(), given) {
            ("ip", None) => parts.push(Part::CallerIp),
            ("ip", Some(given)) => parts.push(Part::Ip(given.clone())),
            ("user", None) => parts.push(Part::CallerUser),
            ("user", Some(given)) => parts.push(Part::User(given.clone())),
            ("custom", _) if options.key.is_none() => {
                let what = "`by = custom` needs a key: write for example `key = goods_id`";
                return Err(Error::new(word.span(), what));
            }
            ("global", _) if options.key.is_some() => {
                let what = "`by = global` is one allowance for everybody: leave it out, or leave `key` out";
                return Err(Error::new(word.span(), what));
            }
            (_, _) if options.by.len() > 1 => {
                let what = format!("`by = {word}` stands alone");
                return Err(Error::new(word.span(), what));
            }
            _ => {}
        }
    }
    match &options.key {
        Some(Expr::Tuple(tuple)) if tuple.elems.is_empty() => {
            let what = "an empty key is everybody's: leave `key` out, or name an argument";
            return Err(Error::new(tuple.span(), what));
        }
        Some(Expr::Tuple(tuple)) => parts.extend(tuple.elems.iter().cloned().map(Part::Value)),
        Some(key) => parts.push(Part::Value(key.clone())),
        None => {}
    }
    Ok(parts)
}

impl Otherwise {
    fn new(expression: Option<Expr>) -> Result<Self> {
        Ok(match expression {
            None => Self::Error,
            Some(Expr::Await(awaited)) => match Self::new(Some(*awaited.base))? {
                Self::Call { path, .. } => Self::Call { path, is_awaited: true },
                Self::Closure { closure, .. } => Self::Closure { closure, is_awaited: true },
                Self::Value(value) => Self::Value(parse_quote!(#value.await)),
                Self::Error => Self::Error,
            },
            Some(Expr::Paren(inner)) => Self::new(Some(*inner.expr))?,
            Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. }))
                if syn::parse_str::<Path>(&text.value()).is_ok() =>
            {
                let name = text.value();
                let what = format!(
                    "this would return the text \"{name}\": write `otherwise = {name}` to call a function, or \
                     `otherwise = |_| \"{name}\"` if the text is meant"
                );
                return Err(Error::new(text.span(), what));
            }
            Some(expression) if is_function(&expression) => {
                Self::Call { path: expression, is_awaited: false }
            }
            Some(Expr::Closure(closure)) => {
                if closure.inputs.len() != 1 {
                    let what = "the closure takes the refusal: write `otherwise = |refusal| ...`";
                    return Err(Error::new(closure.inputs_begin.span(), what));
                }
                let is_awaited = closure.asyncness.is_some();
                Self::Closure { closure: Expr::Closure(closure), is_awaited }
            }
            Some(value) => Self::Value(value),
        })
    }
}

/// A path whose last word is a function's: constants, variants and units are written with
/// a capital and are values.
fn is_function(expression: &Expr) -> bool {
    let Expr::Path(path) = expression else { return false };
    let last = path.path.segments.last().map(|segment| segment.ident.to_token_stream().to_string());
    last.is_some_and(|name| name.trim_start_matches("r#").starts_with(|c: char| c.is_lowercase() || c == '_'))
}

//! What the options mean: the limits of a function, checked as far as they can be without
//! the function.

use crate::deferral::Deferral;
use crate::errors::{Errors, fail};
use crate::expressions::{as_number, as_text};
use crate::options::{By, Options};
use proc_macro2::Span;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{Error, Expr, LitStr, Path, Result, parse_quote};
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
    /// Which of the limits of the function that share a name it is, from 1.
    pub(crate) nth: usize,
    pub(crate) prefix: Option<LitStr>,
    pub(crate) parts: Vec<Part>,
    /// What happens to a caller who is not known: a variant of `Missing`.
    pub(crate) missing: &'static str,
    pub(crate) cost: Option<Expr>,
}

/// A part of a key. A caller that no argument names is the one of the running task.
pub(crate) enum Part {
    Value(Expr),
    Ip(Option<Expr>),
    User(Option<Expr>),
}

impl Part {
    /// True if it is the caller of the running task.
    pub(crate) fn is_caller(&self) -> bool {
        matches!(self, Self::Ip(None) | Self::User(None))
    }
}

/// What a refused call does.
pub(crate) enum Otherwise {
    /// `Err(E::from(refusal))`.
    Error,
    /// A function is called with the arguments and the refusal, or a closure with the refusal.
    Call { called: Expr, is_awaited: bool },
    /// This is returned.
    Value(Expr),
}

impl Rules {
    pub(crate) fn new(options: &Options) -> Result<Self> {
        if let Some(span) = options.off {
            let what = "`off` exempts a method of a limited `impl` block: here is nothing to switch off";
            return fail(&span, what);
        }
        let deferral = options.otherwise.as_ref().map(Deferral::read).transpose()?.flatten();
        let otherwise = match &options.otherwise {
            Some(otherwise) if deferral.is_none() => Otherwise::new(otherwise.clone())?,
            _ => Otherwise::Error,
        };
        let span = options.limit.as_ref().map_or_else(Span::call_site, LitStr::span);
        let mut rules = Self {
            limits: Vec::new(),
            limiter: options.limiter.clone(),
            otherwise,
            deferral,
            blocking: options.blocking,
            krate: options.krate.clone().unwrap_or_else(|| parse_quote!(::tidegate)),
            span,
        };
        let mut errors = Errors::default();
        let and = options.and.iter().map(|(span, options)| (*span, options));
        let all = std::iter::once((Span::call_site(), options)).chain(and);
        for (nth, (span, own)) in all.enumerate() {
            match Rule::new(own, span) {
                Ok(mut rule) => {
                    if rule.name.is_none() {
                        rule.nth = nth + 1;
                        rule.name.clone_from(&options.name);
                        rule.prefix = rule.prefix.or_else(|| options.prefix.clone());
                    }
                    rules.limits.push(rule);
                }
                Err(error) => errors.add(error),
            }
        }
        for (at, rule) in rules.limits.iter().enumerate() {
            let contradicts = |other: &&Rule| other.gate() == rule.gate() && other.limit != rule.limit;
            if let (Some(name), Some(other)) = (&rule.name, rules.limits[..at].iter().find(contradicts)) {
                let (limit, gate) = (&other.limit, name.value());
                let what = format!("gate `{gate}` is `{limit}` already: write another name");
                errors.add(Error::new(name.span(), what));
            }
        }
        if let Some(span) = rules.blocking
            && rules.waits().is_none()
            && rules.deferral.is_none()
        {
            let what = "`blocking` is for a limit that can wait, and none here does: leave it out";
            errors.add(Error::new(span, what));
        }
        errors.into_result().map(|()| rules)
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
            return fail(&span, "there is no limit: write for example `limit = \"1000/s burst 20\"`");
        };
        let limit = text.value().parse::<Limit>().or_else(|error| fail(&text, error))?;
        if let Some(name) = options.name.as_ref().filter(|name| !tidegate_limit::is_gate_name(&name.value()))
        {
            let (text, rule) = (name.value(), tidegate_limit::NAME_RULE);
            return fail(name, format!("`{}` is not a name of a gate: {rule}", text.escape_debug()));
        }
        if let Some(cost) = options.cost.as_ref().and_then(as_number) {
            limit.check_cost(cost.base10_parse()?).or_else(|what| fail(cost, what))?;
        }
        let parts = parts(options)?;
        let mut missing = "Share";
        if let Some(word) = &options.missing {
            missing = match word.to_string().as_str() {
                "share" => "Share",
                "refuse" => "Refuse",
                "skip" => "Skip",
                _ => {
                    let what = format!(
                        "`missing` is `share` (one allowance for all of them), `refuse` or `skip` (the limit \
                         does not apply to them), not `{word}`"
                    );
                    return fail(word, what);
                }
            };
            if parts.iter().all(|part| matches!(part, Part::Value(_))) {
                let what =
                    "`missing` is for callers that are not known: it goes with `by = ip` or `by = user`";
                return fail(word, what);
            }
        }
        let (name, prefix, cost) = (options.name.clone(), options.prefix.clone(), options.cost.clone());
        Ok(Self { limit, text, name, nth: 1, prefix, parts, missing, cost })
    }

    /// The callers in the key, as the library's rules name them: `user + ip`.
    pub(crate) fn callers(&self) -> String {
        let callers = self.parts.iter().filter_map(|part| match part {
            Part::Ip(_) => Some("ip"),
            Part::User(_) => Some("user"),
            Part::Value(_) => None,
        });
        callers.collect::<Vec<_>>().join(" + ")
    }

    fn gate(&self) -> (Option<String>, usize) {
        (self.name.as_ref().map(LitStr::value), self.nth)
    }
}

/// The parts of the key, who calls first.
fn parts(options: &Options) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for (at, By { word, given }) in options.by.iter().enumerate() {
        let source = |given: &Option<Expr>| given.to_token_stream().to_string();
        let is_same = |other: &By| other.word == *word && source(&other.given) == source(given);
        if options.by[..at].iter().any(is_same) {
            return fail(word, format!("`{word}` stands in `by` twice"));
        }
        match word.to_string().as_str() {
            "ip" => parts.push(Part::Ip(given.clone())),
            "user" => parts.push(Part::User(given.clone())),
            "custom" if options.key.is_none() => {
                return fail(word, "`by = custom` needs a key: write for example `key = goods_id`");
            }
            "global" if options.key.is_some() => {
                let what = "`by = global` is one allowance for everybody: leave it out, or leave `key` out";
                return fail(word, what);
            }
            _ if options.by.len() > 1 => return fail(word, format!("`by = {word}` stands alone")),
            _ => {}
        }
    }
    match &options.key {
        Some(Expr::Tuple(tuple)) if tuple.elems.is_empty() => {
            return fail(tuple, "an empty key is everybody's: leave `key` out, or name an argument");
        }
        Some(Expr::Tuple(tuple)) => parts.extend(tuple.elems.iter().cloned().map(Part::Value)),
        Some(key) => parts.push(Part::Value(key.clone())),
        None => {}
    }
    Ok(parts)
}

impl Otherwise {
    fn new(expression: Expr) -> Result<Self> {
        if let Some(text) = as_text(&expression)
            && syn::parse_str::<Path>(&text.value()).is_ok()
        {
            let name = text.value();
            let what = format!(
                "this would return the text \"{name}\": write `otherwise = {name}` to call a function, or \
                 `otherwise = |_| \"{name}\"` if the text is meant"
            );
            return fail(text, what);
        }
        Ok(match expression {
            Expr::Await(awaited) => match Self::new(*awaited.base)? {
                Self::Call { called, .. } => Self::Call { called, is_awaited: true },
                Self::Value(value) => Self::Value(parse_quote!(#value.await)),
                Self::Error => Self::Error,
            },
            Expr::Paren(inner) => Self::new(*inner.expr)?,
            Expr::Closure(closure) if closure.inputs.len() != 1 => {
                let what = "the closure takes the refusal: write `otherwise = |refusal| ...`";
                return fail(&closure.inputs_begin, what);
            }
            Expr::Closure(closure) => {
                let is_awaited = closure.asyncness.is_some();
                Self::Call { called: Expr::Closure(closure), is_awaited }
            }
            called if is_function(&called) => Self::Call { called, is_awaited: false },
            value => Self::Value(value),
        })
    }
}

/// A path whose last word is a function's: constants, variants and units are written with
/// a capital and are values.
fn is_function(expression: &Expr) -> bool {
    let Expr::Path(path) = expression else { return false };
    let last = path.path.segments.last().map(|segment| segment.ident.unraw().to_string());
    last.is_some_and(|name| name.starts_with(|c: char| c.is_lowercase() || c == '_'))
}

//! What the options mean: the limits of a function, checked as far as they can be without
//! the function.

use crate::deferral::Deferral;
use crate::errors::{fail, fail_with_all};
use crate::expressions::{as_number, as_text};
use crate::key::{self, Part};
use crate::options::Options;
use proc_macro2::Span;
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
        let mut errors = Vec::new();
        let and = options.and.iter().map(|(span, options)| (*span, options));
        let all = std::iter::once((Span::call_site(), options)).chain(and);
        for (nth, (span, own)) in all.enumerate() {
            match Rule::new(own, options, nth + 1, span) {
                Ok(rule) => rules.limits.push(rule),
                Err(error) => errors.push(error),
            }
        }
        for (at, rule) in rules.limits.iter().enumerate() {
            let gate = |rule: &Rule| (rule.name.as_ref().map(LitStr::value), rule.nth);
            let contradicts = |other: &&Rule| gate(other) == gate(rule) && other.limit != rule.limit;
            if let (Some(name), Some(other)) = (&rule.name, rules.limits[..at].iter().find(contradicts)) {
                let (limit, gate) = (&other.limit, name.value());
                let what = format!("gate `{gate}` is `{limit}` already: write another name");
                errors.push(Error::new(name.span(), what));
            }
        }
        if let Some(span) = rules.blocking
            && rules.waits().is_none()
            && rules.deferral.is_none()
        {
            let what = "`blocking` is for a limit that can wait, and none here does: leave it out";
            errors.push(Error::new(span, what));
        }
        fail_with_all(errors).map(|()| rules)
    }

    /// True if a caller may have to wait.
    pub(crate) fn waits(&self) -> Option<&Rule> {
        self.limits.iter().find(|rule| rule.limit.can_wait())
    }

    /// True if a call takes units of one limit, without a wait, and holds nothing.
    pub(crate) fn is_one_rate(&self) -> bool {
        let is_slots = |rule: &Rule| matches!(rule.limit.algorithm(), Algorithm::Concurrency { .. });
        matches!(&*self.limits, [rule] if !rule.limit.can_wait() && !is_slots(rule))
    }

    /// True if every call checks the same key of the process's limiter, and no other.
    pub(crate) fn has_fixed_key(&self) -> bool {
        self.is_one_rate() && self.limiter.is_none() && self.limits[0].parts.is_empty()
    }
}

impl Rule {
    /// The nth limit of a function; one without a name has the first one's.
    fn new(options: &Options, first: &Options, nth: usize, span: Span) -> Result<Self> {
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
        let parts = key::parts(options.by.as_ref(), options.key.as_ref())?;
        let missing = key::missing(options.missing.as_ref(), &parts)?;
        let (named, nth) = if options.name.is_some() { (options, 1) } else { (first, nth) };
        let (name, prefix) = (named.name.clone(), options.prefix.as_ref().or(named.prefix.as_ref()).cloned());
        Ok(Self { limit, text, name, nth, prefix, parts, missing, cost: options.cost.clone() })
    }

    /// The callers in the key, as the library's rules name them: `user + ip`.
    pub(crate) fn callers(&self) -> String {
        self.parts.iter().filter_map(Part::word).collect::<Vec<_>>().join(" + ")
    }
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

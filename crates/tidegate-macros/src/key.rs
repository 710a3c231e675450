//! Whose allowance it is: what `by` and `key` say, and who they leave out.

use crate::errors::fail;
use crate::expressions::{as_text, as_word, source, ungrouped};
use crate::suggest::suggestion;
use syn::{Expr, Ident, Result};

/// A part of a key. A caller that no argument names is the one of the running task.
pub(crate) enum Part {
    Value(Expr),
    Ip(Option<Expr>),
    User(Option<Expr>),
}

const CALLERS: [&str; 4] = ["ip", "user", "global", "custom"];

impl Part {
    /// True if it is the caller of the running task.
    pub(crate) fn is_caller(&self) -> bool {
        matches!(self, Self::Ip(None) | Self::User(None))
    }

    /// The word of a caller.
    pub(crate) fn word(&self) -> Option<&'static str> {
        match self {
            Self::Ip(_) => Some("ip"),
            Self::User(_) => Some("user"),
            Self::Value(_) => None,
        }
    }

    /// Who calls, in a word: `ip`, `user(account)`.
    fn caller(by: &Expr) -> Result<(Ident, Option<Expr>)> {
        let is_known = |text: &str| CALLERS.contains(&text);
        if let Some(literal) = as_text(by) {
            let text = literal.value();
            let what = match text.to_lowercase() {
                word if is_known(&word) => format!("`by` is a word, not a text: write `by = {word}`"),
                _ => format!(
                    "`by` is `ip`, `user`, `global` or `custom`, not a text; an argument is \
                     `by = user({text})` or `key = {text}`"
                ),
            };
            return fail(literal, what);
        }
        let (word, given) = match by {
            Expr::Call(call) => (&*call.func, Some(&call.args)),
            word => (word, None),
        };
        let Some(word) = as_word(word) else {
            let expr = source(by);
            let last = expr.rsplit("::").next().unwrap_or_default().to_lowercase();
            let what = match expr.contains("::") && is_known(&last) {
                true => format!("`by` is a word: write `by = {last}`"),
                false => format!(
                    "`by` says who calls in a word, and `{expr}` is an expression: write \
                     `by = user({expr})` or `key = {expr}`"
                ),
            };
            return fail(by, what);
        };
        let text = word.to_string();
        if !is_known(&text) {
            let lower = text.to_lowercase();
            let hint = match suggestion(&lower, &CALLERS) {
                none if none.is_empty() => format!("; an argument is `by = user({text})` or `key = {text}`"),
                hint => hint,
            };
            return fail(word, format!("`by` is `ip`, `user`, `global` or `custom`, not `{text}`{hint}"));
        }
        let given = given.map(|given| given.iter().collect::<Vec<_>>());
        match given.as_deref() {
            None => Ok((word.clone(), None)),
            Some(_) if text != "ip" && text != "user" => {
                fail(word, format!("`by = {text}` takes nothing in parentheses"))
            }
            Some([one]) => Ok((word.clone(), Some(ungrouped((*one).clone())))),
            Some(given) => {
                fail(given.get(1).unwrap_or(&by), format!("`by = {text}(...)` takes one expression"))
            }
        }
    }
}

/// The parts of the key, who calls first.
pub(crate) fn parts(by: Option<&Expr>, key: Option<&Expr>) -> Result<Vec<Part>> {
    let callers: Vec<&Expr> = match by {
        None => Vec::new(),
        Some(Expr::Tuple(all)) if all.elems.is_empty() => {
            return fail(all, "`by = ()` names nobody: leave it out, or write for example `by = user`");
        }
        Some(Expr::Tuple(all)) => all.elems.iter().collect(),
        Some(Expr::Paren(one)) => vec![&one.expr],
        Some(one) => vec![one],
    };
    let mut parts = Vec::new();
    for (at, by) in callers.iter().enumerate() {
        let (word, given) = Part::caller(by)?;
        if callers[..at].iter().any(|other| source(other) == source(by)) {
            return fail(&word, format!("`{word}` stands in `by` twice"));
        }
        match word.to_string().as_str() {
            "ip" => parts.push(Part::Ip(given)),
            "user" => parts.push(Part::User(given)),
            "custom" if key.is_none() => {
                return fail(&word, "`by = custom` needs a key: write for example `key = goods_id`");
            }
            "global" if key.is_some() => {
                let what = "`by = global` is one allowance for everybody: leave it out, or leave `key` out";
                return fail(&word, what);
            }
            _ if callers.len() > 1 => return fail(&word, format!("`by = {word}` stands alone")),
            _ => {}
        }
    }
    match key {
        Some(Expr::Tuple(tuple)) if tuple.elems.is_empty() => {
            return fail(tuple, "an empty key is everybody's: leave `key` out, or name an argument");
        }
        Some(Expr::Tuple(tuple)) => parts.extend(tuple.elems.iter().cloned().map(Part::Value)),
        Some(key) => parts.push(Part::Value(key.clone())),
        None => {}
    }
    Ok(parts)
}

/// What happens to callers that are not known: a variant of the library's `Missing`.
pub(crate) fn missing(given: Option<&Expr>, parts: &[Part]) -> Result<&'static str> {
    let Some(given) = given else { return Ok("Share") };
    let Some(word) = as_word(given) else {
        let not_a_text = if as_text(given).is_some() { ", not a text" } else { "" };
        return fail(given, format!("`missing` is a word{not_a_text}: write `missing = refuse`"));
    };
    if parts.iter().all(|part| part.word().is_none()) {
        let what = "`missing` is for callers that are not known: it goes with `by = ip` or `by = user`";
        return fail(word, what);
    }
    match word.to_string().as_str() {
        "share" => Ok("Share"),
        "refuse" => Ok("Refuse"),
        "skip" => Ok("Skip"),
        _ => {
            let what = format!(
                "`missing` is `share` (one allowance for all of them), `refuse` or `skip` (the limit \
                 does not apply to them), not `{word}`"
            );
            fail(word, what)
        }
    }
}

//! The words inside `#[limited(...)]`, as they are written.
//!
//! Only the grammar: what goes with what, and what it means, is in `rule.rs` and
//! `function.rs`.

use crate::errors::fail;
use crate::expressions::{as_text, as_word, source, ungrouped};
use crate::suggest::{said_by_a_limit, suggestion};
use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Expr, Ident, Lit, LitStr, Path, Result, Token, parenthesized, token};

/// What stands inside `#[limited(...)]`, or inside one `and(...)` of it.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) limit: Option<LitStr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) prefix: Option<LitStr>,
    pub(crate) key: Option<Expr>,
    pub(crate) by: Vec<By>,
    pub(crate) missing: Option<Ident>,
    pub(crate) cost: Option<Expr>,
    /// The rest stands outside of `and(...)` only.
    pub(crate) and: Vec<(Span, Options)>,
    pub(crate) limiter: Option<Expr>,
    pub(crate) otherwise: Option<Expr>,
    pub(crate) blocking: Option<Span>,
    pub(crate) krate: Option<Path>,
    pub(crate) off: Option<Span>,
    before: Vec<String>,
}

/// Whose allowance it is, in a word.
pub(crate) struct By {
    pub(crate) word: Ident,
    pub(crate) given: Option<Expr>,
}

const EACH: [&str; 7] = ["limit", "name", "prefix", "key", "by", "missing", "cost"];
const OUTSIDE: [&str; 6] = ["and", "limiter", "otherwise", "blocking", "crate", "off"];

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        Self::parse_within(input, true)
    }
}

impl Options {
    fn parse_within(input: ParseStream<'_>, is_outside: bool) -> Result<Self> {
        let mut options = Self::default();
        if input.peek(LitStr) {
            options.before.push("limit".into());
            options.limit = Some(input.parse()?);
            options.end(input)?;
        }
        while !input.is_empty() {
            options.option(input, is_outside)?;
            options.end(input)?;
        }
        Ok(options)
    }

    fn end(&self, input: ParseStream<'_>) -> Result<()> {
        if !input.is_empty() && input.parse::<Option<Token![,]>>()?.is_none() {
            return Err(input.error("options are separated by commas: write `,` before this"));
        }
        Ok(())
    }

    fn option(&mut self, input: ParseStream<'_>, is_outside: bool) -> Result<()> {
        if input.peek(LitStr) {
            return Err(input.error("the text of the limit comes first, or as `limit = \"...\"`"));
        }
        if self.limit.is_none() && input.peek(Lit) {
            let what = "a limit is a text that says its period, too: write for example `\"10 per 60s\"`";
            return Err(input.error(what));
        }
        if !input.peek(Ident::peek_any) {
            return Err(
                input.error("an option is a word, as in `#[limited(\"1000/s burst 20\", key = goods_id)]`")
            );
        }
        let written = input.fork();
        let word = Ident::parse_any(input)?;
        let text = word.to_string();
        if !is_outside && OUTSIDE.contains(&text.as_str()) {
            let what = format!(
                "`{text}` is said once for all limits of the function: write it outside of `and(...)`"
            );
            return fail(&word, what);
        }
        if text != "and" {
            seen(&mut self.before, &word, &text)?;
        }
        match text.as_str() {
            "limit" => self.limit = Some(literal(input, &word, "1000/s burst 20")?),
            "name" => self.name = Some(literal(input, &word, "checkout")?),
            "prefix" => self.prefix = Some(literal(input, &word, "goods:")?),
            "key" => self.key = Some(value(input, &word, "goods_id")?),
            "cost" => self.cost = Some(no_text(input, &word, "items.len()")?),
            "limiter" => self.limiter = Some(no_text(input, &word, "self.limiter")?),
            "otherwise" => self.otherwise = Some(value(input, &word, "|refusal| ...")?),
            "by" => self.by = By::all(value(input, &word, "user")?)?,
            "missing" => self.missing = Some(one_word(&word, &value(input, &word, "refuse")?, "refuse")?),
            "crate" => self.krate = Some(crate_path(&value(input, &word, "my_tidegate")?, "my_tidegate")?),
            "blocking" => self.blocking = Some(word.span()),
            "off" => self.off = Some(word.span()),
            "and" => {
                if !input.peek(token::Paren) {
                    return fail(&word, "`and` needs a limit: write `and(limit = \"...\")`");
                }
                let content;
                parenthesized!(content in input);
                self.and.push((word.span(), Self::parse_within(&content, false)?));
            }
            _ => {
                let hint = hint(&text, is_outside);
                let is_value = input.peek(Token![::]) || input.peek(Token![!]) || input.peek(Token![.]);
                let is_constant = text.starts_with(char::is_uppercase);
                let is_no_option = is_value || !input.peek(Token![=]) && (is_constant || hint.is_empty());
                if self.limit.is_none() && is_no_option {
                    return not_known_yet(&written, None);
                }
                return unknown(&word, &text, &hint, known(is_outside));
            }
        }
        Ok(())
    }
}

impl By {
    fn all(given: Expr) -> Result<Vec<Self>> {
        match given {
            Expr::Tuple(all) if all.elems.is_empty() => {
                fail(&all, "`by = ()` names nobody: leave it out, or write for example `by = user`")
            }
            Expr::Tuple(all) => all.elems.into_iter().map(|one| Self::new(&one)).collect(),
            Expr::Paren(one) => Ok(vec![Self::new(&one.expr)?]),
            one => Ok(vec![Self::new(&one)?]),
        }
    }

    fn new(expression: &Expr) -> Result<Self> {
        const KNOWN: [&str; 4] = ["ip", "user", "global", "custom"];
        let is_known = |text: &str| KNOWN.contains(&text);
        if let Some(literal) = as_text(expression) {
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
        let (word, given) = match expression {
            Expr::Call(call) => (&*call.func, Some(&call.args)),
            word => (word, None),
        };
        let Some(word) = as_word(word).cloned() else {
            let expr = source(expression);
            let last = expr.rsplit("::").next().unwrap_or_default().to_lowercase();
            let what = match expr.contains("::") && is_known(&last) {
                true => format!("`by` is a word: write `by = {last}`"),
                false => format!(
                    "`by` says who calls in a word, and `{expr}` is an expression: write \
                     `by = user({expr})` or `key = {expr}`"
                ),
            };
            return fail(expression, what);
        };
        let text = word.to_string();
        if !is_known(&text) {
            let lower = text.to_lowercase();
            let hint = match suggestion(&lower, KNOWN.into_iter()) {
                _ if is_known(&lower) => format!(" (did you mean `{lower}`?)"),
                none if none.is_empty() => format!("; an argument is `by = user({text})` or `key = {text}`"),
                hint => hint,
            };
            return fail(&word, format!("`by` is `ip`, `user`, `global` or `custom`, not `{text}`{hint}"));
        }
        let given = match given.map(|given| given.iter().collect::<Vec<_>>()).as_deref() {
            None => None,
            Some(_) if text != "ip" && text != "user" => {
                return fail(&word, format!("`by = {text}` takes nothing in parentheses"));
            }
            Some([one]) => Some(ungrouped((*one).clone())),
            Some(given) => {
                return fail(
                    given.get(1).unwrap_or(&expression),
                    format!("`by = {text}(...)` takes one expression"),
                );
            }
        };
        Ok(Self { word, given })
    }
}

fn equals(input: ParseStream<'_>, word: &Ident, example: &str) -> Result<()> {
    if input.parse::<Option<Token![=]>>()?.is_none() {
        return fail(word, format!("`{word}` needs a value: write `{word} = {example}`"));
    }
    Ok(())
}

fn value(input: ParseStream<'_>, word: &Ident, example: &str) -> Result<Expr> {
    equals(input, word, example)?;
    input.parse().map(ungrouped)
}

/// An expression; a text stands there in another language's annotation.
fn no_text(input: ParseStream<'_>, word: &Ident, example: &str) -> Result<Expr> {
    let given = value(input, word, example)?;
    let Some(text) = as_text(&given) else { return Ok(given) };
    let meant = syn::parse_str::<Expr>(&text.value()).map_or(example.to_string(), |_| text.value());
    fail(text, format!("`{word}` is an expression, not a text: write `{word} = {meant}`"))
}

/// A word; somebody may write it as a text or as a variant.
fn one_word(option: &Ident, given: &Expr, example: &str) -> Result<Ident> {
    let not_a_text = if as_text(given).is_some() { ", not a text" } else { "" };
    match as_word(given) {
        Some(word) => Ok(word.clone()),
        None => fail(given, format!("`{option}` is a word{not_a_text}: write `{option} = {example}`")),
    }
}

/// The path of a crate.
pub(crate) fn crate_path(given: &Expr, example: &str) -> Result<Path> {
    match (given, as_text(given)) {
        (Expr::Path(path), _) if path.qself.is_none() => Ok(path.path.clone()),
        (_, Some(text)) => {
            fail(text, format!("`crate` is a path, not a text: write `crate = {}`", text.value()))
        }
        _ => fail(given, format!("`crate` is a path: write for example `crate = {example}`")),
    }
}

fn literal(input: ParseStream<'_>, word: &Ident, example: &str) -> Result<LitStr> {
    equals(input, word, &format!("\"{example}\""))?;
    if input.peek(LitStr) {
        return input.parse();
    }
    if word == "limit" && input.peek(Lit) {
        let what = "`limit` is a text that says its period, too: write for example `limit = \"10 per 60s\"`";
        return Err(input.error(what));
    }
    if input.peek(Ident::peek_any) {
        return not_known_yet(input, Some((word, example)));
    }
    fail(&input.span(), format!("`{word}` is a text: write `{word} = \"{example}\"`"))
}

/// A constant or a call where a text has to be: this is read before anything has a value.
fn not_known_yet<T>(value: ParseStream<'_>, option: Option<(&Ident, &str)>) -> Result<T> {
    let span = value.span();
    let value = value.parse().map_or_else(|_| "this".into(), |value| format!("`{}`", source(&value)));
    let (is_limit, form) = match option {
        None => (true, "#[limited(\"1000/s burst 20\")]".to_string()),
        Some((word, example)) => (word == "limit", format!("{word} = \"{example}\"")),
    };
    let later = match is_limit {
        true => "; a limit that is known only when the program runs replaces it by `Gate::change`",
        false => "",
    };
    let what = format!(
        "{value} has no value yet, as `#[limited]` is read before constants are: write the text itself, as in \
         `{form}`{later}"
    );
    fail(&span, what)
}

fn hint(word: &str, is_outside: bool) -> String {
    match said_by_a_limit(word) {
        Some(limit) => format!(" (the text of the limit says it, as in `\"{limit}\"`)"),
        None => suggestion(word, known(is_outside)),
    }
}

/// Refuses an option that stands there already.
pub(crate) fn seen(before: &mut Vec<String>, at: &impl Spanned, word: &str) -> Result<()> {
    if before.iter().any(|before| before == word) {
        return fail(at, format!("`{word}` stands there twice"));
    }
    before.push(word.into());
    Ok(())
}

/// Refuses a word that is no option. `hint` says of what, or which word is meant.
pub(crate) fn unknown<T>(
    at: &impl Spanned,
    word: &str,
    hint: &str,
    known: impl Iterator<Item = &'static str>,
) -> Result<T> {
    let list: Vec<&str> = known.collect();
    fail(at, format!("`{word}` is not an option{hint}; there are `{}`", list.join("`, `")))
}

fn known(is_outside: bool) -> impl Iterator<Item = &'static str> {
    EACH.into_iter().chain(OUTSIDE.into_iter().filter(move |_| is_outside))
}

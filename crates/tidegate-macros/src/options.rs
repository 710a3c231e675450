//! The words inside `#[limited(...)]`, as they are written.
//!
//! Only the grammar: what goes with what, and what it means, is in `rule.rs`, `key.rs` and
//! `function.rs`.

use crate::errors::fail;
use crate::expressions::{as_text, source, ungrouped};
use crate::suggest::{said_by_a_limit, suggestion};
use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Ident, Lit, LitStr, Path, Result, Token, parenthesized, token};

/// What stands inside `#[limited(...)]`, or inside one `and(...)` of it.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) limit: Option<LitStr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) prefix: Option<LitStr>,
    pub(crate) key: Option<Expr>,
    pub(crate) by: Option<Expr>,
    pub(crate) missing: Option<Expr>,
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

const OF_A_LIMIT: &[&str] = &["limit", "name", "prefix", "key", "by", "missing", "cost"];
const OF_THE_FUNCTION: &[&str] = &["and", "limiter", "otherwise", "blocking", "crate", "off"];

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        Self::parse_within(input, &[OF_A_LIMIT, OF_THE_FUNCTION].concat())
    }
}

impl Options {
    fn parse_within(input: ParseStream<'_>, known: &[&str]) -> Result<Self> {
        let mut options = Self::default();
        if input.peek(LitStr) {
            options.before.push("limit".into());
            options.limit = Some(input.parse()?);
            options.end(input)?;
        }
        while !input.is_empty() {
            options.option(input, known)?;
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

    fn option(&mut self, input: ParseStream<'_>, known: &[&str]) -> Result<()> {
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
        if OF_THE_FUNCTION.contains(&&*text) && !known.contains(&&*text) {
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
            "by" => self.by = Some(value(input, &word, "user")?),
            "missing" => self.missing = Some(value(input, &word, "refuse")?),
            "crate" => self.krate = Some(crate_path(&value(input, &word, "my_tidegate")?, "my_tidegate")?),
            "blocking" => self.blocking = Some(word.span()),
            "off" => self.off = Some(word.span()),
            "and" => {
                if !input.peek(token::Paren) {
                    return fail(&word, "`and` needs a limit: write `and(limit = \"...\")`");
                }
                let content;
                parenthesized!(content in input);
                self.and.push((word.span(), Self::parse_within(&content, OF_A_LIMIT)?));
            }
            _ => {
                let hint = hint(&text, known);
                let is_value = input.peek(Token![::]) || input.peek(Token![!]) || input.peek(Token![.]);
                let is_constant = text.starts_with(char::is_uppercase);
                let is_no_option = is_value || !input.peek(Token![=]) && (is_constant || hint.is_empty());
                if self.limit.is_none() && is_no_option {
                    return not_known_yet(&written.parse()?, "limit", "#[limited(\"1000/s burst 20\")]");
                }
                return unknown(&word, &text, &hint, known);
            }
        }
        Ok(())
    }
}

fn value(input: ParseStream<'_>, word: &Ident, example: &str) -> Result<Expr> {
    match input.parse::<Option<Token![=]>>()? {
        Some(_) => input.parse().map(ungrouped),
        None => fail(word, format!("`{word}` needs a value: write `{word} = {example}`")),
    }
}

/// An expression; a text stands there in another language's annotation.
fn no_text(input: ParseStream<'_>, word: &Ident, example: &str) -> Result<Expr> {
    let given = value(input, word, example)?;
    let Some(text) = as_text(&given) else { return Ok(given) };
    let meant = syn::parse_str::<Expr>(&text.value()).map_or(example.to_string(), |_| text.value());
    fail(text, format!("`{word}` is an expression, not a text: write `{word} = {meant}`"))
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

/// A text, as this is read before anything has a value.
fn literal(input: ParseStream<'_>, word: &Ident, example: &str) -> Result<LitStr> {
    let form = format!("{word} = \"{example}\"");
    match value(input, word, &format!("\"{example}\""))? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text),
        // `10/s`, read as Rust, is a division.
        other @ (Expr::Lit(_) | Expr::Binary(_)) if word == "limit" => {
            let what =
                "`limit` is a text that says its period, too: write for example `limit = \"10 per 60s\"`";
            fail(&other, what)
        }
        Expr::Lit(other) => fail(&other, format!("`{word}` is a text: write `{form}`")),
        other => not_known_yet(&other, &word.to_string(), &form),
    }
}

/// A constant or a call where the text of this option has to be.
fn not_known_yet<T>(value: &Expr, option: &str, form: &str) -> Result<T> {
    let later = match option {
        "limit" => "; a limit that is known only when the program runs replaces it by `Gate::change`",
        _ => "",
    };
    let what = format!(
        "`{}` has no value yet, as `#[limited]` is read before constants are: write the text itself, as in \
         `{form}`{later}",
        source(value)
    );
    fail(value, what)
}

fn hint(word: &str, known: &[&str]) -> String {
    match said_by_a_limit(word) {
        Some(limit) => format!(" (the text of the limit says it, as in `\"{limit}\"`)"),
        None => suggestion(word, known),
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
pub(crate) fn unknown<T>(at: &impl Spanned, word: &str, hint: &str, known: &[&str]) -> Result<T> {
    fail(at, format!("`{word}` is not an option{hint}; there are `{}`", known.join("`, `")))
}

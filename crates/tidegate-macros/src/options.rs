//! The words inside `#[limited(...)]`, as they are written.
//!
//! Only the grammar: what goes with what, and what it means, is in `rule.rs` and
//! `function.rs`.

use crate::suggest::suggestion;
use proc_macro2::Span;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Ident, LitStr, Path, Result, Token, parenthesized, token};

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
    seen: Vec<Ident>,
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
            options.seen.push(Ident::new("limit", input.span()));
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
        if !input.peek(Ident::peek_any) {
            return Err(
                input.error("an option is a word, as in `#[limited(\"1000/s burst 20\", key = goods_id)]`")
            );
        }
        let word = Ident::parse_any(input)?;
        let text = word.to_string();
        if !is_outside && OUTSIDE.contains(&text.as_str()) {
            let what = format!(
                "`{text}` is said once for all limits of the function: write it outside of `and(...)`"
            );
            return Err(Error::new(word.span(), what));
        }
        if text != "and" && self.seen.contains(&word) {
            return Err(Error::new(word.span(), format!("`{text}` stands there twice")));
        }
        self.seen.push(word.clone());
        match text.as_str() {
            "limit" => self.limit = Some(literal(input, &word, "1000/s burst 20")?),
            "name" => self.name = Some(literal(input, &word, "checkout")?),
            "prefix" => self.prefix = Some(literal(input, &word, "goods:")?),
            "key" => self.key = Some(value(input, &word, "goods_id")?),
            "cost" => self.cost = Some(value(input, &word, "items.len()")?),
            "limiter" => self.limiter = Some(value(input, &word, "self.limiter")?),
            "otherwise" => self.otherwise = Some(value(input, &word, "|refusal| ...")?),
            "by" => {
                equals(input, &word, "user")?;
                self.by = By::parse_all(input)?;
            }
            "missing" => {
                equals(input, &word, "refuse")?;
                self.missing = Some(Ident::parse_any(input)?);
            }
            "crate" => {
                equals(input, &word, "my_tidegate")?;
                self.krate = Some(input.call(Path::parse_mod_style)?);
            }
            "blocking" => self.blocking = Some(word.span()),
            "off" => self.off = Some(word.span()),
            "and" => {
                if !input.peek(token::Paren) {
                    let what = "`and` needs a limit: write `and(limit = \"...\")`";
                    return Err(Error::new(word.span(), what));
                }
                let content;
                parenthesized!(content in input);
                self.and.push((word.span(), Self::parse_within(&content, false)?));
            }
            _ => return Err(unknown(&word, is_outside)),
        }
        Ok(())
    }
}

impl By {
    fn parse_all(input: ParseStream<'_>) -> Result<Vec<Self>> {
        if !input.peek(token::Paren) {
            return Ok(vec![Self::parse_one(input)?]);
        }
        let span = input.span();
        let content;
        parenthesized!(content in input);
        let all: Vec<Self> = content.parse_terminated(Self::parse_one, Token![,])?.into_iter().collect();
        if all.is_empty() {
            let what = "`by = ()` names nobody: leave it out, or write for example `by = user`";
            return Err(Error::new(span, what));
        }
        Ok(all)
    }

    fn parse_one(input: ParseStream<'_>) -> Result<Self> {
        let written = input.fork();
        let word = Ident::parse_any(input)?;
        let known = ["ip", "user", "global", "custom"];
        let text = word.to_string();
        if input.peek(Token![.]) || input.peek(Token![::]) || input.peek(token::Bracket) {
            let expression = written.parse().map_or(text, |expression| shown(&expression));
            let what = format!(
                "`by` says who calls in a word, and `{expression}` is an expression: write \
                 `by = user({expression})` or `key = {expression}`"
            );
            return Err(Error::new(word.span(), what));
        }
        if !known.contains(&text.as_str()) {
            let hint = match suggestion(&text, known.iter().copied()) {
                none if none.is_empty() => format!("; an argument is `by = user({text})` or `key = {text}`"),
                hint => hint,
            };
            let what = format!("`by` is `ip`, `user`, `global` or `custom`, not `{text}`{hint}");
            return Err(Error::new(word.span(), what));
        }
        let mut given = None;
        if input.peek(token::Paren) {
            if !matches!(text.as_str(), "ip" | "user") {
                return Err(Error::new(word.span(), format!("`by = {text}` takes nothing in parentheses")));
            }
            let content;
            parenthesized!(content in input);
            given = Some(content.parse().map(ungrouped)?);
            if !content.is_empty() {
                return Err(content.error(format!("`by = {text}(...)` takes one expression")));
            }
        }
        Ok(Self { word, given })
    }
}

/// An expression as somebody would write it.
fn shown(expression: &Expr) -> String {
    let text = expression.to_token_stream().to_string();
    [(" . ", "."), (" :: ", "::"), (" (", "("), ("( ", "("), (" )", ")"), (" [", "[")]
        .iter()
        .fold(text, |text, (from, to)| text.replace(from, to))
}

fn equals(input: ParseStream<'_>, word: &Ident, example: &str) -> Result<()> {
    if input.parse::<Option<Token![=]>>()?.is_none() {
        let what = format!("`{word}` needs a value: write `{word} = {example}`");
        return Err(Error::new(word.span(), what));
    }
    Ok(())
}

fn value(input: ParseStream<'_>, word: &Ident, example: &str) -> Result<Expr> {
    equals(input, word, example)?;
    input.parse().map(ungrouped)
}

/// What `$x:expr` of a `macro_rules!` stands for: it comes in a group that nobody wrote.
pub(crate) fn ungrouped(expression: Expr) -> Expr {
    match expression {
        Expr::Group(group) => ungrouped(*group.expr),
        other => other,
    }
}

fn literal(input: ParseStream<'_>, word: &Ident, example: &str) -> Result<LitStr> {
    equals(input, word, &format!("\"{example}\""))?;
    if !input.peek(LitStr) {
        let what = format!("`{word}` is a text, known when it is compiled: write `{word} = \"{example}\"`");
        return Err(Error::new(input.span(), what));
    }
    input.parse()
}

fn unknown(word: &Ident, is_outside: bool) -> Error {
    let known = EACH.iter().chain(OUTSIDE.iter().filter(|_| is_outside));
    let text = word.to_string();
    let hint = suggestion(&text, known.clone().copied());
    let list: Vec<String> = known.map(|word| format!("`{word}`")).collect();
    Error::new(word.span(), format!("`{text}` is not an option{hint}; there are {}", list.join(", ")))
}

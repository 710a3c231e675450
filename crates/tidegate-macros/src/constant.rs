//! Keys that are the same for every call.
//!
//! Whoever comes from annotations writes `key = "goods_id"` and means the argument. It would
//! compile, and all calls would share one allowance. So a literal is an error that names the
//! argument; `const { "everyone" }` says a constant on purpose, as does one with a name.

use crate::arguments;
use crate::errors::fail;
use crate::expressions::{inner, source};
use crate::suggest::{plain, suggestion};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, ExprMacro, Lit, Result, Signature, Token};

/// Refuses an expression that has the same value at every call. `around` is what stands before
/// and after it, such as `by = user(` and `)`; `effect` is what a constant would do.
pub(crate) fn check(
    expression: &Expr,
    (before, after): (&str, &str),
    effect: &str,
    signature: &Signature,
) -> Result<()> {
    if !is_constant(expression) {
        return Ok(());
    }
    let write = |what: &str| format!("`{before}{what}{after}`");
    let value = source(expression);
    let (text, names) = (text(expression), arguments::names(signature));
    let meant = text.as_deref().and_then(|text| argument(text, &names));
    let instead = match (meant, text) {
        (Some(argument), _) => format!("write {}", write(&argument)),
        (None, Some(text)) if captures(&text).iter().any(|name| names.contains(name)) => {
            format!("write {}", write(&format!("format_args!({text:?})")))
        }
        (None, text) => {
            let hint = text.as_deref().map(|text| suggestion(text, &names));
            let instead = match (names.as_slice(), hint) {
                ([], _) => "leave it out".to_string(),
                (_, Some(hint)) if !hint.is_empty() => format!("name an argument{hint}"),
                (names, _) => format!("name an argument (there is `{}`)", names.join("`, `")),
            };
            // Bytes have no `Display`, and so are no key.
            let constant = match text {
                Some(text) if value.starts_with('b') => format!("{text:?}"),
                _ => value.clone(),
            };
            let on_purpose = write(&format!("const {{ {constant} }}"));
            format!("{instead}, or write {on_purpose} if a constant is meant")
        }
    };
    fail(expression, format!("`{value}` is the same at every call, so {effect}: {instead}"))
}

fn is_constant(expression: &Expr) -> bool {
    match expression {
        Expr::Lit(_) => true,
        Expr::Binary(both) => is_constant(&both.left) && is_constant(&both.right),
        // `"goods_id".to_string()`
        Expr::MethodCall(call) => is_constant(&call.receiver) && call.args.iter().all(is_constant),
        // Other functions may look something up by a name: `header("x-tenant")`.
        Expr::Call(call) => {
            matches!(source(&call.func).as_str(), "String::from" | "Some")
                && call.args.iter().all(is_constant)
        }
        Expr::Macro(called) => is_constant_macro(called),
        // `{name}` in a text has the value of `name = 7`.
        Expr::Assign(named) => is_constant(&named.right),
        other => inner(other).is_some_and(is_constant),
    }
}

fn is_constant_macro(called: &ExprMacro) -> bool {
    let Some(name) = called.mac.path.segments.last() else { return false };
    match name.ident.to_string().as_str() {
        "concat" | "stringify" => true,
        "format" | "format_args" => is_constant_format(&given(called)),
        _ => false,
    }
}

/// What a macro is given, if it is a list of expressions.
fn given(called: &ExprMacro) -> Vec<Expr> {
    let given = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(called.mac.tokens.clone());
    given.map_or_else(|_| Vec::new(), |given| given.into_iter().collect())
}

/// True if nothing but literals is put into the text.
fn is_constant_format(given: &[Expr]) -> bool {
    let Some((Expr::Lit(ExprLit { lit: Lit::Str(template), .. }), values)) = given.split_first() else {
        return false;
    };
    let names =
        |value: &Expr, name: &str| matches!(value, Expr::Assign(named) if source(&named.left) == name);
    let is_given = |name: &String| values.iter().any(|value| names(value, name));
    values.iter().all(is_constant) && captures(&template.value()).iter().all(is_given)
}

/// The names in the braces of a format's text.
fn captures(template: &str) -> Vec<String> {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    let unescaped = template.replace("{{", "");
    let names = unescaped.split('{').skip(1).filter_map(|rest| rest.split(['}', ':']).next());
    names.map(|name| name.trim().to_string()).filter(|name| is_name(name)).collect()
}

/// The text of the literal that the expression begins with.
fn text(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        Expr::Lit(ExprLit { lit: Lit::ByteStr(text), .. }) => String::from_utf8(text.value()).ok(),
        Expr::MethodCall(call) => text(&call.receiver),
        Expr::Call(call) => call.args.first().and_then(text),
        Expr::Macro(called) => given(called).first().and_then(text),
        other => inner(other).and_then(text),
    }
}

/// The argument, or the field of one, that a text names, as it is written here: `goods_id` for
/// `"goodsId"`, `order.goods_id` for `"#order.goodsId"`.
fn argument(text: &str, names: &[String]) -> Option<String> {
    let path = text.trim_matches(|c: char| c.is_whitespace() || "#$@:{}".contains(c));
    let mut words = path.split('.');
    let first = plain(words.next()?);
    let name = names.iter().find(|name| plain(name) == first)?;
    words.try_fold(name.to_string(), |path, word| {
        let field: syn::Ident = syn::parse_str(&snake(word)).ok()?;
        Some(format!("{path}.{field}"))
    })
}

/// `goods_id` for `goodsId`.
fn snake(word: &str) -> String {
    let mut snake = String::new();
    for c in word.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]
mod tests {
    use super::*;
    use syn::parse_quote;

    #[test]
    fn what_is_the_same_at_every_call_is_constant() {
        for constant in [
            "\"goods_id\"",
            "b\"goods_id\"",
            "7",
            "'g'",
            "-1",
            "1 + 2",
            "&\"goods_id\"",
            "(\"goods_id\")",
            "\"goods_id\".to_string()",
            "String::from(\"goods_id\")",
            "Some(\"goods_id\")",
            "7 as u64",
            "format!(\"goods\")",
            "format_args!(\"{{goods_id}}\")",
            "format!(\"{}\", \"goods\")",
            "format!(\"{name}\", name = 7)",
            "concat!(\"goods\", 7)",
            "stringify!(goods_id)",
        ] {
            assert!(is_constant(&syn::parse_str(constant).unwrap()), "{constant}");
        }
    }

    #[test]
    fn what_depends_on_something_or_has_a_name_is_not() {
        for other in [
            "goods_id",
            "order.goods_id",
            "EVERYONE",
            "const { \"everyone\" }",
            "header(\"x-tenant\")",
            "current_tenant()",
            "goods_id % 2",
            "&goods_id[..2]",
            "\"goods\".len() + goods_id",
            "format!(\"{goods_id}\")",
            "format_args!(\"{goods_id:>4}\")",
            "format!(\"{}\", goods_id)",
            "format!(\"{name}\", name = goods_id)",
            "env!(\"REGION\")",
        ] {
            assert!(!is_constant(&syn::parse_str(other).unwrap()), "{other}");
        }
    }

    #[test]
    fn a_text_that_names_an_argument_becomes_the_argument() {
        let names = arguments::names(&parse_quote!(fn buy(&self, goods_id: u64, order: &Order)));
        let cases = [
            ("goods_id", Some("goods_id")),
            ("goodsId", Some("goods_id")),
            ("GOODS_ID", Some("goods_id")),
            ("#goodsId", Some("goods_id")),
            ("{goods_id}", Some("goods_id")),
            ("${order.buyerId}", Some("order.buyer_id")),
            ("self.shop", Some("self.shop")),
            ("order.", None),
            ("goods", None),
            ("goods_id order", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(argument(text, &names).as_deref(), expected, "{text}");
        }
    }
}

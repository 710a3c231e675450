//! Expressions and paths as somebody wrote them: what stands inside of the brackets, and the text.

use quote::ToTokens;
use syn::{Expr, ExprLit, Ident, Lit, LitInt, LitStr, Path};

/// An expression as somebody would write it.
pub(crate) fn source(expression: &Expr) -> String {
    let text = expression.to_token_stream().to_string();
    if let Expr::Lit(_) = expression {
        return text;
    }
    let spaced = [" . ", " :: ", " (", "( ", " )", " [", " !", " ,"];
    spaced.iter().fold(text, |text, spaced| text.replace(spaced, spaced.trim()))
}

/// What `$x:expr` of a `macro_rules!` stands for: it comes in a group that nobody wrote.
pub(crate) fn ungrouped(expression: Expr) -> Expr {
    match expression {
        Expr::Group(group) => ungrouped(*group.expr),
        other => other,
    }
}

/// What stands inside of `&x`, `-x`, `(x)` and `x as u64`.
pub(crate) fn inner(expression: &Expr) -> Option<&Expr> {
    match expression {
        Expr::Reference(inner) => Some(&inner.expr),
        Expr::Unary(inner) => Some(&inner.expr),
        Expr::Paren(inner) => Some(&inner.expr),
        Expr::Group(inner) => Some(&inner.expr),
        Expr::Cast(inner) => Some(&inner.expr),
        _ => None,
    }
}

/// The text, if it is a literal one.
pub(crate) fn as_text(expression: &Expr) -> Option<&LitStr> {
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = expression else { return None };
    Some(text)
}

/// The whole number, if it is a literal one.
pub(crate) fn as_number(expression: &Expr) -> Option<&LitInt> {
    let Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) = expression else { return None };
    Some(number)
}

/// The word, if it is nothing else.
pub(crate) fn as_word(expression: &Expr) -> Option<&Ident> {
    let Expr::Path(path) = expression else { return None };
    path.path.get_ident()
}

/// True if this is the last word of the path: of `a::b::Word<T>`, too.
pub(crate) fn ends_in(path: &Path, word: &str) -> bool {
    path.segments.last().is_some_and(|last| last.ident == word)
}

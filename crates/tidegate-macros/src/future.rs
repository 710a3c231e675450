//! Functions that are not async and return a future, as `#[async_trait]` makes them: what
//! is limited is the future, not the call that makes it.

use crate::errors::fail;
use crate::expressions::ends_in;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{Block, Expr, Result, ReturnType, Signature, Stmt, Type, TypeParamBound};

/// The body of the future that a function returns, if it does nothing else.
pub(crate) fn body<'a>(signature: &Signature, block: &'a mut Block) -> Result<Option<&'a mut Block>> {
    if signature.asyncness.is_some() || returned(signature).is_none() {
        return Ok(None);
    }
    let count = block.stmts.len();
    let Some(Stmt::Expr(last, None)) = block.stmts.last_mut() else { return Ok(None) };
    let span = last.span();
    let body = async_block(last);
    if body.is_some() && count > 1 {
        let what = "what stands before this future would run even if the call is refused: move all of it \
                    into the `async` block";
        return fail(&span, what);
    }
    Ok(body)
}

/// The type of the future that a function returns, as far as its name says so.
pub(crate) fn returned(signature: &Signature) -> Option<&Type> {
    let ReturnType::Type(_, returned) = &signature.output else { return None };
    let is_future = match &**returned {
        Type::Path(path) => match path.path.segments.last()?.ident.to_string().as_str() {
            "BoxFuture" | "LocalBoxFuture" => true,
            "Pin" => returned.to_token_stream().to_string().contains("Future"),
            _ => false,
        },
        Type::ImplTrait(all) => all
            .bounds
            .iter()
            .any(|bound| matches!(bound, TypeParamBound::Trait(bound) if ends_in(&bound.path, "Future"))),
        _ => false,
    };
    is_future.then_some(returned)
}

/// The block of `async { ... }`, of `Box::pin(async { ... })` and of `async { ... }.boxed()`.
fn async_block(expression: &mut Expr) -> Option<&mut Block> {
    match expression {
        Expr::Async(future) => Some(&mut future.block),
        Expr::MethodCall(call) if call.method == "boxed" || call.method == "boxed_local" => {
            async_block(&mut call.receiver)
        }
        Expr::Call(call) => {
            let Expr::Path(called) = &*call.func else { return None };
            let mut called = called.path.segments.iter().rev();
            if called.next()?.ident != "pin" || called.next()?.ident != "Box" {
                return None;
            }
            async_block(call.args.first_mut()?)
        }
        _ => None,
    }
}

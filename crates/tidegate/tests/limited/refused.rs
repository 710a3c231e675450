//! What a refused call returns.

use crate::{on_manual_clock, ready};
use tidegate::{Limiter, Refusal, limited};

#[derive(Debug)]
enum ShopError {
    Busy(Refusal),
    Empty,
}

impl From<Refusal> for ShopError {
    fn from(refusal: Refusal) -> Self {
        Self::Busy(refusal)
    }
}

#[limited("1/day", limiter = limiter)]
fn into_own_error(limiter: &Limiter, stock: Option<u32>) -> Result<u32, ShopError> {
    let stock = stock.ok_or(ShopError::Empty)?;
    if stock > 100 {
        return Ok(100);
    }
    Ok(stock)
}

#[test]
fn a_refusal_becomes_the_functions_own_error() {
    let limited = |stock| {
        let (_, limiter) = on_manual_clock();
        let first = into_own_error(&limiter, stock);
        match into_own_error(&limiter, stock) {
            Err(ShopError::Busy(refusal)) => assert_eq!(refusal.gate(), "limited::refused::into_own_error"),
            other => panic!("{other:?}"),
        }
        first
    };
    assert_eq!(limited(Some(7)).unwrap(), 7);
    assert_eq!(limited(Some(700)).unwrap(), 100, "`return` is the function's");
    assert!(matches!(limited(None), Err(ShopError::Empty)), "`?` is the function's");
}

#[limited("1/day", limiter = limiter)]
fn into_any_error(limiter: &Limiter) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    Ok(())
}

#[test]
fn any_error_that_takes_a_refusal_will_do() {
    let (_, limiter) = on_manual_clock();
    assert!(into_any_error(&limiter).is_ok());
    assert!(into_any_error(&limiter).unwrap_err().to_string().starts_with("denied by `limited::refused"));
}

mod fallback {
    use tidegate::{Limiter, Refusal};

    #[allow(clippy::needless_pass_by_value, reason = "it is called with the refusal")]
    pub(super) fn popular(_: &Limiter, count: usize, titles: Vec<String>, refusal: Refusal) -> Vec<String> {
        assert_eq!(refusal.gate(), "limited::refused::search");
        titles.into_iter().take(count).collect()
    }

    pub(super) async fn later(limiter: &Limiter, _: u32, refusal: Refusal) -> String {
        std::future::ready(()).await;
        format!("{} of {}", refusal.limit(), limiter.gates().len())
    }
}

#[limited("1/day", limiter = limiter, otherwise = fallback::popular)]
fn search(limiter: &Limiter, count: usize, mut titles: Vec<String>) -> Vec<String> {
    titles.truncate(count);
    titles.push("fresh".into());
    titles
}

#[test]
fn a_fallback_is_called_with_the_same_arguments() {
    let (_, limiter) = on_manual_clock();
    let titles = || vec!["tea".to_string(), "cup".to_string()];
    assert_eq!(search(&limiter, 1, titles()), ["tea", "fresh"]);
    assert_eq!(search(&limiter, 1, titles()), ["tea"]);
}

#[limited("1/day", limiter = limiter, otherwise = fallback::later.await)]
async fn with_async_fallback(limiter: &Limiter, _: u32) -> String {
    String::new()
}

#[limited("1/day", limiter = limiter, otherwise = async |refusal| fallback::later(limiter, 0, refusal).await)]
async fn with_async_closure(limiter: &Limiter) -> String {
    String::new()
}

#[test]
fn an_async_function_can_have_an_async_fallback() {
    let (_, limiter) = on_manual_clock();
    assert_eq!(ready(with_async_fallback(&limiter, 1)), "");
    assert_eq!(ready(with_async_fallback(&limiter, 1)), "1/day of 1");
    assert_eq!(ready(with_async_closure(&limiter)), "");
    assert_eq!(ready(with_async_closure(&limiter)), "1/day of 2");
}

#[limited("1/day", limiter = limiter, otherwise = |refusal| format!("{} for {name}", refusal.gate()))]
fn with_closure(limiter: &Limiter, name: String) -> String {
    name
}

#[limited("1/day", limiter = limiter, otherwise = None)]
fn with_value(limiter: &Limiter) -> Option<u32> {
    Some(1)
}

#[limited("1/day", limiter = limiter, otherwise = ())]
async fn with_nothing(limiter: &Limiter, ran: &mut u32) {
    *ran += 1;
}

#[test]
fn a_closure_or_a_value_is_a_fallback() {
    let (_, limiter) = on_manual_clock();
    assert_eq!(with_closure(&limiter, "ann".into()), "ann");
    assert_eq!(with_closure(&limiter, "ann".into()), "limited::refused::with_closure for ann");
    assert_eq!((with_value(&limiter), with_value(&limiter)), (Some(1), None));
    let mut ran = 0;
    ready(with_nothing(&limiter, &mut ran));
    ready(with_nothing(&limiter, &mut ran));
    assert_eq!(ran, 1);
}

#[limited("1/day", limiter = limiter, otherwise = fallback)]
fn with_argument(limiter: &Limiter, fallback: u32) -> u32 {
    fallback + 1
}

#[test]
fn a_name_that_an_argument_has_is_the_argument() {
    let (_, limiter) = on_manual_clock();
    assert_eq!((with_argument(&limiter, 7), with_argument(&limiter, 7)), (8, 7));
}

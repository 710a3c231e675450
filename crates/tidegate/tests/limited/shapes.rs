//! Functions of every shape keep it.

use crate::{on_manual_clock, ready};
use std::fmt::Display;
use std::future::Future;
use tidegate::{Limiter, Refusal, limited};

#[limited("1/day", key = item, limiter = limiter)]
fn generic<'a, T, const N: usize>(limiter: &Limiter, item: &'a T, _: [u8; N]) -> Result<&'a T, Refusal>
where
    T: Display + ?Sized,
{
    Ok(item)
}

#[test]
fn generics_lifetimes_and_where_clauses_stay() {
    let (_, limiter) = on_manual_clock();
    assert_eq!(generic(&limiter, "tea", [0; 3]).unwrap(), "tea");
    assert_eq!(*generic(&limiter, &7, [0; 4]).unwrap(), 7);
    let refusal = generic(&limiter, &7_u8, []).unwrap_err();
    assert_eq!(refusal.gate(), "limited::shapes::generic", "one gate for all instances");
}

struct Path<T>(T);

struct Pair {
    left: u32,
    right: u32,
}

#[limited("1/day", key = (id, left), limiter = limiter)]
fn taken_apart(
    limiter: &Limiter,
    Path(id): Path<u64>,
    Pair { left, right: mut sum }: Pair,
    (text, _): &(String, u8),
) -> Result<String, Refusal> {
    sum += left;
    Ok(format!("{id} {sum} {text}"))
}

#[test]
fn arguments_can_be_taken_apart() {
    let (_, limiter) = on_manual_clock();
    let call = || taken_apart(&limiter, Path(7), Pair { left: 1, right: 2 }, &("x".into(), 0));
    assert_eq!(call().unwrap(), "7 3 x");
    assert_eq!(call().unwrap_err().key(), "7+1");
}

#[limited("1/day", limiter = limiter)]
fn impl_trait(limiter: &Limiter, up_to: u32) -> Result<impl Iterator<Item = u32>, Refusal> {
    Ok(0..up_to)
}

#[limited("1/day", limiter = limiter, otherwise = |_| 0)]
extern "C" fn foreign(limiter: &Limiter) -> u32 {
    1
}

/// Documented.
#[limited("1/day", limiter = limiter, otherwise = |_| 0)]
#[inline]
#[must_use]
pub(crate) unsafe fn unsafely(limiter: &Limiter) -> u32 {
    1
}

#[test]
#[allow(unsafe_code)]
fn opaque_types_foreign_and_unsafe_functions_stay_what_they_are() {
    let (_, limiter) = on_manual_clock();
    assert_eq!(impl_trait(&limiter, 3).unwrap().sum::<u32>(), 3);
    assert!(impl_trait(&limiter, 3).is_err());
    assert_eq!((foreign(&limiter), foreign(&limiter)), (1, 0));
    // SAFETY: it does nothing.
    assert_eq!(unsafe { (unsafely(&limiter), unsafely(&limiter)) }, (1, 0));
}

/// Everything that the attribute's own code could be confused by.
#[limited("1/day", key = key, cost = cost, limiter = limiter)]
async fn clashing(
    limiter: &Limiter,
    key: u8,
    cost: u8,
    refusal: u8,
    held: u8,
    site: u8,
) -> Result<u32, Refusal> {
    #[allow(dead_code)]
    struct Option;
    #[allow(dead_code)]
    enum Result {}
    fn path() -> u32 {
        1
    }
    let __tidegate_held = u32::from(refusal) + u32::from(held) + u32::from(site) + u32::from(key);
    core::result::Result::Ok(__tidegate_held + u32::from(cost) + path())
}

#[test]
fn names_do_not_clash() {
    let (_, limiter) = on_manual_clock();
    assert_eq!(ready(clashing(&limiter, 1, 1, 1, 1, 1)).unwrap(), 6);
    assert!(ready(clashing(&limiter, 1, 1, 1, 1, 1)).is_err());
}

#[test]
fn a_function_in_a_function_has_a_path_of_its_own() {
    #[limited("1/day", limiter = limiter)]
    fn inner(limiter: &Limiter) -> Result<(), Refusal> {
        Ok(())
    }
    let (_, limiter) = on_manual_clock();
    assert!(inner(&limiter).is_ok());
    let path = "limited::shapes::a_function_in_a_function_has_a_path_of_its_own::inner";
    let gate = inner(&limiter).unwrap_err().gate().to_string();
    assert!(gate.len() <= 64 && gate.ends_with("a_path_of_its_own::inner"), "{gate} for {path}");
}

mod renamed {
    use tidegate as gates;

    #[gates::limited("1/day", limiter = limiter, crate = gates)]
    pub(super) fn call(limiter: &gates::Limiter) -> Result<(), gates::Refusal> {
        Ok(())
    }
}

#[test]
fn the_library_can_have_another_name() {
    let (_, limiter) = on_manual_clock();
    assert!(renamed::call(&limiter).is_ok() && renamed::call(&limiter).is_err());
}

mod gates {
    pub(super) use tidegate::*;
}

/// What a `macro_rules!` passes on: its own path to the library, and expressions.
mod by_macro {
    macro_rules! limited_fn {
        ($name:ident($($argument:ident: $type:ty),*), $key:expr, $cost:expr, $otherwise:expr) => {
            #[tidegate::limited(
                "6/day", key = $key, cost = $cost, limiter = limiter, otherwise = $otherwise, crate = $crate::shapes::gates
            )]
            pub(super) fn $name(limiter: &tidegate::Limiter, $($argument: $type),*) -> u32 {
                1
            }
        };
    }

    #[allow(clippy::needless_pass_by_value, reason = "it is called with the refusal")]
    fn fallback(_: &tidegate::Limiter, user: u8, goods: u8, _: tidegate::Refusal) -> u32 {
        u32::from(user + goods)
    }

    limited_fn!(pair(user: u8, goods: u8), (user, goods), 2 * 3, fallback);
    limited_fn!(one(user: u8), user, 6u16, |refusal| u32::try_from(refusal.key().len()).unwrap_or(0));
}

#[test]
fn what_a_macro_passes_on_is_what_it_stands_for() {
    let (_, limiter) = on_manual_clock();
    assert_eq!(by_macro::pair(&limiter, 20, 3), 1);
    assert_eq!(by_macro::pair(&limiter, 20, 3), 23, "a function is called");
    assert_eq!(limiter.get("limited::shapes::by_macro::pair").unwrap().peek("20+3").remaining(), 0);
    assert_eq!(by_macro::one(&limiter, 123), 1);
    assert_eq!(by_macro::one(&limiter, 123), 3, "and a closure is one");
}

#[limited("6/day", limiter = limiter, cost = 2 * 3)]
fn reckoned(limiter: &Limiter) -> Result<(), Refusal> {
    Ok(())
}

#[limited("6/day", limiter = limiter, cost = 6u32)]
fn with_a_type(limiter: &Limiter) -> Result<(), Refusal> {
    Ok(())
}

#[test]
fn a_cost_is_any_whole_number() {
    let (_, limiter) = on_manual_clock();
    assert!(reckoned(&limiter).is_ok() && with_a_type(&limiter).is_ok());
    assert_eq!(reckoned(&limiter).unwrap_err().decision().remaining(), 0);
    assert_eq!(with_a_type(&limiter).unwrap_err().decision().remaining(), 0);
}

#[limited("1/day", limiter = limiter)]
#[allow(clippy::manual_async_fn, reason = "as traits with futures require it")]
fn future_of(limiter: &Limiter) -> impl Future<Output = Result<u32, Refusal>> {
    async move {
        std::future::ready(()).await;
        Ok(1)
    }
}

#[limited("1/day", limiter = limiter)]
fn boxed_future(limiter: &Limiter) -> std::pin::Pin<Box<dyn Future<Output = Result<u32, Refusal>> + '_>> {
    Box::pin(async move { Ok(1) })
}

#[test]
fn a_function_that_only_returns_a_future_is_limited_when_that_is_awaited() {
    let (_, limiter) = on_manual_clock();
    drop(future_of(&limiter));
    assert!(ready(future_of(&limiter)).is_ok() && ready(future_of(&limiter)).is_err());
    drop(boxed_future(&limiter));
    assert!(ready(boxed_future(&limiter)).is_ok() && ready(boxed_future(&limiter)).is_err());
}

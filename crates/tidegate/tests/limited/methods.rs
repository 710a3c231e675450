//! Methods and `impl` blocks.

use crate::{on_manual_clock, ready};
use tidegate::{Limiter, Refusal, limited};

struct Shop {
    limiter: Limiter,
    sold: u32,
}

fn shop() -> Shop {
    Shop { limiter: on_manual_clock().1, sold: 0 }
}

impl Shop {
    #[limited("1/day", limiter = self.limiter, key = goods)]
    fn look(&self, goods: &str) -> Result<u32, Refusal> {
        Ok(self.sold)
    }

    #[limited("1/day", limiter = self.limiter)]
    async fn sell(&mut self) -> Result<u32, Refusal> {
        self.sold += 1;
        Ok(self.sold)
    }

    #[limited("1/day", limiter = self.limiter, otherwise = Self::refused)]
    fn close(self) -> u32 {
        self.sold
    }

    #[allow(clippy::needless_pass_by_value, reason = "it is called with the refusal")]
    fn refused(self, refusal: Refusal) -> u32 {
        assert!(refusal.retry_after().is_some());
        self.sold + 1_000
    }

    #[limited("1/day", limiter = limiter)]
    fn open(limiter: Limiter) -> Result<Self, Refusal> {
        Ok(Self { limiter, sold: 0 })
    }
}

#[test]
fn methods_are_limited_with_any_kind_of_self_or_none() {
    let mut shop = shop();
    assert_eq!(shop.look("tea").unwrap(), 0);
    assert!(shop.look("cup").is_ok());
    let refusal = shop.look("tea").unwrap_err();
    assert_eq!((refusal.gate(), refusal.key()), ("limited::methods::Shop::look", "tea"));
    assert_eq!(ready(shop.sell()).unwrap(), 1);
    assert!(ready(shop.sell()).is_err());
    let limiter = shop.limiter.clone();
    assert_eq!(shop.close(), 1);
    assert_eq!(Shop { limiter: limiter.clone(), sold: 0 }.close(), 1_000);
    assert!(Shop::open(limiter.clone()).is_ok());
    assert_eq!(Shop::open(limiter).map(drop).unwrap_err().gate(), "limited::methods::Shop::open");
}

struct Api(Limiter);

#[limited("1/day", limiter = self.0)]
impl Api {
    const VERSION: u32 = 1;

    fn one(&self) -> Result<u32, Refusal> {
        Ok(Self::VERSION)
    }

    async fn two(&self) -> Result<u32, Refusal> {
        Ok(2)
    }

    #[limited("2/day", limiter = self.0)]
    fn twice(&self) -> Result<u32, Refusal> {
        Ok(3)
    }

    #[limited(off)]
    fn health(&self) -> u32 {
        4
    }

    #[tidegate::limited(off)]
    fn new(limiter: Limiter) -> Self {
        Self(limiter)
    }
}

#[test]
fn a_block_limits_each_of_its_methods_but_for_those_that_say_otherwise() {
    let api = Api::new(on_manual_clock().1);
    assert!(api.one().is_ok());
    assert!(ready(api.two()).is_ok(), "each method has an allowance of its own");
    assert!(api.one().is_err());
    assert_eq!(ready(api.two()).unwrap_err().gate(), "limited::methods::Api::two");
    assert!(api.twice().is_ok() && api.twice().is_ok() && api.twice().is_err());
    assert!((0..10).all(|_| api.health() == 4));
}

struct Shared(Limiter);

#[limited("2/day", name = "shared", prefix = "", limiter = self.0)]
impl Shared {
    fn one(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn two(&self) -> Result<(), Refusal> {
        Ok(())
    }
}

#[test]
fn a_block_with_one_name_and_prefix_shares_one_allowance() {
    let shared = Shared(on_manual_clock().1);
    assert!(shared.one().is_ok() && shared.two().is_ok());
    assert!(shared.one().is_err() && shared.two().is_err());
}

trait Sells {
    fn sell(&self, goods: u64) -> Result<u64, Refusal>;

    #[limited("1/day", key = goods, limiter = self.limiter())]
    fn offer(&self, goods: u64) -> Result<u64, Refusal> {
        Ok(goods)
    }

    fn limiter(&self) -> &Limiter;
}

#[limited("1/day", key = goods, limiter = self.0)]
impl Sells for Api {
    fn sell(&self, goods: u64) -> Result<u64, Refusal> {
        Ok(goods)
    }

    #[limited(off)]
    fn limiter(&self) -> &Limiter {
        &self.0
    }
}

#[test]
fn trait_impls_and_provided_methods_are_limited_too() {
    let api = Api::new(on_manual_clock().1);
    assert!(api.sell(7).is_ok());
    assert_eq!(api.sell(7).unwrap_err().gate(), "limited::methods::Api/limited::methods::Sells::sell");
    assert!(api.offer(7).is_ok());
    assert_eq!(api.offer(7).unwrap_err().gate(), "limited::methods::Sells::offer");
}

#[async_trait::async_trait]
trait Greets {
    async fn greet(&self, name: &str) -> Result<String, Refusal>;
    async fn wave(&self, name: &str) -> String;
}

#[async_trait::async_trait]
impl Greets for Api {
    #[limited("1/day", key = name, limiter = self.0)]
    async fn greet(&self, name: &str) -> Result<String, Refusal> {
        std::future::ready(()).await;
        Ok(format!("hello {name}"))
    }

    #[limited("1/s burst 1 wait 1s", key = name, limiter = self.0, otherwise = |_| String::new())]
    async fn wave(&self, name: &str) -> String {
        name.into()
    }
}

#[test]
fn methods_that_async_trait_has_boxed_are_limited_when_they_are_awaited() {
    let api = Api::new(on_manual_clock().1);
    drop(api.greet("ann"));
    assert_eq!(ready(api.greet("ann")).unwrap(), "hello ann");
    assert_eq!(ready(api.greet("ann")).unwrap_err().key(), "ann");
    assert_eq!(ready(api.wave("ann")), "ann");
}

impl Sells for &Api {
    #[limited("1/day", key = goods, limiter = self.0)]
    fn sell(&self, goods: u64) -> Result<u64, Refusal> {
        Ok(goods)
    }

    fn limiter(&self) -> &Limiter {
        &self.0
    }
}

#[test]
fn an_impl_for_a_reference_has_a_gate_of_its_own() {
    let api = Api::new(on_manual_clock().1);
    assert!(Sells::sell(&api, 7).is_ok() && Sells::sell(&&api, 7).is_ok());
    let gates =
        [Sells::sell(&api, 7), Sells::sell(&&api, 7)].map(|sold| sold.unwrap_err().gate().to_string());
    assert_ne!(gates[0], gates[1]);
    assert!(gates[1].ends_with("methods::Api/limited::methods::Sells::sell"), "{}", gates[1]);
}

//! Plain functions under `#[limited]`: refused, late, answered otherwise, a whole `impl`.
//!
//! There is no web in sight: run it with `cargo run -p function`.

mod shop;

use shop::{Desk, ShopError};
use tidegate::{Caller, Limiter, User};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!("A page shows its stock, at most 3 at once for each of the goods:");
    for goods_id in [7, 7, 7, 7, 8] {
        match shop::stock(goods_id) {
            Ok(units) => println!("  goods {goods_id}: {units} left"),
            Err(refusal) => println!("  goods {goods_id}: {refusal}"),
        }
    }

    println!("\nA bank takes one payment each 200 ms, and callers rather wait than leave:");
    let since = shop::now();
    for _ in 0..3 {
        match shop::pay(990).await {
            Ok(receipt) => println!("  after {:>3} ms: {receipt}", shop::now().since(since).as_millis()),
            Err(refusal) => println!("  {refusal}"),
        }
    }

    println!("\nA search that is asked too often answers from what it knows:");
    for _ in 0..2 {
        println!("  {}", shop::search("tea"));
    }

    println!("\nA desk limits all its methods by user, an order by its units as well:");
    let desk = Desk::new(Limiter::new());
    for (name, units) in [("ann", 2), ("ann", 9), ("bob", 1), ("ann", 1), ("ann", 1)] {
        let order = || desk.order(units);
        match Caller::new().user(User::new(name)).enter(order) {
            Ok(number) => println!("  {name} orders {units}: number {number}"),
            Err(ShopError::Busy(refusal)) => println!("  {name} orders {units}: {refusal}"),
            Err(ShopError::Closed) => println!("  {name} orders {units}: the desk is closed"),
        }
    }
    println!("  and the desk says, as often as it is asked: {}", desk.greeting());
}

//! What every engine must do: the same tests on all of them, through a [`Harness`].
//!
//! An engine's own tests say `engine_suite!(ItsHarness);` in a module of theirs.

mod broken;
pub(crate) mod buying;
mod crowd;
pub(crate) mod letters;
pub(crate) mod operating;
pub(crate) mod reopening;
pub(crate) mod repairs;
pub(crate) mod repeats;
pub(crate) mod turns;

pub(crate) use broken::{Broken, Way};
pub(crate) use crowd::{buy_all, violations};

use crate::books::Books;
use crate::engine::{Engine, Known, Reserve};
use crate::goods::GoodsId;
use crate::order::{Order, OrderSn, OrderState};
use crate::path::Path;
use crate::sale::{Change, Sale};
use std::sync::Arc;
use std::time::Duration;

/// An engine with servers and data of its own.
pub(crate) trait Harness: Sized + Send {
    /// A new one, with nothing in it.
    async fn start() -> Self;

    fn engine(&self) -> Arc<dyn Engine>;

    /// Stops the engine, if it still runs, and starts one on the same data.
    async fn reopen(&mut self);

    /// From now on, the database will not have orders of users named `poison…`.
    async fn poison(&self);

    /// It will again.
    async fn cure(&self);

    /// From now on, the database counts three units more as placed than there are.
    async fn miscount(&self);

    /// From now on, each order is of this many units, and the sums say nothing of it.
    async fn inflate(&self, units: u32);
}

macro_rules! engine_suite {
    ($harness:ident) => {
        $crate::suite::engine_suite! { $harness:
            buying {
                a_crowd_buys_all_there_is_and_not_one_more
                a_crowd_that_asks_for_several_leaves_less_than_one_asks_for
                a_user_gets_no_more_than_one_may
                one_each_is_one_live_order
                quantities_that_cannot_be_take_nothing
                all_or_nothing
                sold_out_is_known_at_once_and_so_is_its_end
                a_path_of_another_epoch_or_too_old_is_refused
                the_books_balance_at_every_moment
            }
            repeats {
                one_path_is_one_order_however_often_and_at_once
                one_key_is_one_order_whatever_the_path
                a_used_path_is_its_users_alone
                a_used_path_tells_its_order_whatever_the_sale_does
                a_refused_path_can_be_used_later
            }
            turns {
                pay_and_cancel_race_and_one_of_them_wins
                an_order_can_be_paid_as_soon_as_its_number_is_told
                many_cancels_give_back_once
                what_is_not_paid_in_time_comes_back_once
                what_is_paid_does_not_expire
                a_waiting_buyer_hears_of_a_change
                an_unknown_order_is_unknown
            }
            operating {
                a_sale_is_sold_from_only_while_it_is_open
                a_sale_opens_and_closes_by_its_times
                a_new_schedule_does_not_close_a_sale_that_has_opened
                a_sale_that_has_opened_by_its_time_is_stored_as_open
                a_sale_that_its_time_has_closed_is_closed_for_good
                what_does_not_fit_is_refused_and_changes_nothing
                every_change_is_in_the_audit
            }
            reopening {
                everything_is_kept_under_a_new_epoch
                no_number_is_given_twice
            }
            repairs {
                a_pause_because_of_wrong_sums_can_be_ended
                more_sold_than_there_is_is_repaired_by_the_total
            }
            letters {
                a_poison_order_fails_alone_and_is_seen
                a_dropped_letter_gives_back_once
                a_replayed_letter_becomes_an_order_once
            }
        }
    };
    ($harness:ident: $($file:ident { $($case:ident)* })*) => {
        $(mod $file {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let place = <$harness as $crate::suite::Harness>::start().await;
                $crate::suite::$file::$case(place).await;
            })*
        })*
    };
}
pub(crate) use engine_suite;

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The goods of these tests.
pub(crate) fn phone() -> GoodsId {
    "phone".parse().unwrap()
}

/// A sale that everybody may buy all of.
pub(crate) fn sale(total: u64) -> Sale {
    Sale { per_user: 1_000_000, ..Sale::new(phone(), total) }
}

/// Creates, warms and opens.
pub(crate) async fn open(engine: &dyn Engine, sale: Sale) -> Arc<Known> {
    let goods = sale.goods.clone();
    engine.create(sale, "test").await.unwrap();
    change(engine, &goods, Change::Warm).await;
    change(engine, &goods, Change::Open).await
}

pub(crate) async fn change(engine: &dyn Engine, goods: &GoodsId, change: Change) -> Arc<Known> {
    engine.change(goods, change, "test").await.unwrap()
}

/// A buyer with a new path, of the epoch that is known now.
pub(crate) fn ask(engine: &dyn Engine, user: &str, quantity: u32) -> Reserve {
    let known = engine.known(&phone()).unwrap();
    Reserve {
        goods: phone(),
        user: user.parse().unwrap(),
        quantity,
        path: Path::new(0, 0).unwrap().id,
        epoch: known.epoch,
        is_expired: false,
        key: None,
    }
}

/// Buys, and waits until the order is in the database or a dead letter.
pub(crate) async fn buy(engine: &dyn Engine, user: &str, quantity: u32) -> Order {
    let sn = engine.reserve(ask(engine, user, quantity)).await.unwrap();
    settled(engine, &sn).await
}

/// An order, once it is not on its way any more.
pub(crate) async fn settled(engine: &dyn Engine, sn: &OrderSn) -> Order {
    let order = engine.changed(sn, OrderState::Processing, PATIENCE).await.unwrap();
    let order = order.expect("a number that was answered is known");
    assert_ne!(order.state, OrderState::Processing, "waited {PATIENCE:?} in vain: {order:?}");
    order
}

pub(crate) async fn books(engine: &dyn Engine) -> Books {
    engine.books(&phone()).await.unwrap().unwrap()
}

/// The books, once nothing is on its way but dead letters of this many units.
pub(crate) async fn at_rest(engine: &dyn Engine, dead_units: u64) -> Books {
    until("nothing is in flight", async || {
        Some(books(engine).await).filter(|books| books.in_flight == dead_units)
    })
    .await
}

/// Waits for what must come, looking again and again.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            match look().await {
                Some(found) => return found,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    });
    found.await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain: {what}"))
}

//! Sold out is known at once, and no longer than it is so.

use crate::place::{Place, goods, phones};
use tidegate_sale::Change;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_unit_closes_the_door_and_one_that_comes_back_opens_it() {
    let place = Place::open(phones(3)).await;
    let late = place.path("late").await.expect(200).text().to_owned();
    let mut orders = Vec::new();
    for name in ["ann", "bob", "cem"] {
        orders.push(place.buy(name).await);
    }
    // The engine of one process knows with the answer to the last one.
    let told = place.path("dan").await.expect(41_001);
    assert_eq!((told.message.as_str(), told.field("retry-after")), ("sold out", None));
    place.take("late", &late, "1").await.expect(41_001);
    assert_eq!(place.ask("dan", "GET /sale/phone").await.expect(200).data["state"], "sold_out");
    assert_eq!(place.books().await["left"], 0);

    place.until_order("ann", &orders[0], "placed").await;
    place.ask("ann", &format!("POST /orders/{}/cancel", orders[0])).await.expect(200);
    place.until("it is open again", async || place.path("dan").await.code == 200).await;
    place.take("late", &late, "1").await.expect(200);
    place.path("dan").await.expect(41_001);

    place.change(&goods(), Change::AddStock { units: 2 }).await;
    place.until("there is more", async || place.path("dan").await.code == 200).await;
    place.buy("dan").await;
    let books = place.books().await;
    assert_eq!((&books["total"], &books["left"]), (&5.into(), &1.into()));
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_while_the_last_one_goes_gets_no_path() {
    let mut sale = phones(1);
    sale.rate = "2/s burst 1 wait 5s".parse().unwrap();
    let place = Place::open(sale).await;
    let path = place.path("ann").await.expect(200).text().to_owned();
    let waits = async { place.path("bob").await };
    let takes = async {
        place.until("somebody waits", async || place.service.waiting() == 1).await;
        place.take("ann", &path, "1").await
    };
    let (waited, taken) = tokio::join!(waits, takes);
    taken.expect(200);
    waited.expect(41_001);
    place.end().await;
}

/// Ten times as many buyers as units, all at once: as many orders as units.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_gets_every_unit_and_not_one_more() {
    let place = Place::open(phones(20)).await;
    let one = async |nth: u32| {
        let name = format!("user-{nth}");
        let path = place.path(&name).await;
        if path.code != 200 {
            return path.code;
        }
        place.take(&name, path.text(), "1").await.code
    };
    let told = futures_util::future::join_all((0..200).map(one)).await;
    let count = |code| told.iter().filter(|own| **own == code).count();
    assert_eq!((count(200), count(41_001)), (20, 180), "{told:?}");
    let books = place.books().await;
    assert_eq!(
        (&books["left"], books["placed"].as_u64().unwrap() + books["in_flight"].as_u64().unwrap()),
        (&0.into(), 20)
    );
    place.end().await;
}

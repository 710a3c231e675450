//! The way of an order, and what its repeats find.

use super::rig::{at_rest, buy, buyer, check_books, engine, on_sale, phone, shared, until};
use crate::engine::{Engine as _, Reserve, Turn, Turned};
use crate::goods::GoodsId;
use crate::order::{OrderSn, OrderState};
use crate::refusal::Refusal;
use crate::sale::Sale;
use crate::servers::{ServersConfig, ServersEngine};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_sell_each_unit_once() {
    let config = shared().config();
    let (one, other) = (engine(&config).await, engine(&config).await);
    on_sale(&one, 100, 1).await;
    until("both know it", async || other.known(&phone()).is_some_and(|known| known.left == Some(100))).await;
    let buyers = (0..300).map(|nth| {
        let engine = Arc::clone(if nth % 2 == 0 { &one } else { &other });
        tokio::spawn(async move { buy(&engine, &format!("user-{nth}")).await })
    });
    let mut answered: Vec<OrderSn> = Vec::new();
    let mut refused = 0;
    for buyer in buyers.collect::<Vec<_>>() {
        match buyer.await.unwrap() {
            Ok(sn) => answered.push(sn),
            Err(Refusal::SoldOut) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!((answered.len(), refused), (100, 200));
    let books = at_rest(&one).await;
    assert_eq!((books.placed, books.left, books.orders, books.dead), (100, 0, 100, 0), "{books:?}");
    check_books(shared(), &config, &books, &answered).unwrap();
    assert_eq!(other.known(&phone()).unwrap().left, Some(0));
    // The checker is worth something.
    let lost = [answered.as_slice(), &["phone-1-999".parse().unwrap()]].concat();
    assert!(check_books(shared(), &config, &books, &lost).unwrap_err().contains("phone-1-999"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_is_told_the_same_order_by_any_process() {
    let config = shared().config();
    let (one, other) = (engine(&config).await, engine(&config).await);
    on_sale(&one, 10, 2).await;
    until("both know it", async || other.known(&phone()).is_some_and(|known| known.left == Some(10))).await;
    let mut first = buyer(&one, "ann");
    first.key = Some("mine: 1".into());
    let sn = one.reserve(first.clone()).await.unwrap();
    assert_eq!(other.reserve(first.clone()).await, Ok(sn.clone()), "the same path");
    let mut keyed = buyer(&other, "ann");
    keyed.key = Some("mine: 1".into());
    assert_eq!(other.reserve(keyed.clone()).await, Ok(sn.clone()), "the same key");
    keyed.user = "bob".parse().unwrap();
    keyed.path[0] ^= 1;
    assert_ne!(other.reserve(keyed).await, Ok(sn.clone()), "the key of another");
    let order = one.order(&sn).await.unwrap().unwrap();
    assert_eq!((order.user.as_str(), order.quantity), ("ann", 1));
    let placed = other.changed(&sn, OrderState::Processing, super::rig::PATIENCE).await.unwrap().unwrap();
    assert_eq!(placed.state, OrderState::Placed);
    assert_eq!(one.order(&"phone-1-77".parse().unwrap()).await.unwrap(), None);
    assert_eq!(at_rest(&one).await.left, 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_up_is_for_sale_again_once() {
    let config = shared().config();
    let (one, other) = (engine(&config).await, engine(&config).await);
    on_sale(&one, 1, 1).await;
    let sn = buy(&one, "ann").await.unwrap();
    assert_eq!(buy(&one, "bob").await, Err(Refusal::SoldOut));
    one.changed(&sn, OrderState::Processing, super::rig::PATIENCE).await.unwrap();
    // Many at once, from both.
    let turns = (0..8).map(|nth| {
        let (engine, sn) = (Arc::clone(if nth % 2 == 0 { &one } else { &other }), sn.clone());
        tokio::spawn(async move { engine.turn(&sn, Turn::Cancel).await.unwrap() })
    });
    for turn in turns.collect::<Vec<_>>() {
        assert!(matches!(turn.await.unwrap(), Turned::Done(order) if order.state == OrderState::Cancelled));
    }
    until("it is for sale again", async || one.known(&phone()).unwrap().left == Some(1)).await;
    let books = at_rest(&one).await;
    assert_eq!((books.placed, books.left, books.returned), (0, 1, 1), "{books:?}");
    let again = buy(&one, "ann").await.unwrap();
    assert_ne!(again, sn);
    assert_eq!(buy(&other, "bob").await, Err(Refusal::SoldOut));
    let books = at_rest(&one).await;
    check_books(shared(), &config, &books, &[sn, again]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_at_once_make_the_tables_once() {
    let config = shared().config();
    let open = || ServersEngine::open(config.clone());
    let (one, two, three) = tokio::join!(open(), open(), open());
    let (one, two, three) = (one.unwrap(), two.unwrap(), three.unwrap());
    let (secret, others) = tokio::join!(one.secret(), async { tokio::join!(two.secret(), three.secret()) });
    let secret = secret.unwrap();
    assert!(others.0.unwrap() == secret && others.1.unwrap() == secret);
    assert_eq!(open().await.unwrap().secret().await.unwrap(), secret, "and later");
    shared()
        .postgres
        .sql_in(&config.postgres, "UPDATE sale_settings SET value = '99' WHERE name = 'version'");
    let newer = ServersEngine::open(config.clone()).await.err().unwrap();
    assert!(newer.to_string().contains("newer than this program"), "{newer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_an_address_is_named_without_its_password() {
    let good = shared().config();
    let wrong = |change: fn(&mut ServersConfig)| {
        let mut config = good.clone();
        change(&mut config);
        async move { ServersEngine::open(config).await.err().unwrap().to_string() }
    };
    for (what, name) in [
        (wrong(|config| config.redis = "redis//:sesame@x".into()).await, "`redis`"),
        (wrong(|config| config.postgres = "postgres:/sesame@:x".into()).await, "`postgres`"),
        (wrong(|config| config.amqp = "amqp//:sesame@x".into()).await, "`amqp`"),
        (wrong(|config| config.prefix = "a b".into()).await, "`prefix`"),
        (wrong(|config| config.shards = 0).await, "`shards`"),
    ] {
        assert!(what.contains(name) && !what.contains("sesame"), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goods_that_share_a_queue_are_counted_apart() {
    let mut config = shared().config();
    config.shards = 1;
    let engines = [engine(&config).await, engine(&config).await];
    let goods: Vec<GoodsId> = (0..4).map(|nth| format!("goods-{nth}").parse().unwrap()).collect();
    for goods in &goods {
        let sale = Sale { per_user: 100, ..Sale::new(goods.clone(), 30) };
        crate::suite::open(&*engines[0], sale).await;
    }
    until("both know them", async || {
        goods.iter().all(|goods| engines[1].known(goods).is_some_and(|known| known.left == Some(30)))
    })
    .await;
    let buyers = (0..200).map(|nth: usize| {
        let (engine, goods) = (Arc::clone(&engines[nth % 2]), goods[nth % 4].clone());
        tokio::spawn(async move {
            let reserve = Reserve { goods, ..buyer(&engine, "ann") };
            engine.reserve(Reserve { epoch: 1, ..reserve }).await
        })
    });
    let mut bought = 0;
    for buyer in buyers.collect::<Vec<_>>() {
        match buyer.await.unwrap() {
            Ok(_) => bought += 1,
            Err(refusal) => assert_eq!(refusal, Refusal::SoldOut),
        }
    }
    assert_eq!(bought, 4 * 30);
    for goods in &goods {
        until("all are written", async || {
            let books = engines[1].books(goods).await.unwrap().unwrap();
            assert!(books.is_balanced(), "{books:?}");
            (books.placed, books.orders, books.left, books.in_flight) == (30, 30, 0, 0)
        })
        .await;
    }
}

//! What is refused without asking the engine: it is one that must not be asked.

use super::*;
use futures_util::future::BoxFuture;
use std::sync::Mutex;

/// Knows a sale, and is never asked for anything else.
struct Silent(Mutex<Option<Known>>);

fn asked() -> ! {
    panic!("nobody was to be asked")
}

impl Engine for Silent {
    fn known(&self, goods: &GoodsId) -> Option<Arc<Known>> {
        let known = self.0.lock().unwrap().clone();
        known.filter(|known| known.sale.goods == *goods).map(Arc::new)
    }
    fn all(&self) -> Vec<Arc<Known>> {
        asked()
    }
    fn reserve(&self, _: Reserve) -> BoxFuture<'_, Result<OrderSn, Refusal>> {
        asked()
    }
    fn order<'a>(&'a self, _: &'a OrderSn) -> BoxFuture<'a, Result<Option<Order>, Fault>> {
        asked()
    }
    fn changed<'a>(
        &'a self,
        _: &'a OrderSn,
        _: OrderState,
        _: Duration,
    ) -> BoxFuture<'a, Result<Option<Order>, Fault>> {
        asked()
    }
    fn turn<'a>(&'a self, _: &'a OrderSn, _: Turn) -> BoxFuture<'a, Result<Turned, Fault>> {
        asked()
    }
    fn create<'a>(&'a self, _: Sale, _: &'a str) -> BoxFuture<'a, Result<Arc<Known>, AdminError>> {
        asked()
    }
    fn change<'a>(
        &'a self,
        _: &'a GoodsId,
        _: Change,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Arc<Known>, AdminError>> {
        asked()
    }
    fn books<'a>(&'a self, _: &'a GoodsId) -> BoxFuture<'a, Result<Option<Books>, Fault>> {
        asked()
    }
    fn difference<'a>(&'a self, _: &'a GoodsId) -> BoxFuture<'a, Result<Option<Difference>, Fault>> {
        asked()
    }
    fn repair<'a>(&'a self, _: &'a GoodsId, _: &'a str) -> BoxFuture<'a, Result<Difference, AdminError>> {
        asked()
    }
    fn audit<'a>(&'a self, _: &'a GoodsId, _: u32) -> BoxFuture<'a, Result<Vec<Audit>, Fault>> {
        asked()
    }
    fn dead<'a>(&'a self, _: &'a GoodsId) -> BoxFuture<'a, Result<Vec<DeadLetter>, Fault>> {
        asked()
    }
    fn bury<'a>(&'a self, _: &'a OrderSn, _: bool, _: &'a str) -> BoxFuture<'a, Result<Turned, AdminError>> {
        asked()
    }
    fn ready(&self) -> Result<(), String> {
        Err("Redis does not answer".into())
    }
    fn stop(&self) -> BoxFuture<'_, ()> {
        asked()
    }
}

fn goods() -> GoodsId {
    "phone".parse().unwrap()
}

fn ann() -> UserId {
    "ann".parse().unwrap()
}

/// A service on an engine that knows this, and the engine.
fn service(state: SaleState, left: Option<u64>) -> (SaleService, Arc<Silent>) {
    let known = Known { sale: Sale::new(goods(), 10), state, epoch: 1, left };
    let engine = Arc::new(Silent(Mutex::new(Some(known))));
    let service = SaleService::builder().on(engine.clone(), Secret::random().unwrap()).unwrap();
    (service, engine)
}

#[tokio::test]
async fn a_path_is_handed_out_and_refused_without_asking_anybody() {
    let (service, engine) = service(SaleState::Open, Some(3));
    let path = async |goods: &str| service.random_path(&ann(), None, &goods.parse().unwrap()).await;
    assert_eq!(path("phone").await.unwrap().len(), 55);
    assert_eq!(path("watch").await, Err(Refusal::UnknownGoods));
    let turn = |state: SaleState, left| {
        let mut known = engine.0.lock().unwrap();
        let known = known.as_mut().unwrap();
        (known.state, known.left) = (state, left);
    };
    turn(SaleState::Open, None);
    assert!(path("phone").await.is_ok(), "what nobody has told is not sold out");
    turn(SaleState::Open, Some(0));
    assert_eq!(path("phone").await, Err(Refusal::SoldOut));
    turn(SaleState::Open.paused("a look".into()), Some(0));
    assert_eq!(path("phone").await, Err(Refusal::Paused { reason: "a look".into() }));
    turn(SaleState::Warm, Some(3));
    assert_eq!(path("phone").await, Err(Refusal::NotOpenYet { opens_at: None }));
    turn(SaleState::Closed, Some(3));
    assert_eq!(path("phone").await, Err(Refusal::Closed));
}

#[tokio::test]
async fn a_wrong_path_a_wrong_number_and_a_wrong_key_ask_nobody() {
    let (service, _) = service(SaleState::Open, Some(3));
    let right = service.random_path(&ann(), None, &goods()).await.unwrap();
    let take =
        async |path: &str, quantity, key| service.decr_stock(&ann(), &goods(), path, quantity, key).await;
    let mut wrong = right.clone();
    wrong.replace_range(..1, if right.starts_with('A') { "B" } else { "A" });
    for path in [wrong.as_str(), "", "x", &right[1..], &"A".repeat(55), &"A".repeat(1 << 20)] {
        assert_eq!(take(path, 1, None).await, Err(Refusal::WrongPath));
    }
    for quantity in [0, u32::MAX] {
        assert!(matches!(take(&right, quantity, None).await, Err(Refusal::BadRequest(_))));
    }
    for key in ["", "a b", "\n", &"k".repeat(201)] {
        assert!(matches!(take(&right, 1, Some(key)).await, Err(Refusal::BadRequest(_))), "{key:?}");
    }
    let bob = "bob".parse().unwrap();
    let told = service.decr_stock(&bob, &goods(), &right, 1, None).await;
    assert_eq!(told, Err(Refusal::WrongPath), "another user's");
}

#[tokio::test]
#[should_panic = "nobody was to be asked"]
async fn the_right_path_asks_the_engine() {
    let (service, _) = service(SaleState::Open, Some(3));
    let right = service.random_path(&ann(), None, &goods()).await.unwrap();
    let _ = service.decr_stock(&ann(), &goods(), &right, 1, None).await;
}

#[test]
fn who_turns_an_order_before_its_row_is_written_comes_back() {
    let order = |state| Order {
        order_sn: OrderSn::new(goods(), 1, 1),
        user: ann(),
        quantity: 1,
        state,
        reason: None,
        created_at: 1,
        updated_at: 1,
        pay_by: None,
    };
    assert_eq!(turned(Turned::Refused(order(OrderState::Processing))), Err(Refusal::Busy));
    let over = turned(Turned::Refused(order(OrderState::Expired)));
    assert_eq!(over, Err(Refusal::WrongState("the order is expired".into())));
}

/// Counts the lines of the log.
#[derive(Clone, Default)]
struct Lines(Arc<std::sync::atomic::AtomicUsize>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_thousand_failing_requests_are_a_few_lines_of_the_log() {
    let (service, _) = service(SaleState::Open, Some(3));
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        for _ in 0..1_000 {
            assert_eq!(service.ready(), Err(Refusal::Busy));
        }
    });
    let written = lines.0.load(std::sync::atomic::Ordering::SeqCst);
    assert!((1..=100).contains(&written), "{written} lines");
}

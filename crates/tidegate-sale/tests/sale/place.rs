//! A sale of one's own: a folder, a service on it, and a server before it.

use crate::client::{Answer, Client};
use std::net::SocketAddr;
use std::time::Duration;
use tempfile::TempDir;
use tidegate::listener::Listener;
use tidegate_sale::{
    AdminToken, Change, GoodsId, Http, Sale, SaleBuilder, SaleService, Secret, SignedTokens, UserId, serve,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const ADMIN: &str = "0123456789abcdef";
/// A rate that is never in the way.
pub(crate) const FAST: &str = "1000000/s";

pub(crate) struct Place {
    pub(crate) service: SaleService,
    pub(crate) secret: Secret,
    pub(crate) at: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
    _folder: TempDir,
}

pub(crate) fn goods() -> GoodsId {
    "phone".parse().unwrap()
}

pub(crate) fn user(name: &str) -> UserId {
    name.parse().unwrap()
}

/// A sale of phones with this many units, at a rate that is not in the way.
pub(crate) fn phones(total: u64) -> Sale {
    let mut sale = Sale::new(goods(), total);
    sale.rate = FAST.parse().unwrap();
    sale
}

impl Place {
    /// An open sale, without limits by user and address.
    pub(crate) async fn open(sale: Sale) -> Self {
        let place = Self::with(|builder| builder.user_limit(None).ip_limit(None), |http| http).await;
        place.begin(sale).await;
        place
    }

    /// Nothing is sold yet.
    pub(crate) async fn with(
        build: impl FnOnce(SaleBuilder) -> SaleBuilder,
        http: impl FnOnce(Http) -> Http,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let service = build(SaleService::builder()).embedded(folder.path().join("sale.db")).await.unwrap();
        let secret = service.secret().clone();
        let router = http(
            Http::new(service.clone(), SignedTokens::new(&secret))
                .admin_token(AdminToken::new(ADMIN).unwrap()),
        )
        .router();
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let leaving = service.clone();
        let served = tokio::spawn(serve(listener, router, async move {
            let _ = stopped.await;
            leaving.leave();
        }));
        Self { service, secret, at, stop, served, _folder: folder }
    }

    pub(crate) async fn begin(&self, sale: Sale) {
        let goods = sale.goods.clone();
        self.service.create(sale, "test").await.unwrap();
        for change in [Change::Warm, Change::Open] {
            self.change(&goods, change).await;
        }
    }

    pub(crate) async fn change(&self, goods: &GoodsId, change: Change) {
        self.service.change(goods, change, "test").await.unwrap();
    }

    /// Ends it as a process ends, and says that it did.
    pub(crate) async fn end(self) {
        self.stop.send(()).unwrap();
        self.served.await.unwrap();
        self.service.stop().await;
    }

    /// The field with which this user is signed in.
    pub(crate) fn bearer(&self, name: &str) -> String {
        let tokens = SignedTokens::new(&self.secret);
        format!("Bearer {}", tokens.issue(&user(name), Duration::from_secs(600)))
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.at).await
    }

    /// One request of a user.
    pub(crate) async fn ask(&self, name: &str, what: &str) -> Answer {
        self.client().await.ask(what, &[("authorization", &self.bearer(name))], "").await
    }

    /// One request of an operator.
    pub(crate) async fn admin(&self, what: &str, body: &str) -> Answer {
        let auth = format!("Bearer {ADMIN}");
        self.client().await.ask(what, &[("authorization", &auth)], body).await
    }

    pub(crate) async fn path(&self, name: &str) -> Answer {
        self.ask(name, "GET /randomPath?goodsId=phone").await
    }

    pub(crate) async fn take(&self, name: &str, path: &str, units: &str) -> Answer {
        self.ask(name, &format!("POST /{path}/decrStock?goodsId=phone&decrStock={units}")).await
    }

    /// Buys one, and tells its number.
    pub(crate) async fn buy(&self, name: &str) -> String {
        let path = self.path(name).await.expect(200);
        self.take(name, path.text(), "1").await.expect(200).text().to_owned()
    }

    /// The books, which balance.
    pub(crate) async fn books(&self) -> serde_json::Value {
        let books = self.admin("GET /sale/phone/books", "").await.expect(200).data;
        assert_eq!(books["balanced"], true, "{books}");
        books
    }

    /// Waits until it is so.
    pub(crate) async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let asked = async {
            while !is_so().await {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(crate::client::PATIENCE, asked)
            .await
            .unwrap_or_else(|_| panic!("in vain: {what}"));
    }

    /// Waits until an order stands there.
    pub(crate) async fn until_order(&self, name: &str, sn: &str, state: &str) {
        // It may be asked for too often.
        self.until(state, async || self.ask(name, &format!("GET /orders/{sn}")).await.data["state"] == state)
            .await;
    }
}

//! The sale over HTTP: routes, and nothing that is not about HTTP.
//!
//! Every answer is `{"code": …, "message": …, "data": …}` and must not be stored. There is
//! no middleware: most answers of a sale are refusals, and they should cost next to nothing.

mod admin;
mod answer;
mod ask;
mod buyer;
mod lang;
mod orders;
mod serve;
mod starting;
mod stream;
mod watchers;

pub use serve::serve;
pub use starting::Starting;

use crate::auth::{AdminToken, Authenticator};
use crate::front::SaleService;
use crate::refusal::Refusal;
use answer::{no_such_method, no_such_route};
use ask::Ask;
use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::{any, get, post};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tidegate::http::ClientIp;
use watchers::Watchers;

/// Orders that are watched at the same time, unless said.
const STREAMS: usize = 10_000;

/// The sale as a router, for [`serve`] or any other server of axum's.
///
/// ```no_run
/// use tidegate::http::ClientIp;
/// use tidegate::listener::Listener;
/// use tidegate_sale::{AdminToken, Http, SaleService, SignedTokens, serve};
///
/// # async fn run(admin: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let service = SaleService::builder().embedded("sale.db").await?;
/// let users = SignedTokens::new(service.secret());
/// let router = Http::new(service.clone(), users)
///     .admin_token(AdminToken::new(admin)?)
///     .client_ip(ClientIp::behind(["10.0.3.0/24"])?)
///     .router();
/// serve(Listener::bind("0.0.0.0:8080").await?, router, std::future::pending()).await;
/// service.stop().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is served until `router` is"]
pub struct Http {
    app: App,
}

/// What the handlers share.
pub(crate) struct App {
    service: SaleService,
    users: Box<dyn Authenticator>,
    admin: Option<AdminToken>,
    client_ip: ClientIp,
    watchers: Arc<Watchers>,
}

impl Http {
    /// This sale, for buyers that this authenticator knows.
    pub fn new(service: SaleService, users: impl Authenticator) -> Self {
        Self {
            app: App {
                service,
                users: Box::new(users),
                admin: None,
                client_ip: ClientIp::peer(),
                watchers: Watchers::new(STREAMS),
            },
        }
    }

    /// What operators sign in with. Without one, nobody is an operator.
    pub fn admin_token(mut self, token: AdminToken) -> Self {
        self.app.admin = Some(token);
        self
    }

    /// Whom a request comes from: the peer, unless proxies are trusted.
    pub fn client_ip(mut self, client_ip: ClientIp) -> Self {
        self.app.client_ip = client_ip;
        self
    }

    /// How many orders may be watched at the same time (server-sent events); 10,000 unless
    /// said, and eight for one user. Each holds a connection.
    pub fn streams(mut self, streams: usize) -> Self {
        self.app.watchers = Watchers::new(streams);
        self
    }

    /// All routes.
    pub fn router(self) -> Router {
        let mut router = Router::new();
        // Each by its name, so that another method and another name are told apart.
        for what in admin::LOOKS {
            router = router.route(&format!("/admin/sales/{{goods}}/{what}"), get(On(admin::look)));
        }
        for what in admin::CHANGES {
            router = router.route(&format!("/admin/sales/{{goods}}/{what}"), post(On(admin::change)));
        }
        for what in admin::BURIALS {
            router = router.route(&format!("/admin/dead/{{sn}}/{what}"), post(On(admin::bury)));
        }
        router
            .route("/randomPath", any(On(buyer::random_path)))
            .route("/{path}/decrStock", post(On(buyer::decr_stock)))
            .route("/orders/{sn}", get(On(orders::order)))
            .route("/orders/{sn}/cancel", post(On(orders::cancel)))
            .route("/orders/{sn}/pay", post(On(orders::pay)))
            .route("/sale/{goods}", get(On(buyer::sale)))
            .route("/sale/{goods}/books", get(On(buyer::books)))
            .route("/admin/sales", get(On(admin::list)).post(On(admin::create)))
            .route("/livez", get(On(buyer::livez)))
            .route("/readyz", get(On(buyer::readyz)))
            .method_not_allowed_fallback(no_such_method)
            .fallback(no_such_route)
            .with_state(Arc::new(self.app))
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("service", &self.app.service).finish_non_exhaustive()
    }
}

/// A handler of ours: refusals become answers here, in the reader's language.
#[derive(Clone, Copy)]
struct On<H>(H);

impl<H, F> Handler<(), Arc<App>> for On<H>
where
    H: FnOnce(Arc<App>, Ask) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response, Refusal>> + Send + 'static,
{
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, app: Arc<App>) -> Self::Future {
        Box::pin(async move {
            let ask = Ask::new(request);
            let lang = ask.lang;
            match (self.0)(app, ask).await {
                Ok(answer) => answer,
                Err(refusal) => answer::refused(&refusal, lang),
            }
        })
    }
}

//! A request, and what is read from it. Everything in it is a stranger's.

use super::App;
use super::answer;
use super::lang::Lang;
use crate::auth::bearer;
use crate::goods::{GoodsId, UserId};
use crate::order::OrderSn;
use crate::refusal::Refusal;
use crate::request_limits::SignIn;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::request::Parts;
use axum::response::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tidegate::http::Peer;

/// A query that is longer is not read.
const QUERY_MAX: usize = 2048;
/// A body that is longer, or takes longer, is not read.
const BODY_MAX: usize = 64 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Ask {
    pub(super) parts: Parts,
    /// Locked by nobody: only so that handlers may look at the rest from several threads.
    body: Mutex<Body>,
    pub(super) lang: Lang,
}

impl Ask {
    pub(super) fn new(request: Request) -> Self {
        let (parts, body) = request.into_parts();
        let lang = Lang::of(&parts.headers);
        Self { parts, body: Mutex::new(body), lang }
    }

    /// What was asked for, in the reader's language.
    pub(super) fn ok(&self, data: impl Serialize) -> Response {
        answer::ok(data, self.lang)
    }

    /// Who is at the other end of the connection.
    fn peer(&self) -> Option<IpAddr> {
        let extensions = &self.parts.extensions;
        let peer = extensions.get::<ConnectInfo<Peer>>().map(|ConnectInfo(peer)| peer.ip());
        peer.or_else(|| extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip()))
    }

    /// Whom it comes from, behind proxies that are trusted.
    pub(super) fn client(&self, app: &App) -> Option<IpAddr> {
        app.client_ip.address(self.peer(), &self.parts.headers)
    }

    /// The buyer.
    pub(super) async fn user(&self, app: &App) -> Result<UserId, Refusal> {
        let (limits, client) = (app.service.request_limits(), self.client(app));
        limits.may_sign_in(SignIn::Buyer, client)?;
        let user = app.users.user(self.peer(), &self.parts.headers).await;
        if user == Err(Refusal::NotSignedIn) {
            limits.sign_in_failed(SignIn::Buyer, client);
        }
        user
    }

    /// The operator, as the audit names them.
    pub(super) fn operator(&self, app: &App) -> Result<String, Refusal> {
        let by = self.unlimited_operator(app)?;
        app.service.request_limits().operator(self.client(app))?;
        Ok(by)
    }

    /// The same for payments, which come as fast as orders do.
    pub(super) fn unlimited_operator(&self, app: &App) -> Result<String, Refusal> {
        let (limits, client) = (app.service.request_limits(), self.client(app));
        limits.may_sign_in(SignIn::Operator, client)?;
        let token = bearer(&self.parts.headers);
        let is_admin = app.admin.as_ref().zip(token).is_some_and(|(admin, token)| admin.is(token));
        if !is_admin {
            limits.sign_in_failed(SignIn::Operator, client);
            return Err(Refusal::NotAdmin);
        }
        Ok(client.map_or_else(|| "admin".into(), |ip| format!("admin@{ip}")))
    }

    /// The nth part of the address. Ids and paths are plain, so nothing in them is encoded.
    pub(super) fn segment(&self, nth: usize) -> &str {
        self.parts.uri.path().split('/').nth(nth + 1).unwrap_or_default()
    }

    /// The goods that the address names.
    pub(super) fn goods_at(&self, nth: usize) -> Result<GoodsId, Refusal> {
        self.segment(nth).parse().map_err(|_| Refusal::UnknownGoods)
    }

    /// The order that the address names.
    pub(super) fn order_at(&self, nth: usize) -> Result<OrderSn, Refusal> {
        self.segment(nth).parse().map_err(|_| Refusal::UnknownOrder)
    }

    /// The goods of `goodsId`.
    pub(super) fn goods(&self) -> Result<GoodsId, Refusal> {
        let text = self.parameter("goodsId")?;
        text.parse().map_err(|error| Refusal::BadRequest(format!("`goodsId`: {error}").into()))
    }

    /// The units of `decrStock`.
    pub(super) fn quantity(&self) -> Result<u32, Refusal> {
        let text = self.parameter("decrStock")?;
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let units = text.parse().ok().filter(|units| is_plain && *units > 0);
        units.ok_or(Refusal::BadRequest("`decrStock`: how many units, from 1 on, such as 1".into()))
    }

    /// A parameter of the query that stands in it once: of two, nobody knows which is meant.
    fn parameter(&self, name: &'static str) -> Result<Cow<'_, str>, Refusal> {
        let bad = |what: &str| Refusal::BadRequest(format!("`{name}`: {what}").into());
        let query = self.parts.uri.query().unwrap_or_default();
        if query.len() > QUERY_MAX {
            return Err(Refusal::BadRequest("the query: at most 2048 bytes".into()));
        }
        let mut all = form_urlencoded::parse(query.as_bytes()).filter(|(own, _)| own == name);
        match (all.next(), all.next()) {
            (Some((_, value)), None) => Ok(value),
            (None, _) => Err(bad(&format!("missing; write it into the query, as in `?{name}=…`"))),
            (Some(_), Some(_)) => Err(bad("stands in the query more than once")),
        }
    }

    /// The body as JSON; an empty one is an empty object.
    pub(super) async fn json<T: DeserializeOwned>(self) -> Result<T, Refusal> {
        let bad = |what: String| Refusal::BadRequest(format!("the body: {what}").into());
        let body = self.body.into_inner().unwrap_or_else(PoisonError::into_inner);
        let read = axum::body::to_bytes(body, BODY_MAX);
        let bytes = match tokio::time::timeout(BODY_TIMEOUT, read).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(_)) => return Err(bad("at most 64 KiB of JSON, sent whole".into())),
            Err(_) => return Err(bad("it takes longer than 10 s to come".into())),
        };
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(text).map_err(|error| bad(error.to_string()))
    }
}

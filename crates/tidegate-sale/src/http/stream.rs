//! An order as server-sent events: each state once, until the last.

use super::App;
use super::answer::NO_STORE;
use super::orders::Shown;
use super::watchers::Watching;
use crate::front::SaleService;
use crate::order::Order;
use crate::refusal::Refusal;
use axum::http::header::CACHE_CONTROL;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{Stream, unfold};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Nothing is said for longer than this: proxies give silent connections up.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long one question to the engine may take.
const LOOK: Duration = Duration::from_secs(30);
/// A stream ends after this time, whatever the order does; a browser comes back by itself.
const LIFE: Duration = Duration::from_secs(15 * 60);

struct Watch {
    service: SaleService,
    /// What is told next.
    next: Option<Order>,
    last: Order,
    until: Instant,
    stopped: watch::Receiver<bool>,
    _watching: Watching,
}

/// The stream that begins with where the order stands now.
pub(super) fn of(app: &App, order: Order) -> Result<Response, Refusal> {
    let watching = app.watchers.join(&order.user)?;
    let watch = Watch {
        service: app.service.clone(),
        last: order.clone(),
        next: Some(order),
        until: Instant::now() + LIFE,
        stopped: app.service.stopped(),
        _watching: watching,
    };
    let mut answer =
        Sse::new(events(watch)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    answer.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    Ok(answer)
}

fn events(watch: Watch) -> impl Stream<Item = Result<Event, Infallible>> {
    unfold(watch, |mut watch| async move {
        let order = match watch.next.take() {
            Some(order) => order,
            None => watch.changed().await?,
        };
        watch.last = order;
        let event = Event::default().event("order").json_data(Shown::from(&watch.last)).ok()?;
        Some((Ok(event), watch))
    })
}

impl Watch {
    /// The order once its state is another; none if there is nothing more to say.
    async fn changed(&mut self) -> Option<Order> {
        while !self.last.state.is_final() && Instant::now() < self.until {
            let (user, sn) = (&self.last.user, &self.last.order_sn);
            let order = tokio::select! {
                order = self.service.order_after(user, sn, self.last.state, LOOK) => order.ok()?,
                _ = self.stopped.wait_for(|is_stopped| *is_stopped) => return None,
            };
            if order.state != self.last.state {
                return Some(order);
            }
        }
        None
    }
}

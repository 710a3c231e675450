//! What operators do: create sales, move them along, change them, and look.

use super::App;
use super::ask::Ask;
use crate::books::Difference;
use crate::goods::GoodsId;
use crate::refusal::Refusal;
use crate::sale::{Change, Sale, SaleState};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tidegate::Limit;

/// A sale as it was defined, and where it stands.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    sale: Sale,
    #[serde(flatten)]
    state: SaleState,
}

/// `GET /admin/sales`
pub(super) async fn list(app: Arc<App>, ask: Ask) -> Result<Response, Refusal> {
    ask.operator(&app)?;
    let sales = app.service.sales().into_iter().map(|(sale, state)| Listed { sale, state });
    Ok(ask.ok(sales.collect::<Vec<_>>()))
}

/// `POST /admin/sales`
pub(super) async fn create(app: Arc<App>, ask: Ask) -> Result<Response, Refusal> {
    let by = ask.operator(&app)?;
    let lang = ask.lang;
    let mut sale: Sale = ask.json().await?;
    if sale.title.is_empty() {
        sale.title = sale.goods.to_string();
    }
    app.service.create(sale.clone(), &by).await?;
    Ok(super::answer::ok(Listed { sale, state: SaleState::Draft }, lang))
}

/// What can be looked at, by the last part of the address.
pub(super) const LOOKS: [&str; 3] = ["audit", "dead", "repair"];

/// `GET /admin/sales/{goods}/audit|dead|repair`
pub(super) async fn look(app: Arc<App>, ask: Ask) -> Result<Response, Refusal> {
    ask.operator(&app)?;
    let goods = ask.goods_at(2)?;
    match ask.segment(3) {
        "audit" => Ok(ask.ok(app.service.audit(&goods).await?)),
        "dead" => Ok(ask.ok(app.service.dead(&goods).await?)),
        "repair" => Ok(ask.ok(Repair::of(&app.service.difference(&goods).await?, false))),
        // No route has another.
        _ => Err(Refusal::UnknownGoods),
    }
}

/// What a repair finds, and whether it was done.
#[derive(Serialize)]
struct Repair<'a> {
    #[serde(flatten)]
    difference: &'a Difference,
    differs: bool,
    repaired: bool,
}

impl<'a> Repair<'a> {
    fn of(difference: &'a Difference, is_done: bool) -> Self {
        let differs = difference.is_wrong();
        Self { difference, differs, repaired: is_done && differs }
    }
}

/// `POST /admin/sales/{goods}/repair`
async fn repair(app: &App, ask: Ask, goods: &GoodsId, by: &str) -> Result<Response, Refusal> {
    let lang = ask.lang;
    ask.json::<Nothing>().await?;
    let found = app.service.repair(goods, by).await?;
    Ok(super::answer::ok(Repair::of(&found, true), lang))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pause {
    #[serde(default = "by_hand")]
    reason: String,
}

fn by_hand() -> String {
    "by an operator".into()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stock {
    add: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rate {
    limit: Limit,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Schedule {
    #[serde(default)]
    opens_at: Option<u64>,
    #[serde(default)]
    closes_at: Option<u64>,
}

/// What can be changed, likewise.
pub(super) const CHANGES: [&str; 9] =
    ["warm", "open", "pause", "resume", "close", "stock", "rate", "schedule", "repair"];

/// `POST /admin/sales/{goods}/warm|open|pause|resume|close|stock|rate|schedule|repair`
pub(super) async fn change(app: Arc<App>, ask: Ask) -> Result<Response, Refusal> {
    let by = ask.operator(&app)?;
    let (goods, lang) = (ask.goods_at(2)?, ask.lang);
    if ask.segment(3) == "repair" {
        return repair(&app, ask, &goods, &by).await;
    }
    let change = read_change(ask).await?;
    let state = app.service.change(&goods, change, &by).await?;
    Ok(super::answer::ok(state, lang))
}

async fn read_change(ask: Ask) -> Result<Change, Refusal> {
    let plain = match ask.segment(3) {
        "warm" => Change::Warm,
        "open" => Change::Open,
        "resume" => Change::Resume,
        "close" => Change::Close,
        "pause" => return ask.json().await.map(|Pause { reason }| Change::Pause { reason }),
        "stock" => return ask.json().await.map(|Stock { add }| Change::AddStock { units: add }),
        "rate" => return ask.json().await.map(|Rate { limit }| Change::Rate { limit }),
        "schedule" => {
            let Schedule { opens_at, closes_at } = ask.json().await?;
            return Ok(Change::Schedule { opens_at, closes_at });
        }
        // No route has another.
        _ => return Err(Refusal::UnknownGoods),
    };
    ask.json::<Nothing>().await.map(|Nothing {}| plain)
}

/// What becomes of a dead letter, likewise.
pub(super) const BURIALS: [&str; 2] = ["replay", "drop"];

/// `POST /admin/dead/{sn}/replay|drop`
pub(super) async fn bury(app: Arc<App>, ask: Ask) -> Result<Response, Refusal> {
    let by = ask.operator(&app)?;
    let sn = ask.order_at(2)?;
    let order = match ask.segment(3) {
        "replay" => app.service.replay(&sn, &by).await?,
        "drop" => app.service.drop_dead(&sn, &by).await?,
        // No route has another.
        _ => return Err(Refusal::UnknownOrder),
    };
    Ok(ask.ok(super::orders::Shown::from(&order)))
}

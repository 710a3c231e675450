//! Durable orders on one SQLite file, nothing else installed.

use super::buyers;
use super::kept::Kept;
use super::rate;
use crate::report::{Base, Better, Case, Plan};
use crate::rounds::{Entrant, Measured, Role, alternate};
use crate::{Fallible, Wanted};
use rusqlite::{Connection, params};
use std::path::Path;
use std::time::Instant;
use tokio::runtime::Runtime;

const NAME: &str = "orders.embedded";

const CALLERS: usize = 256;
const ORDERS: usize = CALLERS * 400;
/// What the base gets through in a second or two.
const FEW: usize = 4_000;

const BASE: &str = "one connection, one transaction an order";

pub fn run(wanted: &Wanted<'_>, runtime: &Runtime) -> Fallible<Option<Case>> {
    if !wanted.case(NAME) {
        return Ok(None);
    }
    let ours = |_| {
        let folder = tempfile::tempdir()?;
        runtime.block_on(ours(&folder.path().join("sale.db")))
    };
    let base = |_| {
        let folder = tempfile::tempdir()?;
        one_by_one(&folder.path().join("sale.db"))
    };
    let entrants =
        vec![Entrant::new("tidegate-sale", Role::Ours, ours), Entrant::new(BASE, Role::Peer, base)];
    let series = alternate(NAME, entrants, wanted.rounds)?;
    let notes = vec![
        format!("{CALLERS} callers with their paths in hand, each answered after its own commit"),
        format!("synchronous=FULL, WAL, one file; ours {ORDERS} orders a run, the base {FEW}"),
        "base: SELECT, UPDATE with the version check, INSERT and COMMIT for each order, without path, quota \
         or index beside the number"
            .to_owned(),
    ];
    let plan = Plan { name: NAME, unit: "orders/s", better: Better::Higher, base: Base::Peer(BASE), notes };
    Ok(Some(Case::new(plan, &series)?))
}

async fn ours(path: &Path) -> Fallible<Measured> {
    let service = buyers::builder().embedded(path).await?;
    let goods = buyers::on_sale(&service, "phone", ORDERS).await?;
    let tickets = buyers::tickets(&service, &goods, ORDERS).await?;
    let begun = Instant::now();
    let numbers = buyers::buy(&service, &goods, tickets, CALLERS).await?;
    let value = rate(ORDERS, begun);
    service.stop().await;
    // 1 is placed.
    let orders = "SELECT order_sn FROM sale_orders WHERE state = 1";
    let kept = kept(&Connection::open(path)?, orders, "SELECT total - stock FROM sale_goods")?;
    Ok(kept.measured(ORDERS, &numbers, value))
}

fn one_by_one(path: &Path) -> Fallible<Measured> {
    let mut conn = Connection::open(path)?;
    let units = i64::try_from(FEW)?;
    conn.execute_batch(&format!(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         CREATE TABLE goods (id text PRIMARY KEY, stock integer NOT NULL, version integer NOT NULL);
         CREATE TABLE orders (order_sn text PRIMARY KEY, goods text NOT NULL, user text NOT NULL,
                              quantity integer NOT NULL);
         INSERT INTO goods VALUES ('phone', {units}, 0)"
    ))?;
    let begun = Instant::now();
    let mut numbers = Vec::with_capacity(FEW);
    for nth in 0..FEW {
        let number = format!("phone-{nth}");
        let tx = conn.transaction()?;
        let look = "SELECT version FROM goods WHERE id = ?1";
        let version: i64 = tx.prepare_cached(look)?.query_row(["phone"], |row| row.get(0))?;
        let take = "UPDATE goods SET stock = stock - 1, version = version + 1
                    WHERE id = ?1 AND stock >= 1 AND version = ?2";
        if tx.prepare_cached(take)?.execute(params!["phone", version])? == 0 {
            return Err("another wrote meanwhile, and there is none".into());
        }
        let insert = "INSERT INTO orders VALUES (?1, ?2, ?3, 1)";
        tx.prepare_cached(insert)?.execute(params![number, "phone", format!("user-{nth}")])?;
        tx.commit()?;
        numbers.push(number);
    }
    let value = rate(FEW, begun);
    let taken = format!("SELECT {units} - stock FROM goods");
    kept(&conn, "SELECT order_sn FROM orders", &taken)?.measured_base(FEW, &numbers, value)
}

fn kept(conn: &Connection, orders: &str, taken: &str) -> Fallible<Kept> {
    let taken = conn.query_row(taken, [], |row| row.get(0))?;
    let orders = conn.prepare(orders)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(Kept { orders, taken })
}

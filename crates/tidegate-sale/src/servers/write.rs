//! Orders become rows. A batch is one transaction; one that fails is halved until the order
//! that cannot be placed is alone, and that becomes a dead letter.

use super::acked::Acked;
use super::core::Core;
use super::db::{Db, DbError, NOW, within};
use super::letter::{Body, Letter, Orders, Sent};
use crate::goods::GoodsId;
use crate::order::OrderState;
use crate::time::now_ms;
use deadpool_postgres::Transaction;
use std::collections::{BTreeMap, BTreeSet};

/// An order that came out of the queue.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    sn: String,
    goods: String,
    user: String,
    quantity: i64,
    epoch: i32,
    path: Vec<u8>,
    key: Option<String>,
    at: i64,
    /// Its message.
    tag: u64,
}

impl Arrival {
    /// The orders of a message.
    pub(super) fn all(letter: &Letter, tag: u64) -> Vec<Self> {
        let Body::Orders(Orders { epoch, at, orders }) = &letter.body else { return Vec::new() };
        orders.iter().map(|sent| Self::new(&letter.goods, *epoch, *at, sent.clone(), tag)).collect()
    }

    pub(super) fn new(goods: &GoodsId, epoch: u32, at: u64, sent: Sent, tag: u64) -> Self {
        Self {
            sn: sent.sn(goods, epoch).to_string(),
            goods: goods.to_string(),
            user: sent.user.to_string(),
            quantity: sent.quantity.into(),
            epoch: i32::try_from(epoch).unwrap_or(i32::MAX),
            path: sent.path_bytes().unwrap_or_default(),
            key: sent.key,
            at: i64::try_from(at).unwrap_or(i64::MAX),
            tag,
        }
    }
}

/// Writes all of them, each once, however often it is asked to. Tells the messages with an
/// order that even the dead letters cannot take.
///
/// # Errors
/// Only such as pass by themselves.
pub(super) async fn write(core: &Core, arrivals: &[Arrival]) -> Result<BTreeSet<u64>, DbError> {
    let mut refused = BTreeSet::new();
    // The first stands last.
    let mut waiting = vec![arrivals];
    while let Some(batch) = waiting.pop() {
        match (within(place(core, batch)).await, batch) {
            (Ok(()), _) => {}
            (Err(error @ DbError::Passing(_)), _) => return Err(error),
            (Err(DbError::Refused(why)), [arrival]) => match within(bury(&core.db, arrival, &why)).await {
                Err(DbError::Refused(error)) => {
                    tracing::error!(sn = arrival.sn, why, error, "not even a dead letter");
                    refused.insert(arrival.tag);
                }
                buried => buried?,
            },
            (Err(DbError::Refused(_)), _) => {
                let (one, other) = batch.split_at(batch.len() / 2);
                waiting.extend([other, one]);
            }
        }
    }
    Ok(refused)
}

/// A goods, as it is while it is locked.
struct Held {
    version: i64,
    epoch: i32,
    is_single: bool,
    pay_within: Option<i32>,
    per_user: Option<i64>,
    /// The database's time.
    now: i64,
}

async fn lock(tx: &Transaction<'_>, goods: &BTreeSet<&str>) -> Result<BTreeMap<String, Held>, DbError> {
    let goods: Vec<&str> = goods.iter().copied().collect();
    let sql = format!(
        "SELECT goods, version, epoch, one_each, pay_within, (definition::json ->> 'per_user')::int8, {NOW}
         FROM sale_goods
         WHERE goods = ANY($1) ORDER BY goods FOR UPDATE"
    );
    let rows = tx.query(&tx.prepare_cached(&sql).await?, &[&goods]).await?;
    let held = |row: &tokio_postgres::Row| Held {
        version: row.get(1),
        epoch: row.get(2),
        is_single: row.get(3),
        pay_within: row.get(4),
        per_user: row.get(5),
        now: row.get(6),
    };
    Ok(rows.iter().map(|row| (row.get(0), held(row))).collect())
}

const INSERT: &str = "
    INSERT INTO sale_orders (order_sn, goods, buyer, quantity, epoch, path, key, state, is_single,
                             created_at, updated_at, pay_by)
    SELECT n.sn, n.goods, n.buyer, n.quantity, n.epoch, n.path, n.key, $11::int2, n.is_single, n.at, $12::int8, n.pay_by
    FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[], $5::int4[], $6::bytea[], $7::text[],
                $8::bool[], $9::int8[], $10::int8[])
         AS n (sn, goods, buyer, quantity, epoch, path, key, is_single, at, pay_by)
    WHERE NOT EXISTS (SELECT FROM sale_dead d WHERE d.order_sn = n.sn)
    ON CONFLICT (order_sn) DO NOTHING
    RETURNING order_sn";

/// All of them, or none.
async fn place(core: &Core, batch: &[Arrival]) -> Result<(), DbError> {
    if batch.is_empty() {
        return Ok(());
    }
    let mut client = core.db.client().await?;
    let tx = client.transaction().await?;
    let held = lock(&tx, &batch.iter().map(|one| one.goods.as_str()).collect()).await?;
    if let Some(one) = batch.iter().find(|one| !held.contains_key(&one.goods)) {
        return Err(DbError::Refused(format!("there is no sale of `{}`", one.goods)));
    }
    let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
    // From now on by the database's clock, because it cannot be paid before: an order may have
    // waited long to get here, and Redis's clock may be ahead.
    let pay_by = |one: &Arrival| {
        let held = &held[&one.goods];
        held.pay_within.map(|within| held.now.saturating_add(i64::from(within) * 1000))
    };
    let column = |part: fn(&Arrival) -> &str| batch.iter().map(part).collect::<Vec<&str>>();
    let numbers = |part: fn(&Arrival) -> i64| batch.iter().map(part).collect::<Vec<i64>>();
    let epochs: Vec<i32> = batch.iter().map(|one| one.epoch).collect();
    let paths: Vec<&[u8]> = batch.iter().map(|one| one.path.as_slice()).collect();
    let keys: Vec<Option<&str>> = batch.iter().map(|one| one.key.as_deref()).collect();
    let singles: Vec<bool> = batch.iter().map(|one| held[&one.goods].is_single).collect();
    let pay_bys: Vec<Option<i64>> = batch.iter().map(pay_by).collect();
    let rows = tx
        .query(
            &tx.prepare_cached(INSERT).await?,
            &[
                &column(|one| &one.sn),
                &column(|one| &one.goods),
                &column(|one| &one.user),
                &numbers(|one| one.quantity),
                &epochs,
                &paths,
                &keys,
                &singles,
                &numbers(|one| one.at),
                &pay_bys,
                &OrderState::Placed.code(),
                &now,
            ],
        )
        .await?;
    if rows.len() < batch.len() {
        strangers(&tx, &column(|one| &one.sn), &paths).await?;
    }
    let mut inserted: BTreeSet<&str> = rows.iter().map(|row| row.get(0)).collect();
    let mut takes: BTreeMap<&str, Take<'_>> = BTreeMap::new();
    for one in batch.iter().filter(|one| inserted.remove(one.sn.as_str())) {
        takes.entry(&one.goods).or_default().add(one, &held[&one.goods]);
    }
    for (goods, take) in &takes {
        let shelf = goods.parse().ok().and_then(|goods| core.shelf(&goods));
        take.run(&tx, goods, &held[*goods], shelf.map(|shelf| shelf.acked())).await?;
    }
    tx.commit().await?;
    client.give_back();
    for goods in takes.keys() {
        let (epoch, version) = (held[*goods].epoch, held[*goods].version + 1);
        if let Some(shelf) = goods.parse().ok().and_then(|goods| core.shelf(&goods)) {
            shelf.note((u32::try_from(epoch).unwrap_or(0), version));
        }
    }
    Ok(())
}

/// An order that was written before is no matter; one whose number belongs to another is.
async fn strangers(tx: &Transaction<'_>, numbers: &[&str], paths: &[&[u8]]) -> Result<(), DbError> {
    let sql = "SELECT o.order_sn FROM unnest($1::text[], $2::bytea[]) AS n (sn, path)
               JOIN sale_orders o ON o.order_sn = n.sn WHERE o.path <> n.path LIMIT 1";
    match tx.query_opt(&tx.prepare_cached(sql).await?, &[&numbers, &paths]).await? {
        Some(row) => {
            Err(DbError::Refused(format!("the number {} was given out twice", row.get::<_, &str>(0))))
        }
        None => Ok(()),
    }
}

/// What new orders take from one goods.
#[derive(Default)]
struct Take<'a> {
    units: i64,
    orders: i64,
    /// Those of this epoch: Redis has taken them from what is left.
    arrived: i64,
    /// Those of an older one: Redis was loaded without them, and has to take them yet.
    late: Vec<&'a Arrival>,
}

impl<'a> Take<'a> {
    fn add(&mut self, one: &'a Arrival, held: &Held) {
        self.units += one.quantity;
        self.orders += 1;
        if one.epoch == held.epoch {
            self.arrived += one.quantity;
        } else {
            self.late.push(one);
        }
    }

    /// With the highest acknowledged number that this process has heard of.
    async fn run(
        &self,
        tx: &Transaction<'_>,
        goods: &str,
        held: &Held,
        acked: Option<Acked>,
    ) -> Result<(), DbError> {
        let sql = "UPDATE sale_goods SET stock = stock - $3, orders = orders + $4, arrived = arrived + $5,
                          version = version + 1, acked = greatest(acked, $6), sure = greatest(sure, $7)
                   WHERE goods = $1 AND version = $2 AND stock >= $3";
        let is_same = |acked: &Acked| i32::try_from(acked.epoch) == Ok(held.epoch);
        let Acked { highest, sure, .. } = acked.filter(is_same).unwrap_or_default();
        let params: &[super::db::Param<'_>] =
            &[&goods, &held.version, &self.units, &self.orders, &self.arrived, &highest, &sure];
        if tx.execute(&tx.prepare_cached(sql).await?, params).await? == 0 {
            return Err(DbError::Refused("no stock is left for it".into()));
        }
        self.check_quota(tx, goods, held).await?;
        for late in &self.late {
            let sql = "INSERT INTO sale_returns (goods, epoch, buyer, units) VALUES ($1, $2, $3, $4)";
            tx.execute(sql, &[&goods, &held.epoch, &late.user, &-late.quantity]).await?;
        }
        Ok(())
    }
}

impl Take<'_> {
    /// Redis knew nothing of the late ones when it let their buyers buy again.
    async fn check_quota(&self, tx: &Transaction<'_>, goods: &str, held: &Held) -> Result<(), DbError> {
        let (false, Some(per_user)) = (self.late.is_empty(), held.per_user) else { return Ok(()) };
        let buyers: Vec<&str> = self.late.iter().map(|late| late.user.as_str()).collect();
        let sql = "SELECT FROM sale_orders WHERE goods = $1 AND buyer = ANY($2) AND state IN (1, 2)
                   GROUP BY buyer HAVING sum(quantity) > $3::int8 LIMIT 1";
        match tx.query_opt(&tx.prepare_cached(sql).await?, &[&goods, &buyers, &per_user]).await? {
            Some(_) => Err(DbError::Refused("its buyer has bought what one may by now".into())),
            None => Ok(()),
        }
    }
}

/// It becomes a dead letter. Its units stay where they are until an operator decides.
async fn bury(db: &Db, one: &Arrival, why: &str) -> Result<(), DbError> {
    let mut client = db.client().await?;
    let tx = client.transaction().await?;
    let held = lock(&tx, &BTreeSet::from([one.goods.as_str()])).await?;
    let is_held = held.get(&one.goods).is_some_and(|held| held.epoch == one.epoch);
    let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
    let sql = "INSERT INTO sale_dead (order_sn, goods, buyer, quantity, epoch, path, key, created_at, reason, at,
                                      is_held)
               SELECT $1::text, $2::text, $3::text, $4::int8, $5::int4, $6::bytea, $7::text, $8::int8, $9::text,
                      $10::int8, $11::bool
               WHERE NOT EXISTS (SELECT FROM sale_orders WHERE order_sn = $1)
               ON CONFLICT (order_sn) DO NOTHING";
    let params: &[super::db::Param<'_>] = &[
        &one.sn,
        &one.goods,
        &one.user,
        &one.quantity,
        &one.epoch,
        &one.path,
        &one.key,
        &one.at,
        &why,
        &now,
        &is_held,
    ];
    let is_new = tx.execute(&tx.prepare_cached(sql).await?, params).await? > 0;
    if !is_new {
        strangers(&tx, &[&one.sn], &[&one.path]).await?;
    }
    if is_new && is_held {
        let sql = "UPDATE sale_goods SET arrived = arrived + $2, version = version + 1 WHERE goods = $1";
        tx.execute(sql, &[&one.goods, &one.quantity]).await?;
    }
    tracing::warn!(sn = one.sn, why, "an order could not be placed, and is a dead letter");
    tx.commit().await?;
    client.give_back();
    Ok(())
}

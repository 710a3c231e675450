//! What a record goes through, as steps within a transaction.

use super::foreign::{Name, number, some_number, status_code, text};
use super::writer::Tx;
use crate::backend::{Beat, Claim, Claimed, Ended, Lease, Settled, orphan_reason};
use crate::clock::{Micros, micros, to_micros, to_time};
use crate::record::Status;
use crate::{Bound, Call, Cancelled, Guid, Retried};
use rusqlite::{OptionalExtension as _, Row, params};
use std::collections::BTreeMap;
use std::time::Duration;

/// The guid that the call has, and whether it was there before; or the bound that it meets.
pub(super) fn defer(tx: &Tx<'_>, guid: &Guid, call: &Call) -> rusqlite::Result<Result<Option<Guid>, Bound>> {
    if let Some(key) = &call.key {
        let mut statement = tx.conn.prepare_cached(&tx.sql.by_key)?;
        let there = statement.query_row(params![call.method, key], |row| text(row, 0)).optional()?;
        if let Some(there) = there {
            return Ok(Ok(Some(Guid::stored(there.unwrap_or_default()))));
        }
    }
    let mut counts = tx.counts.borrow_mut();
    if let Some(bound) = counts.full(tx, &call.method)? {
        return Ok(Err(bound));
    }
    tx.conn.prepare_cached(&tx.sql.insert)?.execute(params![
        guid.as_str(),
        call.method,
        call.params,
        tx.now,
        later(tx.now, call.delay),
        call.deadline.map(|time| later(tx.now, time)),
        call.key,
        call.priority,
        call.max_attempts,
    ])?;
    counts.add(tx, &Name::of(&call.method), 1)?;
    Ok(Ok(None))
}

pub(super) fn claim(tx: &Tx<'_>, ask: &Claim) -> rusqlite::Result<Vec<Claimed>> {
    let due = ask.as_of.map_or(tx.now, |time| to_micros(time).min(tx.now));
    let until = later(tx.now, ask.lease);
    let mut statement = tx.conn.prepare_cached(&tx.sql.claim)?;
    let mut all = Vec::new();
    for (method, want) in &ask.wants {
        let mut left = *want as usize;
        for level in (0..=9u8).rev() {
            if left == 0 {
                break;
            }
            let given = params![method, level, due, left as i64, ask.owner, until];
            for row in statement.query_map(given, |row| claimed(row, tx.now))? {
                all.push(row?);
                left -= 1;
            }
        }
    }
    Ok(all)
}

/// Never fails for what others wrote: one row must not keep all the others from being claimed.
fn claimed(row: &Row<'_>, now: Micros) -> rusqlite::Result<Claimed> {
    let left = |at: Micros| Duration::from_micros(at.saturating_sub(now).max(0).unsigned_abs());
    Ok(Claimed {
        lease: Lease { guid: Guid::stored(text(row, 0)?.unwrap_or_default()), number: number(row, 1)? },
        method: text(row, 2)?.unwrap_or_default(),
        params: text(row, 3)?.unwrap_or_default(),
        priority: number(row, 4)?,
        attempts: number(row, 5)?,
        lapses: number(row, 10)?,
        max_attempts: some_number(row, 6)?,
        last_error: text(row, 7)?,
        create_time: to_time(number(row, 8)?),
        left: some_number(row, 9)?.map(left),
    })
}

/// Whether the lease holds.
pub(super) fn count(tx: &Tx<'_>, lease: &Lease, attempts: u32) -> rusqlite::Result<bool> {
    let mut statement = tx.conn.prepare_cached(&tx.sql.count)?;
    Ok(statement.execute(params![lease.guid.as_str(), lease.number, attempts])? == 1)
}

pub(super) fn beat(tx: &Tx<'_>, leases: &[Lease], length: Duration) -> rusqlite::Result<Beat> {
    let until = later(tx.now, length);
    let mut statement = tx.conn.prepare_cached(&tx.sql.beat)?;
    let mut beat = Beat::default();
    for Lease { guid, number } in leases {
        let is_lost = statement.execute(params![guid.as_str(), number, until])? == 0;
        if is_lost { &mut beat.lost } else { &mut beat.prolonged }.push(guid.clone());
    }
    Ok(beat)
}

/// Which could be entered.
pub(super) fn settle(tx: &Tx<'_>, outcomes: &[Settled]) -> rusqlite::Result<Vec<Guid>> {
    let mut statement = tx.conn.prepare_cached(&tx.sql.settle)?;
    let mut entered = Vec::with_capacity(outcomes.len());
    for Settled { lease, end, is_counted } in outcomes {
        let (status, after, result, error) = end.columns();
        let next = tx.now.saturating_add(after);
        let given =
            params![lease.guid.as_str(), lease.number, status, tx.now, next, result, error, is_counted];
        let method: Option<Option<Name>> = statement.query_row(given, |row| row.get(0)).optional()?;
        let Some(method) = method else { continue };
        if status != 0 {
            ended(tx, method.as_ref())?;
        }
        entered.push(lease.guid.clone());
    }
    Ok(entered)
}

/// And the number that it has now.
pub(super) fn cancel(tx: &Tx<'_>, guid: &Guid) -> rusqlite::Result<(Cancelled, Option<i64>)> {
    let Some(status) = standing(tx, guid)? else { return Ok((Cancelled::Unknown, None)) };
    if status.has_ended() {
        return Ok((Cancelled::AlreadyEnded(status), None));
    }
    let mut statement = tx.conn.prepare_cached(&tx.sql.cancel)?;
    let (method, number): (Option<Name>, i64) =
        statement.query_row(params![guid.as_str(), tx.now], |row| Ok((row.get(0)?, row.get(1)?)))?;
    ended(tx, method.as_ref())?;
    let cancelled = if status == Status::Running { Cancelled::Running } else { Cancelled::Pending };
    Ok((cancelled, Some(number)))
}

pub(super) fn retry(tx: &Tx<'_>, guid: &Guid) -> rusqlite::Result<Retried> {
    let Some(status) = standing(tx, guid)? else { return Ok(Retried::Unknown) };
    let mut statement = tx.conn.prepare_cached(&tx.sql.retry)?;
    let given = params![guid.as_str(), tx.now];
    let method: Option<Option<Name>> = statement.query_row(given, |row| row.get(0)).optional()?;
    let Some(method) = method else { return Ok(Retried::refused(status)) };
    if let Some(method) = method.filter(Name::is_some) {
        tx.counts.borrow_mut().add(tx, &method, 1)?;
    }
    Ok(Retried::Pending)
}

pub(super) fn announce(tx: &Tx<'_>, methods: &[String]) -> rusqlite::Result<()> {
    let mut statement = tx.conn.prepare_cached(&tx.sql.announce)?;
    methods.iter().try_for_each(|method| statement.execute(params![method, tx.now]).map(|_| ()))
}

pub(super) fn expire(tx: &Tx<'_>, batch: u32) -> rusqlite::Result<Ended> {
    let mut statement = tx.conn.prepare_cached(&tx.sql.expire)?;
    let methods = statement.query_map(params![tx.now, batch], |row| row.get(0))?;
    let methods: Vec<Option<Name>> = methods.collect::<rusqlite::Result<_>>()?;
    methods.iter().try_for_each(|method| ended(tx, method.as_ref()))?;
    let mut counts: BTreeMap<Option<String>, u64> = BTreeMap::new();
    for method in methods {
        *counts.entry(method.map(|name| name.shown().into_owned())).or_default() += 1;
    }
    Ok(Ended(counts.into_iter().collect()))
}

pub(super) fn fail_orphans(tx: &Tx<'_>, after: Duration, batch: u32) -> rusqlite::Result<Ended> {
    let mut failed = Vec::new();
    for no_name in [None, Some("")] {
        let nameless =
            tx.conn.prepare_cached(&tx.sql.fail_nameless)?.execute(params![tx.now, batch, no_name])?;
        failed.push((None, nameless as u64));
    }
    // The counts say which methods are waited for.
    tx.counts.borrow_mut().write(tx)?;
    let since = tx.now.saturating_sub(micros(after));
    tx.conn.prepare_cached(&tx.sql.missed)?.execute(params![tx.now, since])?;
    let mut orphaned = tx.conn.prepare_cached(&tx.sql.orphaned)?;
    let methods = orphaned.query_map(params![since, tx.now], |row| row.get(0))?;
    let methods: Vec<Name> = methods.collect::<rusqlite::Result<_>>()?;
    for method in methods {
        let given = params![method, since, batch, tx.now, orphan_reason(after)];
        let count = tx.conn.prepare_cached(&tx.sql.fail_orphans)?.execute(given)?;
        tx.counts.borrow_mut().add(tx, &method, -(count as i64))?;
        failed.push((Some(method.shown().into_owned()), count as u64));
    }
    Ok(Ended(failed))
}

pub(super) fn purge(tx: &Tx<'_>, keep: Duration, batch: u32) -> rusqlite::Result<u64> {
    let before = tx.now.saturating_sub(micros(keep));
    Ok(tx.conn.prepare_cached(&tx.sql.purge)?.execute(params![before, batch, tx.now])? as u64)
}

pub(super) fn recount(tx: &Tx<'_>) -> rusqlite::Result<()> {
    tx.counts.borrow_mut().write(tx)?;
    tx.conn.execute_batch(&tx.sql.recount)
}

fn standing(tx: &Tx<'_>, guid: &Guid) -> rusqlite::Result<Option<Status>> {
    let mut statement = tx.conn.prepare_cached(&tx.sql.standing)?;
    let status = |row: &Row<'_>| {
        let until: Option<Micros> = some_number(row, 1)?;
        Ok(Status::read(status_code(row, 0)?, until.is_some_and(|until| until > tx.now)))
    };
    statement.query_row([guid.as_str()], status).optional()
}

fn ended(tx: &Tx<'_>, method: Option<&Name>) -> rusqlite::Result<()> {
    method.filter(|name| name.is_some()).map_or(Ok(()), |method| tx.counts.borrow_mut().add(tx, method, -1))
}

fn later(now: Micros, by: Duration) -> Micros {
    now.saturating_add(micros(by))
}

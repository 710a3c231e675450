//! Rows into what they stand for.

use crate::Guid;
use crate::backend::{Claimed, Depth, Lease};
use crate::record::{Record, Status};
use std::time::{Duration, SystemTime};
use tokio_postgres::{Error, Row};

pub(super) fn record(row: &Row) -> Result<Record, Error> {
    Ok(Record {
        guid: guid(row, 0)?,
        method: row.try_get(1)?,
        params: row.try_get(2)?,
        status: Status::read(row.try_get(3)?, row.try_get(14)?),
        attempts: whole(row.try_get(4)?),
        priority: level(row.try_get(5)?),
        create_time: row.try_get(6)?,
        update_time: row.try_get(7)?,
        next_time: row.try_get(8)?,
        deadline: row.try_get::<_, Option<SystemTime>>(9)?,
        lease_owner: row.try_get(10)?,
        key: row.try_get(11)?,
        last_error: row.try_get(12)?,
        result: row.try_get(13)?,
    })
}

pub(super) fn claimed(row: &Row) -> Result<Claimed, Error> {
    let left: Option<i64> = row.try_get(9)?;
    let most: Option<i16> = row.try_get(6)?;
    Ok(Claimed {
        lease: Lease { guid: guid(row, 0)?, number: row.try_get(1)? },
        method: row.try_get(2)?,
        params: row.try_get(3)?,
        priority: level(row.try_get(4)?),
        attempts: whole(row.try_get(5)?),
        lapses: whole(row.try_get(10)?),
        max_attempts: most.map(|most| most.max(1).unsigned_abs()),
        last_error: row.try_get(7)?,
        create_time: row.try_get(8)?,
        left: left.map(|us| Duration::from_micros(us.max(0).unsigned_abs())),
    })
}

pub(super) fn depth(row: &Row) -> Result<Depth, Error> {
    let time = |us: i64| Duration::from_micros(us.max(0).unsigned_abs());
    let (overdue, oldest): (Option<i64>, Option<i64>) = (row.try_get(2)?, row.try_get(3)?);
    Ok(Depth {
        method: row.try_get(0)?,
        pending: row.try_get::<_, i64>(1)?.max(0).unsigned_abs(),
        overdue: overdue.filter(|us| *us >= 0).map(time),
        oldest: oldest.map(time),
    })
}

pub(super) fn ended(row: &Row) -> Result<(Option<String>, u64), Error> {
    Ok((row.try_get(0)?, row.try_get::<_, i64>(1)?.max(0).unsigned_abs()))
}

pub(super) fn guid(row: &Row, column: usize) -> Result<Guid, Error> {
    Ok(Guid::stored(row.try_get(column)?))
}

fn whole(number: i32) -> u32 {
    number.max(0).unsigned_abs()
}

fn level(priority: i16) -> u8 {
    u8::try_from(priority.clamp(0, 9)).unwrap_or(0)
}

//! What other programs write into the table, made into what we read.
//!
//! SQLite takes anything in any column: `CURRENT_TIMESTAMP` is text there, and a driver may
//! bind parameters as bytes. Old programs go on inserting after their table was taken over, so
//! a trigger sets their rows right as they come, within their own statement: it must not use
//! anything that an old SQLite does not know. Another does so for a status that is taken away: no
//! index finds such a row. Other columns that are *updated* by hand are set right with the next
//! recount; until then they are read as far as they go.

use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use std::borrow::Cow;

/// A time as microseconds since 1970: seconds and milliseconds are told by their size (there
/// are no records of before 1973), text is read in UTC, unless it is what a column for text made
/// of our own number. What cannot be read counts as now.
pub(super) fn micros_of(x: &str) -> String {
    let since_1970 =
        |time: &str| format!("CAST(round((julianday({time}) - 2440587.5) * 86400000.0) AS integer) * 1000");
    let (text, now) = (since_1970(x), since_1970("'now'"));
    format!(
        "CASE WHEN typeof({x}) = 'text' AND {x} NOT GLOB '*[^0-9]*' THEN CAST({x} AS integer)
              WHEN typeof({x}) NOT IN ('integer', 'real') THEN coalesce({text}, {now})
              WHEN {x} BETWEEN 1e8 AND 1e11 THEN CAST({x} * 1000000 AS integer)
              WHEN {x} BETWEEN 1e11 AND 1e14 THEN CAST({x} * 1000 AS integer)
              ELSE CAST({x} AS integer) END"
    )
}

/// Columns of a row that others wrote, as they should be. They may write local time: what they
/// recorded in the future, by the time of the file, is due now.
fn set_right(t: &str) -> String {
    let (created, updated) = (micros_of("create_time"), micros_of("update_time"));
    format!(
        "create_time = {created}, update_time = {updated}, status = coalesce(status, 0),
         is_delete = CASE WHEN typeof(is_delete) = 'integer' THEN is_delete
                          WHEN lower(trim(CAST(is_delete AS text))) IN ('t', 'true', 'y', 'yes', 'on')
                            OR CAST(is_delete AS real) <> 0 THEN 1 ELSE 0 END,
         next_time = CASE next_time WHEN 0 THEN min({created}, (SELECT now FROM {t}_clock)) ELSE next_time END,
         guid = CASE typeof(guid) WHEN 'blob' THEN lower(hex(guid)) ELSE guid END,
         method_name = CASE typeof(method_name) WHEN 'blob' THEN CAST(method_name AS text) ELSE method_name END,
         method_params = CASE typeof(method_params) WHEN 'blob' THEN CAST(method_params AS text) ELSE method_params END"
    )
}

/// Whether a row is not as we write it; `of` says which.
fn is_foreign(of: &str) -> String {
    let is_no_time = |x: &str| format!("typeof({of}{x}) <> 'integer' OR {of}{x} BETWEEN 1e8 AND 1e14");
    format!(
        "{} OR {} OR {of}status IS NULL OR typeof({of}is_delete) <> 'integer' OR {of}next_time = 0 AND {of}status = 0
         OR 'blob' IN (typeof({of}guid), typeof({of}method_name), typeof({of}method_params))",
        is_no_time("create_time"),
        is_no_time("update_time")
    )
}

/// For each row that is inserted from now on, and for each whose status is taken away.
pub(super) fn triggers(t: &str) -> String {
    format!(
        "CREATE TRIGGER tr_{t}_foreign AFTER INSERT ON {t} WHEN {}
         BEGIN UPDATE {t} SET {} WHERE rowid = NEW.rowid; END;
         CREATE TRIGGER tr_{t}_no_status AFTER UPDATE OF status ON {t} WHEN NEW.status IS NULL
         BEGIN UPDATE {t} SET status = 0 WHERE rowid = NEW.rowid; END;",
        is_foreign("NEW."),
        set_right(t)
    )
}

/// For every row that is there.
pub(super) fn all(t: &str) -> String {
    format!("UPDATE {t} SET {} WHERE {};", set_right(t), is_foreign(""))
}

/// For times that somebody set by hand. Text and bytes lie behind all numbers in the indexes.
pub(super) fn by_hand(t: &str) -> String {
    let (created, updated) = (micros_of("create_time"), micros_of("update_time"));
    format!(
        "UPDATE {t} SET create_time = {created} WHERE create_time >= '' AND create_time GLOB '*[^0-9]*';
         UPDATE {t} SET update_time = {updated} WHERE update_time >= '' AND update_time GLOB '*[^0-9]*';"
    )
}

/// The name of a method as it stands in a table. Others may have written one that is no valid
/// text: it has to be found again by exactly what it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    Text(Vec<u8>),
    Bytes(Vec<u8>),
}

impl Name {
    pub(super) fn of(method: &str) -> Self {
        Self::Text(method.into())
    }

    /// Others may also write an empty one: that is no name.
    pub(super) fn is_some(&self) -> bool {
        let (Self::Text(bytes) | Self::Bytes(bytes)) = self;
        !bytes.is_empty()
    }

    pub(super) fn shown(&self) -> Cow<'_, str> {
        let (Self::Text(bytes) | Self::Bytes(bytes)) = self;
        String::from_utf8_lossy(bytes)
    }
}

impl FromSql for Name {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(match value {
            ValueRef::Null => Self::Text(Vec::new()),
            ValueRef::Integer(number) => Self::of(&number.to_string()),
            ValueRef::Real(number) => Self::of(&number.to_string()),
            ValueRef::Text(bytes) => Self::Text(bytes.to_vec()),
            ValueRef::Blob(bytes) => Self::Bytes(bytes.to_vec()),
        })
    }
}

impl ToSql for Name {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Text(bytes) => ValueRef::Text(bytes),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Text, whatever it was written as: a column that others declared may have made a number of
/// it, or hold bytes.
pub(super) fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
    })
}

/// A number that fits, or else what stands for none.
pub(super) fn number<T: TryFrom<i64> + Default>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => T::try_from(number).unwrap_or_default(),
        _ => T::default(),
    })
}

/// What stands for the status. None is pending; what is no such number is none that we know.
pub(super) fn status_code(row: &Row<'_>, column: usize) -> rusqlite::Result<i16> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => 0,
        ValueRef::Integer(number) => i16::try_from(number).unwrap_or(-1),
        _ => -1,
    })
}

/// A number, if there is one.
pub(super) fn some_number<T: TryFrom<i64>>(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<T>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => T::try_from(number).ok(),
        _ => None,
    })
}

//! The tables, by version. Columns are only ever added, rows never lost.

use rusqlite::Connection;

/// What makes each version out of the one before it.
const STEPS: [&str; 2] = [
    "
    CREATE TABLE sale_settings (name text PRIMARY KEY, value text NOT NULL) WITHOUT ROWID;
    CREATE TABLE sale_goods (
        goods text PRIMARY KEY,
        sale text NOT NULL,
        state text NOT NULL,
        epoch integer NOT NULL,
        total integer NOT NULL,
        stock integer NOT NULL CHECK (stock >= 0),
        placed integer NOT NULL DEFAULT 0,
        orders integer NOT NULL DEFAULT 0,
        returned integer NOT NULL DEFAULT 0,
        version integer NOT NULL DEFAULT 0,
        CHECK (stock + placed = total)
    ) WITHOUT ROWID;
    CREATE TABLE sale_orders (
        order_sn text PRIMARY KEY,
        goods text NOT NULL,
        user text NOT NULL,
        quantity integer NOT NULL CHECK (quantity > 0),
        epoch integer NOT NULL,
        path blob NOT NULL UNIQUE,
        key text,
        one_each integer NOT NULL,
        state integer NOT NULL,
        reason text,
        created_at integer NOT NULL,
        updated_at integer NOT NULL,
        pay_by integer
    );
    CREATE UNIQUE INDEX sale_orders_one_each ON sale_orders (goods, user)
        WHERE one_each = 1 AND state IN (1, 2);
    CREATE UNIQUE INDEX sale_orders_key ON sale_orders (goods, user, key) WHERE key IS NOT NULL;
    CREATE INDEX sale_orders_due ON sale_orders (goods, pay_by)
        WHERE state = 1 AND pay_by IS NOT NULL;
    CREATE TABLE sale_dead (
        order_sn text PRIMARY KEY,
        goods text NOT NULL,
        user text NOT NULL,
        quantity integer NOT NULL,
        epoch integer NOT NULL,
        path blob NOT NULL,
        key text,
        one_each integer NOT NULL,
        reason text NOT NULL,
        created_at integer NOT NULL,
        pay_by integer,
        at integer NOT NULL,
        dropped_at integer
    );
    CREATE INDEX sale_dead_waiting ON sale_dead (goods) WHERE dropped_at IS NULL;
    CREATE TABLE sale_audit (
        id integer PRIMARY KEY,
        goods text NOT NULL,
        at integer NOT NULL,
        by text NOT NULL,
        what text NOT NULL
    );
    CREATE INDEX sale_audit_goods ON sale_audit (goods, id);
",
    // To count one sale's orders without reading those of all others.
    "CREATE INDEX sale_orders_goods ON sale_orders (goods, state, quantity)",
];

/// Brings the file to this program's version, or says why not.
pub(super) fn migrate(conn: &Connection) -> Result<(), String> {
    let text = |error: rusqlite::Error| error.to_string();
    let known = STEPS.len();
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, usize>(0)).map_err(text);
    let version = count("PRAGMA user_version")?;
    if version > known {
        return Err(format!("it has version {version}, and this program knows {known}: use a newer program"));
    }
    if version == 0 && count("SELECT count(*) FROM sqlite_master")? > 0 {
        return Err("it is another program's file; name a file of its own for the sale".into());
    }
    for (nth, step) in STEPS.iter().enumerate().skip(version) {
        let step = format!("BEGIN IMMEDIATE; {step}; PRAGMA user_version = {}; COMMIT", nth + 1);
        conn.execute_batch(&step).map_err(text)?;
    }
    Ok(())
}

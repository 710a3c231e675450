//! Two roles on PostgreSQL: one that reads and writes, one that only reads.
//!
//! Where the user may not make or grant them, the journal works all the same, and says so.

use super::core::Core;
use super::fault::fault_of;
use crate::JournalError;
use crate::builder::Settings;

/// Makes and grants what is missing; answers what could not be done, or is dangerous.
pub(super) async fn grant(core: &Core, settings: &Settings) -> Result<Vec<String>, JournalError> {
    // Of no use to who only looks at what others recorded, and were told.
    let mut notes = if settings.must_exist { Vec::new() } else { durability(core).await? };
    let Some((read_write, read_only)) = &settings.roles else { return Ok(notes) };
    let t = &settings.table;
    let all = format!("{t}, {t}_count, {t}_method");
    let wanted = [
        (
            read_write,
            &["SELECT", "INSERT", "UPDATE", "DELETE"][..],
            format!(
                "GRANT SELECT, INSERT, UPDATE, DELETE ON {all} TO {read_write}; GRANT SELECT ON {t}_version TO {read_write}"
            ),
        ),
        (read_only, &["SELECT"], format!("GRANT SELECT ON {all}, {t}_version TO {read_only}")),
    ];
    for (role, rights, statement) in wanted {
        if has(core, role, t, rights).await? {
            continue;
        }
        let script = format!(
            "BEGIN;
             SELECT pg_advisory_xact_lock(hashtextextended('tidegate-journal {t}', 0));
             DO $$ BEGIN
               IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN CREATE ROLE {role} NOLOGIN; END IF;
             EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
             END $$;
             {statement};
             COMMIT"
        );
        let client = core.connection(core.patience).await.map_err(|fault| fault.error)?;
        let outcome = client.batch_execute(&script).await;
        if outcome.is_err() {
            let _ = client.batch_execute("ROLLBACK").await;
        }
        // A right that one may not give is only warned of.
        if !has(core, role, t, rights).await? {
            let may_not = "this user may not give it its rights".to_owned();
            let why = outcome.err().map_or(may_not, |error| fault_of(&error).error.to_string());
            let exists = core.ask("SELECT 1 FROM pg_roles WHERE rolname = $1", &[role]).await?.len() == 1;
            let create = if exists { String::new() } else { format!("CREATE ROLE {role} NOLOGIN; ") };
            notes.push(format!(
                "the role {role} was not set up: {why}. As an administrator: {create}{statement}"
            ));
        }
    }
    Ok(notes)
}

/// Whether a role has these rights on every table, and may read the version. A table that was taken
/// over may have granted its own before, and says nothing of those beside it.
async fn has(core: &Core, role: &str, t: &str, rights: &[&str]) -> Result<bool, JournalError> {
    let tables = [t.to_owned(), format!("{t}_count"), format!("{t}_method")];
    let sql = "SELECT coalesce(bool_and(has_table_privilege(r.oid, w.name, w.needed)), false)
               FROM pg_roles r CROSS JOIN (
                 SELECT name, needed FROM unnest($2::text[]) AS name CROSS JOIN unnest($3::text[]) AS needed
                 UNION ALL SELECT $4::text, 'SELECT') w
               WHERE r.rolname = $1";
    let rows = core.ask(sql, &[&role, &&tables[..], &rights, &format!("{t}_version")]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// What makes "acknowledged" mean less than it should.
async fn durability(core: &Core) -> Result<Vec<String>, JournalError> {
    let sql = "SELECT current_setting('fsync') = 'on', current_setting('synchronous_commit') <> 'off'";
    let rows = core.ask(sql, &[]).await?;
    let mut notes = Vec::new();
    if rows.first().is_some_and(|row| !row.get::<_, bool>(0)) {
        notes.push("the server runs with fsync = off: a power cut loses acknowledged records".to_owned());
    }
    if rows.first().is_some_and(|row| !row.get::<_, bool>(1)) {
        notes.push("synchronous_commit is off: a crash loses acknowledged records; set it to on".to_owned());
    }
    Ok(notes)
}

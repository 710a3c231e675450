//! Which journal is meant, and opening it.

use crate::exit::Usage;
use std::ffi::OsString;
use std::path::PathBuf;
use tidegate_journal::{Journal, JournalBuilder, JournalError};

pub(super) const VARIABLE: &str = "TIDEGATE_JOURNAL";
const DEFAULT: &str = "tidegate.db";

#[derive(clap::Args, Debug)]
pub(super) struct Which {
    /// The journal in this file. Without this and --postgres: $TIDEGATE_JOURNAL, else tidegate.db.
    #[arg(long, value_name = "FILE", global = true, help_heading = "Which journal")]
    sqlite: Option<PathBuf>,
    /// The journal on this server, postgres://user@host:5432/database?sslmode=verify-full.
    #[arg(long, value_name = "URL", global = true, help_heading = "Which journal")]
    postgres: Option<String>,
    /// The table's name.
    #[arg(
        long,
        value_name = "NAME",
        global = true,
        default_value = "t_method_limit_log",
        help_heading = "Which journal"
    )]
    table: String,
}

/// Where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    File(PathBuf),
    Server(String),
}

impl Which {
    /// Opens what is there; makes nothing.
    pub(super) async fn open(&self) -> anyhow::Result<Journal> {
        self.open_with(Journal::builder().must_exist()).await
    }

    /// Opens it, and makes what is missing.
    pub(super) async fn init(&self) -> anyhow::Result<Journal> {
        self.open_with(Journal::builder()).await
    }

    pub(super) fn table(&self) -> &str {
        &self.table
    }

    async fn open_with(&self, builder: JournalBuilder) -> anyhow::Result<Journal> {
        let builder = builder.table(&self.table);
        let place = self.place(std::env::var_os(VARIABLE))?;
        let opened = match &place {
            Place::File(path) => builder.sqlite(path).await,
            Place::Server(url) => builder.postgres(url).await,
        };
        opened.map_err(|error| match error {
            JournalError::Open(_) => {
                anyhow::anyhow!("{place}: {error}; say which with --sqlite, --postgres or {VARIABLE}")
            }
            JournalError::Named(_) => Usage(format!("{place}: {error}")).into(),
            _ => anyhow::anyhow!("{place}: {error}"),
        })
    }

    fn place(&self, variable: Option<OsString>) -> Result<Place, Usage> {
        match (&self.sqlite, &self.postgres) {
            (Some(_), Some(_)) => Err(Usage("--sqlite and --postgres: say which of the two".to_owned())),
            (Some(path), None) => Ok(Place::File(path.clone())),
            (None, Some(url)) => Ok(Place::Server(url.clone())),
            (None, None) => Ok(match variable.filter(|value| !value.is_empty()) {
                Some(value) => Place::named(value),
                None => Place::File(DEFAULT.into()),
            }),
        }
    }
}

impl Place {
    /// What the environment variable says.
    fn named(value: OsString) -> Self {
        match value.to_str() {
            Some(text) if text.starts_with("postgres://") || text.starts_with("postgresql://") => {
                Self::Server(text.to_owned())
            }
            Some(text) => Self::File(text.strip_prefix("sqlite:").unwrap_or(text).into()),
            None => Self::File(value.into()),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "the journal in {}", path.display()),
            Self::Server(url) => match host(url) {
                Some(host) => write!(f, "the journal on PostgreSQL at {host}"),
                None => f.write_str("the journal on PostgreSQL"),
            },
        }
    }
}

/// Host, port and database of an address; nothing where it might be something else, such as a
/// part of the password.
fn host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let (user, host) = rest.rsplit_once('@')?;
    // Then the `@` is within an option, such as a password.
    if user.contains('?') {
        return None;
    }
    let host = host.split(['?', '#']).next()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:/,[]".contains(c);
    (!host.is_empty() && host.chars().all(is_plain)).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(sqlite: Option<&str>, postgres: Option<&str>) -> Which {
        let (sqlite, postgres) = (sqlite.map(PathBuf::from), postgres.map(str::to_owned));
        Which { sqlite, postgres, table: "t".to_owned() }
    }

    #[test]
    fn options_come_before_the_variable_and_that_before_the_default() {
        let file = |path: &str| Place::File(path.into());
        let server = |url: &str| Place::Server(url.to_owned());
        let cases = [
            (args(None, None), None, file("tidegate.db")),
            (args(None, None), Some(""), file("tidegate.db")),
            (args(None, None), Some("a.db"), file("a.db")),
            (args(None, None), Some("sqlite:a.db"), file("a.db")),
            (args(None, None), Some("postgres://h/d"), server("postgres://h/d")),
            (args(None, None), Some("postgresql://h/d"), server("postgresql://h/d")),
            (args(Some("b.db"), None), Some("a.db"), file("b.db")),
            (args(None, Some("host=h")), Some("a.db"), server("host=h")),
        ];
        for (args, variable, place) in cases {
            assert_eq!(args.place(variable.map(OsString::from)).unwrap(), place);
        }
        assert!(args(Some("b.db"), Some("host=h")).place(None).is_err());
    }

    #[test]
    fn an_address_is_shown_without_what_may_be_its_password() {
        assert_eq!(host("postgres://u:p@h:5/d?password=p"), Some("h:5/d"));
        assert_eq!(host("postgres://u:p@ss/w@h/d"), Some("h/d"));
        for url in [
            "postgres://h:secret",
            "host=h password=p",
            "postgres://u:p@h d",
            "postgres://u:p@",
            "postgres://h/d?password=a@b",
            "postgres://u@h/d?password=p@ss",
        ] {
            assert_eq!(host(url), None, "{url}");
        }
    }
}

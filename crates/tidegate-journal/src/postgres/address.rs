//! Where the server is, and how its connections are encrypted.
//!
//! `sslmode` and `sslrootcert` mean what they mean to libpq. The client library knows no more of
//! them than `disable`, `prefer` and `require`, so the others are taken out of the address here.

use crate::JournalError;
use std::path::PathBuf;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

pub(super) struct Address {
    pub(super) config: Config,
    pub(super) trust: Trust,
}

/// Who is believed to be the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Whoever answers.
    Anyone,
    /// Whoever has a certificate of an authority, in this file or else of the system; with the
    /// name of the host in it, or any.
    Signed { root: Option<PathBuf>, is_named: bool },
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Self, JournalError> {
        let Taken { rest, mode, root } = taken(text);
        let root = root.map(PathBuf::from);
        let (ssl_mode, trust) = match mode.as_deref() {
            Some("disable") => (SslMode::Disable, Trust::Anyone),
            None | Some("prefer") => (SslMode::Prefer, Trust::Anyone),
            Some("require") if root.is_none() => (SslMode::Require, Trust::Anyone),
            // As libpq: whoever names an authority wants it to be asked.
            Some("require" | "verify-ca") => (SslMode::Require, Trust::Signed { root, is_named: false }),
            Some("verify-full") => (SslMode::Require, Trust::Signed { root, is_named: true }),
            Some(_) => {
                let text = "the address has an `sslmode` that is none: write disable, prefer, require, \
                            verify-ca or verify-full";
                return Err(JournalError::Named(text.to_owned()));
            }
        };
        if ssl_mode == SslMode::Require && !cfg!(feature = "tls") {
            let text = "the address asks for TLS (`sslmode`), and this program was built without: \
                        switch on the feature `tls` of tidegate-journal";
            return Err(JournalError::Named(text.to_owned()));
        }
        // Its own error may show the password.
        let config: Result<Config, _> = rest.parse();
        let mut config = config.map_err(|_| {
            let text = "the address is none: write postgres://user:password@host:5432/database";
            JournalError::Named(text.to_owned())
        })?;
        config.ssl_mode(ssl_mode);
        Ok(Self { config, trust })
    }
}

/// What was taken out of an address, and what is left of it.
struct Taken {
    rest: String,
    mode: Option<String>,
    root: Option<String>,
}

fn taken(text: &str) -> Taken {
    let mut taken = Taken { rest: text.to_owned(), mode: None, root: None };
    let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
    let (before, settings, between) = match text.rsplit_once('?') {
        Some((before, query)) if is_url => (before, query, '&'),
        None if is_url => return taken,
        _ => ("", text, ' '),
    };
    let mut left = Vec::new();
    for setting in settings.split(between) {
        match setting.split_once('=') {
            Some(("sslmode", mode)) => taken.mode = Some(unquoted(mode, is_url)),
            Some(("sslrootcert", file)) => taken.root = Some(unquoted(file, is_url)),
            _ => left.push(setting),
        }
    }
    let left = left.join(&between.to_string());
    taken.rest = match (is_url, left.is_empty()) {
        (true, true) => before.to_owned(),
        (true, false) => format!("{before}?{left}"),
        (false, _) => left,
    };
    taken
}

/// `%2F` is a slash in a URL; elsewhere a value may stand within `'`.
fn unquoted(value: &str, is_url: bool) -> String {
    if !is_url {
        return value.trim_matches('\'').to_owned();
    }
    let (mut bytes, mut rest) = (Vec::new(), value.as_bytes());
    while let Some((first, others)) = rest.split_first() {
        let digits = others.get(..2).filter(|_| *first == b'%').and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => (bytes.push(byte), rest = &others[2..]).1,
            None => (bytes.push(*first), rest = others).1,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

    use super::*;

    #[test]
    fn what_says_nothing_of_encryption_stays_as_it_is() {
        for text in ["postgres://u:p?w@h/db", "postgres://h/db?application_name=x", "host=h  password='a  b'"]
        {
            let Taken { rest, mode, root } = taken(text);
            assert_eq!((rest.as_str(), mode, root), (text, None, None));
        }
    }

    #[test]
    fn encryption_is_read_as_libpq_reads_it() {
        let read = |text: &str| Address::parse(text).map(|read| (read.config.get_ssl_mode(), read.trust));
        assert_eq!(read("postgres://h/db").unwrap(), (SslMode::Prefer, Trust::Anyone));
        assert_eq!(read("host=h sslmode=disable").unwrap(), (SslMode::Disable, Trust::Anyone));
        let told = read("postgres://u:secret@h/db?sslmode=nonsense").unwrap_err().to_string();
        assert!(told.contains("verify-full") && !told.contains("secret"), "{told}");
        let strict = read("postgres://h/db?sslmode=verify-full&sslrootcert=%2Fa%20b.pem&connect_timeout=3");
        if cfg!(feature = "tls") {
            let root = Some(PathBuf::from("/a b.pem"));
            assert_eq!(strict.unwrap(), (SslMode::Require, Trust::Signed { root, is_named: true }));
            assert_eq!(read("host=h sslmode=require").unwrap(), (SslMode::Require, Trust::Anyone));
            let named = read("host=h sslmode=require sslrootcert='/x'").unwrap().1;
            assert_eq!(named, Trust::Signed { root: Some("/x".into()), is_named: false });
        } else {
            assert!(strict.unwrap_err().to_string().contains("TLS"));
        }
    }
}

//! What operators and buyers sign in with: given by who runs the sale, or made for the demo.
//!
//! The demo makes what is missing and keeps it in its folder. A sale on servers makes, prints
//! and keeps nothing: every process needs the same, and only its operators may know it.

use super::{Args, On};
use crate::exit::Usage;
use anyhow::Context as _;
use std::path::Path;
use tidegate_sale::{AdminToken, Secret};

/// What to set.
const ADMIN: &str = "what operators sign in with: TIDEGATE_ADMIN_TOKEN or --admin-token-file FILE, \
                     such as what `openssl rand -hex 16` prints";
const SECRET: &str = "what buyers' tokens are signed with: TIDEGATE_SALE_SECRET or --secret-file FILE, \
                      64 hexadecimal digits, such as what `openssl rand -hex 32` prints";

/// What was given; none is what the demo makes itself.
pub(super) struct Given {
    admin: Option<AdminToken>,
    secret: Option<Secret>,
}

impl Given {
    /// Reads and checks options, variables and files.
    pub(super) fn read(args: &Args) -> Result<Self, Usage> {
        let admin = text(args.admin_token.as_deref(), args.admin_token_file.as_deref(), "--admin-token")?;
        let secret = text(args.secret.as_deref(), args.secret_file.as_deref(), "--secret")?;
        if args.servers().is_some() && (admin.is_none() || secret.is_none()) {
            let lines = [(ADMIN, admin.is_none()), (SECRET, secret.is_none())];
            return Err(missing(lines.iter().filter(|(_, is_missing)| *is_missing).map(|(line, _)| *line)));
        }
        let admin = admin.as_deref().map(AdminToken::new).transpose();
        let secret = secret.as_deref().map(|hex| {
            Secret::from_hex(hex).ok_or_else(|| {
                Usage("--secret: 64 hexadecimal digits, such as what `openssl rand -hex 32` prints".into())
            })
        });
        Ok(Self {
            admin: admin.map_err(|error| Usage(format!("--admin-token: {error}")))?,
            secret: secret.transpose()?,
        })
    }

    pub(super) fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    /// What operators sign in with; beside it the text, if the demo has made it.
    pub(super) fn admin(self, on: &On) -> anyhow::Result<(AdminToken, Option<String>)> {
        let folder = match (self.admin, on) {
            (Some(admin), _) => return Ok((admin, None)),
            (None, On::Folder(folder)) => folder,
            (None, On::Servers(_)) => return Err(missing([ADMIN]).into()),
        };
        let token = folder.admin_token()?;
        let admin = AdminToken::new(&token).with_context(|| folder.admin_file().display().to_string())?;
        Ok((admin, Some(token)))
    }
}

/// A text that was given as it is or in a file. An empty variable is none.
fn text(given: Option<&str>, file: Option<&Path>, option: &str) -> Result<Option<String>, Usage> {
    let Some(file) = file else { return Ok(given.filter(|text| !text.is_empty()).map(str::to_owned)) };
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) => Err(Usage(format!("{option}-file {}: {error}", file.display()))),
    }
}

fn missing(lines: impl IntoIterator<Item = &'static str>) -> Usage {
    let mut text =
        String::from("a sale on servers makes no tokens of its own. Set, the same for all processes:");
    for line in lines {
        text += "\n  ";
        text += line;
    }
    Usage(text)
}

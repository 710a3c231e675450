//! A sale that a newcomer can buy from: made, opened, and told how. On servers no token is told.

use super::Args;
use crate::terminal::plain;
use anyhow::Context as _;
use std::cell::Cell;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tidegate_sale::{
    Books, Change, GoodsId, Refusal, Sale, SaleService, SaleState, Secret, SignedTokens, UserId,
};

/// Who does this in the audit.
const BY: &str = "tidegate sale";
/// How long the newcomer's token is good for.
const TOKEN: Duration = Duration::from_secs(24 * 3600);
/// Takes the text of `data` out of an answer.
const DATA: &str = r#"sed 's/.*"data":"\([^"]*\)".*/\1/'"#;

pub(super) struct Demo<'a> {
    pub(super) args: &'a Args,
    pub(super) at: SocketAddr,
    pub(super) secret: &'a Secret,
    /// The admin token, unless the operator knows it already.
    pub(super) admin: Option<&'a str>,
    /// It runs on servers: only operators may know what signs buyers in.
    pub(super) is_on_servers: bool,
    /// The sale was not there yet: this start has made it.
    pub(super) is_made: Cell<bool>,
}

impl Demo<'_> {
    /// Makes and opens the sale if it is not there yet, and says how to buy.
    pub(super) async fn prepare(&self, service: &SaleService) -> anyhow::Result<String> {
        let goods = &self.args.goods;
        let find = || service.sales().into_iter().find(|(sale, _)| sale.goods == *goods);
        if find().is_none() && self.create(service).await? {
            self.is_made.set(true);
        }
        // Only what this start has made is opened by it: another may be a draft for a reason.
        for (from, change) in [(SaleState::Draft, Change::Warm), (SaleState::Warm, Change::Open)] {
            if self.is_made.get() && find().is_some_and(|(_, state)| state == from) {
                service.change(goods, change, BY).await.with_context(|| format!("the sale of {goods}"))?;
            }
        }
        let (sale, state) = find().context("the sale that was just made is gone")?;
        let books = service.books(goods).await?;
        Ok(self.told(&sale, &state, &books)?)
    }

    /// False if another process was first.
    async fn create(&self, service: &SaleService) -> anyhow::Result<bool> {
        match service.create(self.sale(), BY).await {
            Ok(()) => Ok(true),
            Err(Refusal::WrongState(_)) => Ok(false),
            Err(refusal) => Err(refusal).with_context(|| format!("the sale of {}", self.args.goods)),
        }
    }

    fn sale(&self) -> Sale {
        let Args { goods, stock, rate, per_user, .. } = self.args;
        let mut sale = Sale::new(goods.clone(), *stock);
        (sale.rate, sale.per_user) = (rate.clone(), *per_user);
        sale
    }

    fn told(&self, sale: &Sale, state: &SaleState, books: &Books) -> Result<String, std::fmt::Error> {
        let (goods, url, data) = (&sale.goods, self.url(), self.args.data.display());
        let mut out = String::new();
        writeln!(
            out,
            "The sale of {goods} is {}: {} of {} units left,",
            plain(&state.to_string()),
            books.left,
            books.total
        )?;
        writeln!(out, "{} buyers let in, {} for each.\n", sale.rate, sale.per_user)?;
        writeln!(out, "  books        {url}/sale/{goods}/books")?;
        if !self.is_on_servers {
            let is_secret_made = self.args.secret.is_none() && self.args.secret_file.is_none();
            let secret = if is_secret_made { ", secret" } else { "" };
            let admin = if self.admin.is_some() { ", admin-token" } else { "" };
            writeln!(out, "  data         {data} (sale.db{secret}{admin})")?;
        }
        match self.admin {
            Some(token) => writeln!(out, "  admin token  {token}\n")?,
            None => writeln!(out, "  admin token  as given\n")?,
        }
        self.hints(&mut out, state, books)?;
        if !self.is_on_servers {
            self.curl(&mut out, goods)?;
            writeln!(out, "\nThen let a million buyers loose on it, in a second terminal:\n")?;
            writeln!(out, "  {}\n", self.storm())?;
        }
        writeln!(out, "Ctrl-C ends it. Every code and the admin API: docs/sale.md")?;
        Ok(out)
    }

    /// What stands between a newcomer and an order.
    fn hints(&self, out: &mut String, state: &SaleState, books: &Books) -> std::fmt::Result {
        let (goods, url) = (&books.goods, self.url());
        let post = |what: &str, body: &str| {
            format!(
                "  curl -s -H 'Authorization: Bearer ADMIN-TOKEN' -d '{body}' {url}/admin/sales/{goods}/{what}\n"
            )
        };
        match state {
            SaleState::Closed => {
                writeln!(out, "It is closed for good; start another one with --goods or --data.\n")
            }
            SaleState::Draft => {
                writeln!(
                    out,
                    "It is a draft; load and open it with\n\n{}{}",
                    post("warm", "{}"),
                    post("open", "{}")
                )
            }
            SaleState::Warm => writeln!(out, "It is not open yet; open it with\n\n{}", post("open", "{}")),
            SaleState::Paused { .. } => writeln!(out, "It is paused; go on with\n\n{}", post("resume", "{}")),
            _ if books.left == 0 => {
                writeln!(
                    out,
                    "It is sold out; more units come with\n\n{}",
                    post("stock", r#"{"add": 10000}"#)
                )
            }
            _ => Ok(()),
        }
    }

    /// Lines that can be pasted as they are.
    fn curl(&self, out: &mut String, goods: &GoodsId) -> std::fmt::Result {
        let (url, auth) = (self.url(), r#"-H "Authorization: Bearer $TOKEN""#);
        writeln!(out, "Buy from it, in another terminal:\n")?;
        writeln!(out, "  TOKEN={}", self.token())?;
        writeln!(
            out,
            "  WAY=$(curl -s {auth} '{url}/randomPath?goodsId={goods}' | {DATA}); echo \"path $WAY\""
        )?;
        writeln!(
            out,
            "  ORDER=$(curl -s -X POST {auth} \"{url}/$WAY/decrStock?goodsId={goods}&decrStock=1\" | {DATA}); echo \"order $ORDER\""
        )?;
        writeln!(out, "  curl -s {auth} \"{url}/orders/$ORDER\"")
    }

    /// A buyer nobody has been yet, so that each start can buy.
    fn token(&self) -> String {
        let guest = || -> Option<UserId> {
            let random = Secret::random().ok()?.to_hex();
            format!("guest-{}", &random[..8]).parse().ok()
        };
        guest().map_or_else(String::new, |guest| SignedTokens::new(self.secret).issue(&guest, TOKEN))
    }

    /// How this machine reaches it.
    fn url(&self) -> String {
        let ip = match self.at.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
            IpAddr::V6(ip) if ip.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        format!("http://{}", SocketAddr::new(ip, self.at.port()))
    }

    /// With what differs from its own defaults.
    fn storm(&self) -> String {
        let mut line = String::from("cargo run --release -- storm");
        let url = self.url();
        let shown = [
            ("--url", url.as_str(), "http://127.0.0.1:8080"),
            ("--goods", self.args.goods.as_str(), "demo"),
            ("--data", &self.args.data.display().to_string(), "tidegate-data"),
        ];
        for (option, value, default) in shown {
            if value != default {
                line += &format!(" {option} {}", shell_words::quote(value));
            }
        }
        line
    }
}

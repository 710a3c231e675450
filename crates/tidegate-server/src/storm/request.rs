//! The bytes of each request. Most of them are the same for all, and made once.

use super::schedule::{Action, Step};
use super::target::Target;
use std::io::Write as _;
use std::time::Duration;
use tidegate_sale::{SignedTokens, UserId};

pub(super) struct Requests {
    tokens: SignedTokens,
    good_for: Duration,
    /// What all names of users begin with, so that the next storm has new ones.
    crowd: String,
    ask: Vec<u8>,
    /// After the path.
    order: Vec<u8>,
    host: String,
    goods: String,
    /// What operators sign in with, if it is known: the books are theirs.
    admin: Option<String>,
}

impl Requests {
    pub(super) fn new(
        target: &Target,
        goods: &str,
        units: u32,
        crowd: String,
        (tokens, good_for): (SignedTokens, Duration),
        admin: Option<String>,
    ) -> Self {
        let host = format!("HTTP/1.1\r\nhost: {}\r\n", target.authority);
        let ask = format!("GET /randomPath?goodsId={goods} {host}authorization: Bearer ");
        let order = format!(
            "/decrStock?goodsId={goods}&decrStock={units} {host}content-length: 0\r\nauthorization: Bearer "
        );
        let (ask, order, goods) = (ask.into(), order.into(), goods.to_owned());
        Self { tokens, good_for, crowd, ask, order, host, goods, admin }
    }

    /// The request that this action sends.
    pub(super) fn write(&self, action: &Action, out: &mut Vec<u8>) {
        out.clear();
        match &action.step {
            Step::Ask => out.extend_from_slice(&self.ask),
            Step::Order { path } | Step::Again { path, .. } => {
                out.extend_from_slice(b"POST /");
                out.extend_from_slice(path.as_bytes());
                out.extend_from_slice(&self.order);
            }
        }
        self.sign(action.user, out);
    }

    /// `/sale/{goods}/books`, as an operator.
    pub(super) fn books(&self, out: &mut Vec<u8>) {
        out.clear();
        let _ = write!(out, "GET /sale/{}/books {}", self.goods, self.host);
        if let Some(admin) = &self.admin {
            let _ = write!(out, "authorization: Bearer {admin}\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// `/sale/{goods}`, which anybody may see.
    pub(super) fn sale(&self, out: &mut Vec<u8>) {
        out.clear();
        let _ = write!(out, "GET /sale/{} {}\r\n", self.goods, self.host);
    }

    /// One order, as its owner.
    pub(super) fn order(&self, order: &str, user: u32, out: &mut Vec<u8>) {
        out.clear();
        let _ = write!(out, "GET /orders/{order} {}authorization: Bearer ", self.host);
        self.sign(user, out);
    }

    fn sign(&self, user: u32, out: &mut Vec<u8>) {
        // Eight digits and a number: always an id.
        if let Ok(user) = format!("{}-{user}", self.crowd).parse::<UserId>() {
            out.extend_from_slice(self.tokens.issue(&user, self.good_for).as_bytes());
        }
        out.extend_from_slice(b"\r\n\r\n");
    }
}

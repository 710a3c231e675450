//! What travels through the broker: orders that left together, or a barrier, as CloudEvents.

use super::db::fault;
use crate::engine::Fault;
use crate::goods::{GoodsId, UserId};
use crate::order::OrderSn;
use serde::{Deserialize, Serialize};

const ORDERS: &str = "tidegate.sale.orders.v1";
const BARRIER: &str = "tidegate.sale.barrier.v1";

#[derive(Debug, Serialize, Deserialize)]
struct Envelope {
    specversion: String,
    id: String,
    source: String,
    r#type: String,
    subject: GoodsId,
    datacontenttype: String,
    data: Body,
}

/// What a letter says.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Body {
    Orders(Orders),
    /// Whatever was sent before it has been written once this is.
    Barrier {
        barrier: String,
    },
}

/// Orders of one outbox entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) epoch: u32,
    /// When they were taken, in milliseconds since 1970.
    pub(super) at: u64,
    pub(super) orders: Vec<Sent>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Sent {
    pub(super) nth: u64,
    pub(super) user: UserId,
    pub(super) quantity: u32,
    /// The used path's random bytes, in hexadecimal digits.
    pub(super) path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
}

/// What is delivered, read.
#[derive(Debug, PartialEq)]
pub(super) struct Letter {
    pub(super) goods: GoodsId,
    pub(super) body: Body,
}

impl Letter {
    /// The epoch and the last number of its orders.
    pub(super) fn last(&self) -> Option<(u32, u64)> {
        match &self.body {
            Body::Orders(orders) => Some((orders.epoch, orders.orders.last()?.nth)),
            Body::Barrier { .. } => None,
        }
    }

    pub(super) fn encode(&self, id: &str) -> Result<Vec<u8>, Fault> {
        #[derive(Serialize)]
        struct Borrowed<'a> {
            specversion: &'a str,
            id: &'a str,
            source: &'a str,
            r#type: &'a str,
            subject: &'a GoodsId,
            datacontenttype: &'a str,
            data: &'a Body,
        }
        let r#type = match &self.body {
            Body::Orders(_) => ORDERS,
            Body::Barrier { .. } => BARRIER,
        };
        let envelope = Borrowed {
            specversion: "1.0",
            id,
            source: "tidegate-sale",
            r#type,
            subject: &self.goods,
            datacontenttype: "application/json",
            data: &self.body,
        };
        serde_json::to_vec(&envelope).map_err(|error| fault(error.to_string()))
    }

    /// Reads one; the sentence says why it cannot be read.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let envelope: Envelope = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match (&envelope.data, envelope.r#type.as_str()) {
            (Body::Orders(_), ORDERS) | (Body::Barrier { .. }, BARRIER) => {}
            (_, other) => return Err(format!("a letter of the type `{other}` is not known")),
        }
        if let Body::Orders(orders) = &envelope.data {
            orders.orders.iter().try_for_each(Sent::check)?;
        }
        Ok(Self { goods: envelope.subject, body: envelope.data })
    }
}

impl Sent {
    /// What no table could take.
    fn check(&self) -> Result<(), String> {
        if self.path_bytes().is_none() {
            return Err(format!("`path` of order {} is not 32 hexadecimal digits", self.nth));
        }
        if self.key.as_ref().is_some_and(|key| key.contains('\0')) {
            return Err(format!("`key` of order {} contains a zero byte", self.nth));
        }
        Ok(())
    }

    pub(super) fn path_bytes(&self) -> Option<Vec<u8>> {
        let digits = self.path.as_bytes();
        if digits.len() != 32 || !digits.is_ascii() {
            return None;
        }
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        digits.chunks(2).map(pair).collect()
    }

    pub(super) fn sn(&self, goods: &GoodsId, epoch: u32) -> OrderSn {
        OrderSn::new(goods.clone(), epoch, self.nth)
    }
}

impl Orders {
    /// From an outbox entry, as the script wrote it: `e`, `t`, then an `o` for each order.
    pub(super) fn from_entry(fields: &[(String, String)]) -> Option<Self> {
        let of = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value);
        let orders = fields.iter().filter(|(field, _)| field == "o").map(|(_, record)| {
            let mut parts = record.splitn(5, ':');
            let mut part = || parts.next();
            let (nth, quantity, path) = (part()?.parse().ok()?, part()?.parse().ok()?, part()?.to_owned());
            let user = part()?.parse().ok()?;
            let key = part().filter(|key| !key.is_empty()).map(str::to_owned);
            Some(Sent { nth, user, quantity, path, key })
        });
        Some(Self {
            epoch: of("e")?.parse().ok()?,
            at: of("t")?.parse().ok()?,
            orders: orders.collect::<Option<_>>()?,
        })
    }
}

/// In hexadecimal digits, as the scripts know a path.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter() -> Letter {
        let key = Some("mine: and yours".to_owned());
        let path = hex(&[0xab; 16]);
        let sent = Sent { nth: 3, user: "ann".parse().unwrap(), quantity: 2, path, key };
        let orders = Orders { epoch: 7, at: 1_700_000_000_123, orders: vec![sent] };
        Letter { goods: "phone".parse().unwrap(), body: Body::Orders(orders) }
    }

    #[test]
    fn what_is_sent_is_read() {
        let bytes = letter().encode("phone-1-0").unwrap();
        assert_eq!(Letter::decode(&bytes).unwrap(), letter());
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.starts_with(r#"{"specversion":"1.0","id":"phone-1-0","source":"tidegate-sale""#),
            "{text}"
        );
        let barrier = Letter { body: Body::Barrier { barrier: "b".into() }, ..letter() };
        assert_eq!(Letter::decode(&barrier.encode("x").unwrap()).unwrap(), barrier);
    }

    #[test]
    fn what_is_none_is_refused_with_a_reason() {
        let good = String::from_utf8(letter().encode("x").unwrap()).unwrap();
        for (bad, why) in [
            ("{".to_owned(), "EOF"),
            (good.replace("orders.v1", "orders.v9"), "orders.v9"),
            (good.replace("abab", "xyxy"), "path"),
            (good.replace("mine", "\\u0000"), "zero byte"),
            (good.replace("\"ann\"", "\"a b\""), "data"),
        ] {
            let error = Letter::decode(bad.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn an_outbox_entry_is_what_the_script_wrote() {
        let fields = [
            ("e", "7"),
            ("t", "1700000000123"),
            ("o", "3:2:abababababababababababababababab:ann:mine: and yours"),
        ];
        let fields: Vec<_> = fields.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let read = Orders::from_entry(&fields).unwrap();
        assert_eq!(Body::Orders(read), letter().body);
        assert_eq!(Orders::from_entry(&fields[1..]), None);
    }
}

//! Why a buyer does not get what they asked for: one list, with codes, for every front end.

use std::borrow::Cow;
use std::time::Duration;

/// A text in the two languages of the buyers' page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// English.
    pub en: &'static str,
    /// Chinese.
    pub zh: &'static str,
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A parameter is missing or cannot be; the text says which and what to write.
    #[error("{0}")]
    BadRequest(Cow<'static, str>),
    /// No token, or none that is good.
    #[error("sign in first")]
    NotSignedIn,
    /// Not the operators' token.
    #[error("operators only")]
    NotAdmin,
    /// Nothing of this name is sold.
    #[error("no such goods")]
    UnknownGoods,
    /// Wrong, expired, another user's, or of an older epoch: nobody is told which.
    #[error("not found")]
    WrongPath,
    /// No such order, or another user's.
    #[error("no such order")]
    UnknownOrder,
    /// This user has bought as much as one may.
    #[error("you have bought what one may buy")]
    UserQuota,
    /// It does not fit where the order or the sale stands; the text says why.
    #[error("{0}")]
    WrongState(Cow<'static, str>),
    /// Nothing is left.
    #[error("sold out")]
    SoldOut,
    /// It opens then, in milliseconds since 1970, if it is known when.
    #[error("not open yet")]
    NotOpenYet {
        /// When.
        opens_at: Option<u64>,
    },
    /// The sale is over.
    #[error("the sale is over")]
    Closed,
    /// Too many at once; try again after this time.
    #[error("too many at once, try again")]
    Limited {
        /// After this.
        retry_after: Duration,
        /// About so many come before; none if it is this buyer's own limit.
        ahead: Option<u64>,
    },
    /// Held by an operator, or by the books.
    #[error("paused: {reason}")]
    Paused {
        /// Why.
        reason: Cow<'static, str>,
    },
    /// Something behind does not answer in time. The order may exist or not: asking again with
    /// the same path tells, and never makes a second one.
    #[error("busy, try again")]
    Busy,
}

impl Refusal {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::NotSignedIn => 401,
            Self::NotAdmin => 403,
            Self::UnknownGoods | Self::WrongPath | Self::UnknownOrder => 404,
            Self::UserQuota | Self::WrongState(_) => 409,
            Self::SoldOut | Self::Closed => 410,
            Self::NotOpenYet { .. } => 425,
            Self::Limited { .. } => 429,
            Self::Paused { .. } | Self::Busy => 503,
        }
    }

    /// The code in the answer's body: the status, and which of those.
    pub fn code(&self) -> u32 {
        let nth = match self {
            Self::WrongPath | Self::WrongState(_) | Self::Closed | Self::Busy => 2,
            Self::UnknownOrder => 3,
            _ => 1,
        };
        u32::from(self.status()) * 100 + nth
    }

    /// When it makes sense to try again; none if it never does, or nobody knows.
    pub fn retry_after(&self, now_ms: u64) -> Option<Duration> {
        match self {
            Self::Limited { retry_after, .. } => Some(*retry_after),
            Self::NotOpenYet { opens_at: Some(opens) } => {
                Some(Duration::from_millis(opens.saturating_sub(now_ms)))
            }
            Self::Paused { .. } => Some(Duration::from_secs(5)),
            Self::Busy => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// What a buyer reads, without what is particular to this one.
    pub fn text(&self) -> Text {
        let (en, zh) = match self {
            Self::BadRequest(_) => ("bad request", "请求参数错误"),
            Self::NotSignedIn => ("sign in first", "请先登录"),
            Self::NotAdmin => ("operators only", "没有权限"),
            Self::UnknownGoods => ("no such goods", "商品不存在"),
            Self::WrongPath => ("not found", "链接无效或已过期"),
            Self::UnknownOrder => ("no such order", "订单不存在"),
            Self::UserQuota => ("you have bought what one may buy", "已达到购买上限"),
            Self::WrongState(_) => ("that does not fit its state", "当前状态不允许此操作"),
            Self::SoldOut => ("sold out", "已售罄"),
            Self::NotOpenYet { .. } => ("not open yet", "活动尚未开始"),
            Self::Closed => ("the sale is over", "活动已结束"),
            Self::Limited { .. } => ("too many at once, try again", "当前人数过多，请稍后再试"),
            Self::Paused { .. } => ("paused", "活动暂停"),
            Self::Busy => ("busy, try again", "系统繁忙，请重试"),
        };
        Text { en, zh }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_has_a_code_of_its_own() {
        let all = [
            Refusal::BadRequest("x".into()),
            Refusal::NotSignedIn,
            Refusal::NotAdmin,
            Refusal::UnknownGoods,
            Refusal::WrongPath,
            Refusal::UnknownOrder,
            Refusal::UserQuota,
            Refusal::WrongState("x".into()),
            Refusal::SoldOut,
            Refusal::NotOpenYet { opens_at: None },
            Refusal::Closed,
            Refusal::Limited { retry_after: Duration::from_millis(1), ahead: None },
            Refusal::Paused { reason: "x".into() },
            Refusal::Busy,
        ];
        let codes: HashSet<u32> = all.iter().map(Refusal::code).collect();
        assert_eq!(codes.len(), all.len());
        assert!(all.iter().all(|refusal| refusal.code() / 100 == u32::from(refusal.status())));
        assert_eq!(Refusal::SoldOut.code(), 41_001);
        assert_eq!(Refusal::WrongPath.code(), 40_402);
    }
}

//! What Redis holds of a goods, and whether it is what the database thinks.

use super::acked::Acked;
use super::broker::LOST_QUEUES;
use super::config::ServersConfig;
use super::core::Core;
use super::history::WENT_BACK;
use super::shelf::{Row, Shelf};
use crate::engine::Fault;
use crate::sale::SaleState;

/// An outbox entry's id: a time and a counter.
pub(super) type Entry = (u64, u64);

fn entry(id: &str) -> Option<Entry> {
    let (at, nth) = id.split_once('-')?;
    Some((at.parse().ok()?, nth.parse().ok()?))
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Look {
    pub(super) is_ready: bool,
    /// The run that was loaded, and the one that answers.
    pub(super) loaded_run: String,
    pub(super) run: String,
    pub(super) epoch: u32,
    pub(super) rev: i64,
    pub(super) left: i64,
    pub(super) loaded: i64,
    pub(super) reserved: i64,
    pub(super) returned: i64,
    /// Grows with every change of what is left.
    pub(super) tick: i64,
    /// Entries in the outbox, the oldest of them, and the newest that there ever was.
    pub(super) waiting: u64,
    pub(super) oldest: Option<Entry>,
    pub(super) newest: Entry,
    /// Orders that were given out.
    pub(super) nth: i64,
    /// The highest number that was acknowledged, and the one up to which all were.
    pub(super) acked: i64,
    pub(super) sure: i64,
    /// Which of the returns that were asked about have been applied.
    pub(super) is_applied: Vec<bool>,
}

impl Look {
    pub(super) async fn take(core: &Core, shelf: &Shelf, returns: &[i64]) -> Result<Self, Fault> {
        let live = core.link.live()?;
        let mut call = core.link.scripts.look.prepare_invoke();
        call.key(&shelf.keys.meta).key(&shelf.keys.out).key(&shelf.keys.back);
        returns.iter().for_each(|id| {
            call.arg(id);
        });
        let found: Vec<String> = core.link.run(&live, &call).await?;
        let text = |nth: usize| found.get(nth).map_or("", String::as_str);
        let number = |nth: usize| text(nth).parse::<i64>().unwrap_or(0);
        Ok(Self {
            is_ready: text(0) == "1",
            loaded_run: text(1).to_owned(),
            run: live.run.clone(),
            epoch: u32::try_from(number(2)).unwrap_or(0),
            rev: number(3),
            left: number(4),
            loaded: number(5),
            reserved: number(6),
            returned: number(7),
            tick: number(8),
            waiting: u64::try_from(number(9)).unwrap_or(0),
            nth: number(10),
            oldest: entry(text(11)),
            newest: entry(text(12)).unwrap_or_default(),
            acked: number(13),
            sure: number(14),
            is_applied: found.iter().skip(15).map(|flag| flag == "1").collect(),
        })
    }

    /// The numbers that were acknowledged; where that needs no broker, all that were given out
    /// may have been.
    pub(super) fn acked(&self, config: &ServersConfig) -> Acked {
        let highest = if config.answers_before_broker() { self.nth } else { self.acked };
        Acked { epoch: self.epoch, highest, sure: self.sure }
    }

    /// Why it has to be loaded again; none if it is what the database thinks.
    pub(super) fn why_rebuild(&self, row: &Row) -> Option<&'static str> {
        if row.epoch == 0 {
            Some("its stock is loaded")
        } else if row.run.is_empty() {
            Some(WENT_BACK)
        } else if self.epoch == 0 {
            Some("Redis has lost its stock; it is counted again")
        } else if self.epoch != row.epoch || !self.is_ready {
            Some("Redis holds another epoch; its stock is counted again")
        } else if self.loaded_run != self.run || row.run != self.run {
            Some("Redis was restarted or taken over; its stock is counted again")
        } else if row.is_doubted && !matches!(row.state, SaleState::Paused { .. }) {
            match row.held.as_deref() {
                Some(LOST_QUEUES) => Some(LOST_QUEUES),
                _ => Some("the books did not balance; its stock is counted again"),
            }
        } else {
            None
        }
    }
}

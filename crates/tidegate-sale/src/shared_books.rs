//! The books as they are read by many at once: one read at a time for each goods.
//!
//! Books on servers cost some fifty queries. Whoever asks while a read runs shares the next one,
//! so nobody is told what was true before they asked. Nothing is kept for longer.

use crate::books::Books;
use crate::goods::GoodsId;
use crate::refusal::Refusal;
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Mutex as AsyncMutex;

#[derive(Default)]
pub(crate) struct SharedBooks {
    /// The goods of sales, of which operators have made so many.
    by_goods: Mutex<HashMap<GoodsId, Arc<Reads>>>,
}

/// The reads of one kind of goods.
#[derive(Default)]
struct Reads {
    /// How many have begun.
    begun: AtomicU64,
    /// Locked while one runs.
    last: AsyncMutex<Option<Read>>,
}

/// A read that has ended.
struct Read {
    /// The how many-th it was, from 1 on.
    nth: u64,
    told: Result<Books, Refusal>,
}

impl SharedBooks {
    /// The books of goods that are sold, read not earlier than now.
    pub(crate) async fn read<F>(&self, goods: &GoodsId, read: impl FnOnce() -> F) -> Result<Books, Refusal>
    where
        F: Future<Output = Result<Books, Refusal>>,
    {
        let reads = {
            let mut by_goods = self.by_goods.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(by_goods.entry(goods.clone()).or_default())
        };
        let begun_before = reads.begun.load(Ordering::SeqCst);
        let mut last = reads.last.lock().await;
        if let Some(last) = &*last
            && last.nth > begun_before
        {
            return last.told.clone();
        }
        let nth = reads.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let told = read().await;
        // A failure is shared as well: else those who wait would fail one after another.
        *last = Some(Read { nth, told: told.clone() });
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use tokio::sync::Semaphore;

    fn books(left: u64) -> Books {
        Books {
            goods: "phone".parse().unwrap(),
            total: left,
            placed: 0,
            in_flight: 0,
            left,
            orders: 0,
            returned: 0,
            dead: 0,
            epoch: 1,
            state: "open".into(),
            at: 0,
        }
    }

    #[tokio::test]
    async fn a_thousand_who_ask_at_once_cost_two_reads_and_nobody_is_told_the_past() {
        let (shared, reads, goes) = (SharedBooks::default(), AtomicU64::new(0), Semaphore::new(0));
        let goods: GoodsId = "phone".parse().unwrap();
        let read = || async {
            let nth = reads.fetch_add(1, Ordering::SeqCst) + 1;
            goes.acquire().await.unwrap().forget();
            Ok(books(nth))
        };
        let first = shared.read(&goods, read);
        tokio::pin!(first);
        assert!(first.as_mut().now_or_never().is_none(), "it reads");
        let others = futures_util::future::join_all((0..1_000).map(|_| shared.read(&goods, read)));
        tokio::pin!(others);
        assert!(others.as_mut().now_or_never().is_none());
        goes.add_permits(2);
        let (first, others) = tokio::join!(first, others);
        assert_eq!(first.unwrap().left, 1);
        assert!(others.iter().all(|told| told.as_ref().unwrap().left == 2), "asked after the first began");
        assert_eq!(reads.load(Ordering::SeqCst), 2);
        goes.add_permits(1);
        assert_eq!(shared.read(&goods, read).await.unwrap().left, 3, "nothing is kept");
    }

    #[tokio::test]
    async fn who_gives_up_while_reading_leaves_it_to_the_next() {
        let shared = SharedBooks::default();
        let goods: GoodsId = "phone".parse().unwrap();
        let mut never = Box::pin(shared.read(&goods, std::future::pending));
        assert!(never.as_mut().now_or_never().is_none());
        drop(never);
        assert_eq!(shared.read(&goods, async || Err(Refusal::Busy)).await, Err(Refusal::Busy));
        assert_eq!(shared.read(&goods, async || Ok(books(7))).await.unwrap().left, 7);
    }
}

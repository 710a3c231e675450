//! Concurrent buyers, each with a path in hand, and the sale that they buy in.

use crate::Fallible;
use std::time::{Duration, Instant};
use tidegate::Limiter;
use tidegate_sale::{Change, GoodsId, Refusal, Sale, SaleBuilder, SaleService, UserId};

/// How long servers may take to be there, and orders to arrive.
pub const PATIENCE: Duration = Duration::from_secs(120);
pub const LOOK: Duration = Duration::from_millis(5);

const BY: &str = "bench";

/// Admission lets everybody in: it is measured by other suites.
pub fn builder() -> SaleBuilder {
    SaleService::builder().user_limit(None).ip_limit(None).limiter(Limiter::new())
}

/// An open sale with a unit for each of so many buyers.
pub async fn on_sale(service: &SaleService, name: &str, units: usize) -> Fallible<GoodsId> {
    let goods: GoodsId = name.parse()?;
    let sale = Sale {
        rate: "1000000/s".parse()?,
        path_ttl: 3600,
        ..Sale::new(goods.clone(), u64::try_from(units)?)
    };
    service.create(sale, BY).await?;
    // Servers that are not connected yet get it a moment later.
    match service.change(&goods, Change::Warm, BY).await {
        Err(Refusal::Busy) | Ok(_) => {}
        Err(refusal) => return Err(refusal.into()),
    }
    let begun = Instant::now();
    while let Err(refusal) = service.change(&goods, Change::Open, BY).await {
        wait(begun, &refusal).await?;
    }
    Ok(goods)
}

/// Ends once an order goes through, and everything that it needs is connected.
pub async fn is_ready(service: &SaleService, goods: &GoodsId) -> Fallible<()> {
    let user: UserId = "first".parse()?;
    let begun = Instant::now();
    loop {
        let bought = match service.random_path(&user, None, goods).await {
            Ok(path) => service.decr_stock(&user, goods, &path, 1, None).await,
            Err(refusal) => Err(refusal),
        };
        match bought {
            Ok(_) => return Ok(()),
            Err(refusal) => wait(begun, &refusal).await?,
        }
    }
}

async fn wait(begun: Instant, refusal: &Refusal) -> Fallible<()> {
    if begun.elapsed() > PATIENCE {
        return Err(format!("the sale does not begin: {refusal}").into());
    }
    tokio::time::sleep(LOOK).await;
    Ok(())
}

/// A buyer who has been let in.
pub struct Ticket {
    user: UserId,
    path: String,
}

/// One for each of so many buyers, before the clock starts.
pub async fn tickets(service: &SaleService, goods: &GoodsId, buyers: usize) -> Fallible<Vec<Ticket>> {
    let mut tickets = Vec::with_capacity(buyers);
    for nth in 0..buyers {
        let user: UserId = format!("user-{nth}").parse()?;
        let path = service.random_path(&user, None, goods).await?;
        tickets.push(Ticket { user, path });
    }
    Ok(tickets)
}

/// Each ticket becomes an order; returns the numbers.
pub async fn buy(
    service: &SaleService,
    goods: &GoodsId,
    tickets: Vec<Ticket>,
    callers: usize,
) -> Fallible<Vec<String>> {
    let (service, goods) = (service.clone(), goods.clone());
    call_concurrently(tickets, callers, move |ticket: Ticket| {
        let (service, goods) = (service.clone(), goods.clone());
        async move {
            let bought = service.decr_stock(&ticket.user, &goods, &ticket.path, 1, None).await;
            bought.map(|number| number.to_string()).map_err(|refusal| refusal.to_string())
        }
    })
    .await
}

/// So many callers at once, each with its share, one thing after the other. Returns all results, and
/// fails with the first error.
pub async fn call_concurrently<T, Called>(
    things: Vec<T>,
    callers: usize,
    call: impl Fn(T) -> Called + Clone + Send + 'static,
) -> Fallible<Vec<String>>
where
    T: Send + 'static,
    Called: Future<Output = Result<String, String>> + Send,
{
    let tasks: Vec<_> = share_out(things, callers)
        .into_iter()
        .map(|share| {
            let call = call.clone();
            tokio::spawn(async move {
                let mut results = Vec::with_capacity(share.len());
                for thing in share {
                    results.push(call(thing).await?);
                }
                Ok::<_, String>(results)
            })
        })
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        results.extend(task.await??);
    }
    Ok(results)
}

/// Everybody has as many, or one more.
fn share_out<T>(things: Vec<T>, callers: usize) -> Vec<Vec<T>> {
    let mut shares: Vec<Vec<T>> = (0..callers).map(|_| Vec::new()).collect();
    for (nth, thing) in things.into_iter().enumerate() {
        shares[nth % callers].push(thing);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_thing_is_used_once() {
        let call = |nth: usize| async move { Ok(nth.to_string()) };
        let mut results = call_concurrently((0..10).collect(), 4, call).await.unwrap();
        results.sort();
        assert_eq!(results, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    }

    #[tokio::test]
    async fn a_refusal_ends_it() {
        let call =
            |nth: usize| async move { if nth == 7 { Err("no".to_owned()) } else { Ok(String::new()) } };
        assert_eq!(call_concurrently((0..10).collect(), 4, call).await.unwrap_err().to_string(), "no");
    }
}

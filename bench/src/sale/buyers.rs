//! A crowd of buyers, each with a path in hand, and the sale that they meet.

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
    // Servers that answer a moment later are told then.
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

/// Each ticket becomes an order; tells the numbers.
pub async fn buy(
    service: &SaleService,
    goods: &GoodsId,
    tickets: Vec<Ticket>,
    callers: usize,
) -> Fallible<Vec<String>> {
    let (service, goods) = (service.clone(), goods.clone());
    crowd(tickets, callers, move |ticket: Ticket| {
        let (service, goods) = (service.clone(), goods.clone());
        async move {
            let bought = service.decr_stock(&ticket.user, &goods, &ticket.path, 1, None).await;
            bought.map(|number| number.to_string()).map_err(|refusal| refusal.to_string())
        }
    })
    .await
}

/// So many callers at once, each with its share, one thing after the other. Tells all answers, and
/// fails with the first that is none.
pub async fn crowd<T, Asked>(
    things: Vec<T>,
    callers: usize,
    ask: impl Fn(T) -> Asked + Clone + Send + 'static,
) -> Fallible<Vec<String>>
where
    T: Send + 'static,
    Asked: Future<Output = Result<String, String>> + Send,
{
    let tasks: Vec<_> = deal(things, callers)
        .into_iter()
        .map(|share| {
            let ask = ask.clone();
            tokio::spawn(async move {
                let mut answers = Vec::with_capacity(share.len());
                for thing in share {
                    answers.push(ask(thing).await?);
                }
                Ok::<_, String>(answers)
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.extend(task.await??);
    }
    Ok(answers)
}

/// Like cards: everybody has as many, or one more.
fn deal<T>(things: Vec<T>, callers: usize) -> Vec<Vec<T>> {
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
    async fn every_thing_is_asked_for_once() {
        let ask = |nth: usize| async move { Ok(nth.to_string()) };
        let mut answers = crowd((0..10).collect(), 4, ask).await.unwrap();
        answers.sort();
        assert_eq!(answers, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    }

    #[tokio::test]
    async fn a_refusal_ends_it() {
        let ask = |nth: usize| async move { if nth == 7 { Err("no".to_owned()) } else { Ok(String::new()) } };
        assert_eq!(crowd((0..10).collect(), 4, ask).await.unwrap_err().to_string(), "no");
    }
}

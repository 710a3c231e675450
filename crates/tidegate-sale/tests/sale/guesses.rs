//! A scan of paths finds none, and asks nobody.

use crate::place::{Place, goods, phones, user};
use testkit::rng::Rng;
use tidegate_sale::Refusal;

/// What stands in a path.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A path as it could be, or one that was right but for a few letters.
fn guess(rng: &mut Rng, right: &str) -> String {
    let mut letters: Vec<u8> = right.bytes().collect();
    let changes = if rng.below(2) == 0 { 1 + rng.below(3) } else { 55 };
    for _ in 0..changes {
        let at = usize::try_from(rng.below(55)).unwrap();
        letters[at] = LETTERS[usize::try_from(rng.below(64)).unwrap()];
    }
    String::from_utf8(letters).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_guesses_find_nothing() {
    let place = Place::open(phones(10)).await;
    let right = place.path("ann").await.expect(200).text().to_owned();
    let (ann, bob) = (user("ann"), user("bob"));
    let mut rng = Rng::new(6);
    let mut guessed = 0;
    while guessed < 1_000_000 {
        let guess = guess(&mut rng, &right);
        if guess == right {
            continue;
        }
        guessed += 1;
        let told = place.service.decr_stock(&ann, &goods(), &guess, 1, None).await;
        assert_eq!(told, Err(Refusal::WrongPath), "{guess}");
    }
    assert_eq!(place.service.decr_stock(&bob, &goods(), &right, 1, None).await, Err(Refusal::WrongPath));
    assert_eq!(place.books().await["left"], 10);
    // The one that is right still is: no guess has used it up.
    place.service.decr_stock(&ann, &goods(), &right, 1, None).await.unwrap();
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_over_one_connection_gets_one_answer() {
    let place = Place::open(phones(10)).await;
    let right = place.path("ann").await.expect(200).text().to_owned();
    let auth = place.bearer("ann");
    let (mut rng, mut client) = (Rng::new(7), place.client().await);
    let mut told = std::collections::HashSet::new();
    for _ in 0..1_000 {
        let guess = guess(&mut rng, &right);
        if guess == right {
            continue;
        }
        let what = format!("POST /{guess}/decrStock?goodsId=phone&decrStock=1");
        let answer = client.ask(&what, &[("authorization", &auth)], "").await.expect(40_402);
        told.insert((answer.message, answer.data.to_string()));
    }
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(place.books().await["left"], 10);
    place.end().await;
}

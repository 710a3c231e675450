//! What the storm finds wrong, and what it does not.

use crate::sale::{Sale, Ways};

const SMALL: &str = "--users 400 --duration 500ms --think 20ms --connections 16";

#[test]
fn an_honest_sale_balances() {
    let sale = Sale::start(Ways { stock: 100, tells_a_rate: Some("2000/s"), ..Ways::default() });
    let told = sale.storm(&format!("{SMALL} --repeat 100 --check-orders 60"));
    assert_eq!(told.code, 0, "{told:?}");
    assert_eq!(told.json["admissions"]["rate"], "2000/s", "it is judged by it");
    assert!(told.out.contains("\nbalanced: ") && told.err.is_empty(), "{told:?}");
    assert_eq!(told.json["balanced"], true);
    assert_eq!((told.number("/arrivals"), told.number("/unsent"), told.number("/retries")), (400, 0, 0));
    assert_eq!((told.number("/orders/given"), told.number("/orders/units")), (100, 100));
    assert_eq!((told.number("/orders/repeated"), told.number("/orders/changed_on_repeat")), (100, 0));
    assert_eq!(told.number("/orders/checked/placed"), 60);
    assert_eq!((told.number("/books/after/placed"), told.number("/books/after/left")), (100, 0));
    // Every request has one answer, each answer has one kind, and a repeated order has none.
    let paths = told.number("/latency_us/admitted_paths/count");
    let refusals = told.number("/latency_us/refusals/count");
    assert_eq!((told.answers(200), told.answers(41001)), (paths + 100 + 100, refusals));
    assert_eq!(told.number("/requests"), 400 + paths + 100);
    assert_eq!(told.number("/admissions/count"), paths);
    assert!(told.number("/admissions/most_in_a_second") >= told.number("/admissions/median_a_second"));
    assert_eq!(told.number("/latency_us/orders/count"), 100);
    assert_eq!(told.number("/latency_us/unanswered/count"), 0);
}

#[test]
fn each_lie_is_noticed_and_told() {
    let honest = Ways { stock: 100, ..Ways::default() };
    let lies = [
        (Ways { gives_a_number_twice: true, ..honest }, "given to more than one user: 1"),
        (Ways { changes_on_repeat: true, ..honest }, "repeated a request and got another number: 100"),
        (Ways { refuses_on_repeat: true, ..honest }, "repeated a request and were refused: 100"),
        (Ways { tells_a_rate: Some("10/s burst 1"), ..honest }, "and at 10/s burst 1 at most"),
        (Ways { forgets_an_order: true, ..honest }, "for 100 units, but the books know of 99"),
        (Ways { miscounts: true, ..honest }, "are 101"),
        (Ways { knows_no_order: true, ..honest }, "does not know as such: 7"),
    ];
    for (ways, words) in lies {
        let told = Sale::start(ways).storm(&format!("{SMALL} --repeat 100 --check-orders 7"));
        assert_eq!(told.code, 1, "{ways:?}: {told:?}");
        assert!(told.out.contains("NOT balanced:") && told.out.contains(words), "{ways:?}: {told:?}");
        assert_eq!(told.json["balanced"], false);
        assert!(told.json["differences"].to_string().contains(words), "{told:?}");
    }
}

#[test]
fn an_order_whose_answer_was_lost_is_asked_for_again() {
    let sale = Sale::start(Ways { stock: 20, loses_first_answer: true, ..Ways::default() });
    let told = sale.storm("--users 20 --duration 200ms --think 20ms --connections 4");
    assert_eq!(told.code, 0, "{told:?}");
    assert_eq!((told.number("/orders/given"), told.number("/orders/in_doubt")), (20, 0));
    // An end before the first byte of the answer may be the end of an idle connection: then the
    // request is sent again at once. Either way the number came with the second one.
    let lost = told.json["transport_errors"].as_object().unwrap().values().map(|n| n.as_u64().unwrap());
    assert_eq!(lost.sum::<u64>() + told.number("/reconnects"), 20, "{told:?}");
}

#[test]
fn success_without_a_path_is_odd_and_no_admission() {
    let told = Sale::start(Ways { says_nothing: true, ..Ways::default() }).storm(SMALL);
    assert_eq!((told.code, told.number("/odd_answers")), (0, 400), "{told:?}");
    assert_eq!((told.number("/admissions/count"), told.number("/orders/given")), (0, 0));
}

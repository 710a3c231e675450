//! The sale's books before and after, and whether they agree with what the crowd was given.

use super::tally::Given;
use serde::{Deserialize, Serialize};

/// `/sale/{goods}/books`, in units. Signed: a broken sale may say anything.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub(super) struct Books {
    pub(super) total: i64,
    pub(super) placed: i64,
    pub(super) in_flight: i64,
    pub(super) left: i64,
    /// Taken once, and given back since.
    #[serde(default)]
    pub(super) returned: i64,
    /// Orders that wait for an operator; their units are in flight until they are dropped.
    #[serde(default)]
    pub(super) dead: i64,
    pub(super) balanced: bool,
    #[serde(default)]
    pub(super) state: String,
    #[serde(default)]
    pub(super) reason: Option<String>,
    #[serde(default)]
    pub(super) epoch: i64,
}

impl Books {
    /// Units that were ever taken and accounted for. Summed widely: a broken sale may say anything.
    fn taken(&self) -> i128 {
        [self.placed, self.in_flight, self.returned].map(i128::from).iter().sum()
    }

    /// Units taken between two readings.
    pub(super) fn taken_since(&self, before: &Self) -> i128 {
        self.taken() - before.taken()
    }
}

/// What does not agree; nothing where all is balanced. Other buyers may have come meanwhile, so
/// the books may know of more units than the crowd, never of fewer.
pub(super) fn differences(before: &Books, after: &Books, given: &Given, units_each: u32) -> Vec<String> {
    let mut all = Vec::new();
    let Books { total, placed, in_flight, left, .. } = *after;
    let sum: i128 = [placed, in_flight, left].map(i128::from).iter().sum();
    if sum != i128::from(total) {
        all.push(format!(
            "the books: {total} in total, but {placed} placed, {in_flight} in flight and {left} left are {sum}"
        ));
    }
    for (name, units) in [("placed", placed), ("in flight", in_flight), ("left", left)] {
        if units < 0 {
            all.push(format!("the books: {units} {name}"));
        }
    }
    if !after.balanced {
        let reason = after.reason.as_deref().unwrap_or("without a reason");
        all.push(format!("the sale says itself that its books do not balance: {reason}"));
    }
    let units = i128::from(given.len()) * i128::from(units_each);
    let taken = after.taken_since(before);
    if units > taken {
        all.push(format!("numbers were given for {units} units, but the books know of {taken} (placed, in flight or returned)"));
    }
    if given.twice > 0 {
        all.push(format!("order numbers given to more than one user: {}", given.twice));
    }
    if given.changed > 0 {
        all.push(format!("users who repeated a request and got another number: {}", given.changed));
    }
    if given.refused > 0 {
        all.push(format!("users who repeated a request and were refused: {}", given.refused));
    }
    all.extend(given.examples.iter().map(|example| format!("for example: {example}")));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books(placed: i64, in_flight: i64, left: i64) -> Books {
        Books { total: 100, placed, in_flight, left, balanced: true, ..Books::default() }
    }

    fn given(orders: u32) -> Given {
        let mut given = Given::default();
        (0..orders).for_each(|user| given.order(&format!("g-1-{user}"), user));
        given
    }

    #[test]
    fn books_that_know_every_unit_balance() {
        let before = books(10, 0, 90);
        assert!(differences(&before, &books(30, 5, 65), &given(25), 1).is_empty());
        assert!(differences(&before, &books(30, 0, 70), &given(10), 2).is_empty());
        // Others bought as well; some of ours were given back since.
        assert!(differences(&before, &books(90, 0, 10), &given(3), 1).is_empty());
        let after = Books { returned: 5, ..books(10, 0, 90) };
        assert!(differences(&before, &after, &given(5), 1).is_empty());
    }

    #[test]
    fn every_difference_is_told() {
        let before = books(10, 0, 90);
        let told = |after: Books, given: &Given| differences(&before, &after, given, 1).join("\n");
        assert!(told(books(30, 0, 70), &given(21)).contains("21 units, but the books know of 20"));
        assert!(told(books(30, 0, 71), &given(20)).contains("are 101"));
        assert!(told(books(101, 0, -1), &given(20)).contains("-1 left"));
        assert!(told(Books { balanced: false, ..books(30, 0, 70) }, &given(20)).contains("says itself"));
        let extreme =
            Books { total: i64::MIN, placed: i64::MAX, in_flight: i64::MAX, ..books(0, 0, i64::MAX) };
        assert!(!told(extreme, &given(1)).is_empty());
        let mut twice = given(5);
        twice.order("g-1-1", 9);
        twice.again("g-1-2", "g-1-7", 2);
        let told = told(books(40, 0, 60), &twice);
        assert!(told.contains("more than one user: 1") && told.contains("another number: 1"), "{told}");
        assert!(told.contains("user 1 and to user 9"), "{told}");
    }
}

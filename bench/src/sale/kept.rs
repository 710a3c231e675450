//! What became of the orders of a run. A speed at which some are lost is none.

use crate::Fallible;
use crate::rounds::Measured;
use std::collections::{HashMap, HashSet};

/// What is there when everything has come to rest.
pub struct Kept {
    /// The numbers of all orders, as often as they are there.
    pub orders: Vec<String>,
    /// Units by which the stock is smaller than at the beginning.
    pub taken: i64,
}

/// Everything that is not as it should be.
#[derive(Debug, Default, PartialEq, Eq)]
struct Faults {
    /// Buyers without a number, though there was a unit for each.
    refused: usize,
    /// Numbers that were given to more than one buyer.
    repeated: usize,
    /// Numbers that were given out and are no order.
    lost: usize,
    /// Orders that nobody has a number of, or that are there once more.
    surplus: usize,
    /// Units that the stock and the orders differ by.
    adrift: u64,
}

impl Kept {
    /// Ours: whatever is wrong is printed at once, and counted.
    pub fn measured(&self, sent: usize, received: &[String], value: f64) -> Measured {
        let faults = self.faults(sent, received);
        if faults != Faults::default() {
            eprintln!("bench: of {sent} orders: {faults:?}");
        }
        Measured { value, wrong: faults.share(sent) }
    }

    /// A base: one that is wrong ends the run.
    pub fn measured_base(&self, sent: usize, received: &[String], value: f64) -> Fallible<Measured> {
        let faults = self.faults(sent, received);
        if faults != Faults::default() {
            return Err(format!("of {sent} orders: {faults:?}").into());
        }
        Ok(Measured { value, wrong: 0.0 })
    }

    /// One unit an order.
    fn faults(&self, sent: usize, received: &[String]) -> Faults {
        let numbers: HashSet<&str> = received.iter().map(String::as_str).collect();
        let mut found: HashMap<&str, usize> = HashMap::new();
        self.orders.iter().for_each(|order| *found.entry(order).or_default() += 1);
        let surplus = |(order, times): (&&str, &usize)| times - usize::from(numbers.contains(order));
        Faults {
            refused: sent.abs_diff(received.len()),
            repeated: received.len() - numbers.len(),
            lost: numbers.iter().filter(|number| !found.contains_key(**number)).count(),
            surplus: found.iter().map(surplus).sum(),
            adrift: i64::try_from(self.orders.len()).unwrap_or(i64::MAX).abs_diff(self.taken),
        }
    }
}

impl Faults {
    fn share(&self, sent: usize) -> f64 {
        let orders = self.refused + self.repeated + self.lost + self.surplus;
        (orders as f64 + self.adrift as f64) / sent.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(numbers: &[&str]) -> Vec<String> {
        numbers.iter().map(ToString::to_string).collect()
    }

    fn faults(received: &[&str], orders: &[&str], taken: i64) -> Faults {
        Kept { orders: numbers(orders), taken }.faults(3, &numbers(received))
    }

    #[test]
    fn an_order_for_every_number_and_a_unit_for_every_order_is_right() {
        assert_eq!(faults(&["a", "b", "c"], &["c", "a", "b"], 3), Faults::default());
    }

    #[test]
    fn each_fault_is_counted_for_itself() {
        let none = Faults::default;
        assert_eq!(faults(&["a", "b"], &["a", "b"], 2), Faults { refused: 1, ..none() });
        assert_eq!(faults(&["a", "b", "b"], &["a", "b"], 2), Faults { repeated: 1, ..none() });
        assert_eq!(faults(&["a", "b", "c"], &["a", "b"], 2), Faults { lost: 1, ..none() });
        assert_eq!(faults(&["a", "b", "c"], &["a", "b", "c", "c"], 4), Faults { surplus: 1, ..none() });
        assert_eq!(faults(&["a", "b", "c"], &["a", "b", "c", "d"], 4), Faults { surplus: 1, ..none() });
        // As writers do that forget the version check: two of them take the same unit.
        assert_eq!(faults(&["a", "b", "c"], &["a", "b", "c"], 2), Faults { adrift: 1, ..none() });
    }

    #[test]
    fn ours_is_counted_as_wrong_and_a_base_ends_the_run() {
        let kept = Kept { orders: numbers(&["a"]), taken: 1 };
        let received = numbers(&["a", "b"]);
        assert_eq!(kept.measured(2, &received, 1.0).wrong, 0.5);
        assert!(kept.measured_base(2, &received, 1.0).is_err());
        assert_eq!(kept.measured(1, &received[..1], 1.0).wrong, 0.0);
        assert!(kept.measured_base(1, &received[..1], 1.0).is_ok());
    }
}

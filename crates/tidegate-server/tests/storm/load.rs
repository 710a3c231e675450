//! How the crowd comes: by its plan, whatever the sale does.

use crate::sale::{Sale, Told, Ways};
use std::process::Stdio;
use std::time::Duration;
use testkit::servers::wait_until;

/// For machines that are busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_stalled_sale_delays_answers_and_no_arrival() {
    let sale = Sale::start(Ways { stalls: Duration::from_secs(2), ..Ways::default() });
    let told = sale.storm("--users 1000 --duration 1s --connections 4");
    assert_eq!((told.code, told.number("/arrivals")), (0, 1000), "{told:?}");
    assert_eq!((told.answers(41001), told.number("/unsent")), (1000, 0));
    // Only four requests saw the stall themselves. Counted from when they were sent, all others
    // were fast; but nobody who was meant to arrive within the first second was answered before
    // the end of the second one, two seconds after the first ask, which came early in the first.
    assert!(told.number("/latency_us/refusals/p50") >= 1_000_000, "{told:?}");
    assert!(told.number("/latency_us/sent_late_by/p50") >= 1_000_000, "{told:?}");
    assert!(told.out.contains("waited for one of the 4 connections"), "{told:?}");
}

#[test]
fn retry_after_is_honoured_with_jitter_and_twice_at_most() {
    let args = "--users 40 --duration 100ms --think 20ms --connections 8";
    let sale = Sale::start(Ways { stock: 40, refuses_first: 2, ..Ways::default() });
    let told = sale.storm(args);
    assert_eq!((told.code, told.number("/orders/given"), told.number("/retries")), (0, 40, 80), "{told:?}");
    let mut gaps = Vec::new();
    for asks in sale.asks() {
        assert_eq!(asks.len(), 3);
        gaps.extend(asks.windows(2).map(|pair| pair[1] - pair[0]));
    }
    // The second is counted from the answer, so on the sale's clock there is never less.
    gaps.sort_unstable();
    assert!(gaps[0] >= Duration::from_secs(1), "{gaps:?}");
    // Half a second of jitter: 80 draws that all fall into a tenth of it are no draws.
    assert!(gaps[79] - gaps[0] >= Duration::from_millis(50), "{gaps:?}");

    let sale = Sale::start(Ways { stock: 40, refuses_first: 3, ..Ways::default() });
    let told = sale.storm(args);
    assert_eq!((told.answers(42901), told.number("/tries_spent")), (120, 40), "{told:?}");
    assert!(sale.asks().iter().all(|asks| asks.len() == 3));
}

#[test]
fn whoever_is_told_to_come_back_after_the_end_does_not() {
    let sale = Sale::start(Ways { refuses_first: 1, ..Ways::default() });
    let told = sale.storm("--users 40 --duration 100ms --grace 500ms --connections 8");
    assert_eq!((told.number("/requests"), told.number("/too_late")), (40, 40), "{told:?}");
}

#[test]
fn a_sale_that_never_answers_cannot_keep_it_running() {
    let sale = Sale::start(Ways { stalls: Duration::from_secs(3600), ..Ways::default() });
    let mut storm = sale
        .command("--users 500 --duration 300ms --grace 300ms --connections 4 --json -")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the hard stop", PATIENCE, || storm.try_wait().unwrap().is_some());
    let told = Told::of(storm.wait_with_output().unwrap());
    let told = Told { json: serde_json::from_str(&told.out).unwrap(), ..told };
    assert_eq!((told.number("/arrivals"), told.number("/requests"), told.number("/unsent")), (500, 4, 496));
    assert_eq!(told.number("/latency_us/unanswered/count"), 500);
    assert!(told.number("/latency_us/unanswered/p50") >= 300_000, "{told:?}");
}

#[test]
fn an_interrupted_storm_tells_its_figures() {
    let sale = Sale::start(Ways { stock: 1_000_000, ..Ways::default() });
    let storm =
        sale.command("--users 6000 --duration 60s --connections 4").stdout(Stdio::piped()).spawn().unwrap();
    wait_until("somebody came", PATIENCE, || !sale.asks().is_empty());
    let pid = rustix::process::Pid::from_child(&storm);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let told = Told::of(storm.wait_with_output().unwrap());
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.out.contains("interrupted") && told.out.contains("arrivals"), "{told:?}");
}

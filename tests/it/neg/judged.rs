//! Tests of the judge: it accepts correct ledgers, and finds each kind of violation.

use super::compute::{Does, Endpoint, Operation};
use super::judge::{Judged, Rules, judge};

/// Ten pods, one at a time, and a second between two.
const RULES: Rules = Rules {
    pods: 10,
    at_once: 1,
    wait_ms: 1000,
};

/// A pod with one address, or with two.
fn endpoint(pod: usize, is_dual: bool) -> Endpoint {
    Endpoint {
        instance: "vm".to_owned(),
        ip_address: format!("10.0.0.{pod}"),
        ipv6_address: if is_dual { format!("fd00::{pod}") } else { String::new() },
        port: 80,
    }
}

/// A ledger written by hand: operations take 50 ms.
#[derive(Default)]
struct Ledger(Vec<Operation>);

impl Ledger {
    /// At 50, ten pods with one address are there.
    fn full() -> Self {
        let mut ledger = Self::default();
        ledger.add(0, Does::Attach, (0..10).map(|pod| endpoint(pod, false)));
        ledger
    }

    fn add(&mut self, at_ms: u64, does: Does, endpoints: impl IntoIterator<Item = Endpoint>) -> &mut Operation {
        let id = u64::try_from(self.0.len()).unwrap();
        self.0.push(Operation {
            id,
            does,
            zone: "z".to_owned(),
            neg: "n".to_owned(),
            request_id: Some(format!("request-{id}")),
            repeats: 0,
            endpoints: endpoints.into_iter().collect(),
            received_ms: at_ms,
            done_ms: Some(at_ms + 50),
            failure: None,
        });
        self.0.last_mut().unwrap()
    }

    /// A pod gets its second address.
    fn step(&mut self, at_ms: u64, pod: usize, back_ms: u64) {
        self.add(at_ms, Does::Detach, [endpoint(pod, false)]);
        self.add(back_ms, Does::Attach, [endpoint(pod, true)]);
    }

    fn judge(&self) -> Judged {
        judge(&self.0, RULES)
    }
}

#[test]
fn steps_that_keep_the_rules_are_let_through() {
    let mut ledger = Ledger::full();
    ledger.step(1000, 0, 1100);
    ledger.step(2050, 1, 2200);
    // A failure needs no pause after it.
    ledger.add(3100, Does::Detach, [endpoint(2, false)]).failure = Some("failed".to_owned());
    ledger.step(3200, 2, 3300);
    let judged = ledger.judge();
    assert_eq!((judged.starts, judged.late, judged.missing_max), (4, 0, 1), "{judged}");
}

#[test]
fn a_step_that_came_back_late_is_no_fault_of_the_next_one() {
    let mut ledger = Ledger::full();
    ledger.step(1000, 0, 2200);
    ledger.step(2060, 1, 2300);
    let judged = ledger.judge();
    assert_eq!((judged.late, judged.missing_max), (1, 2), "{judged}");
}

#[test]
#[should_panic(expected = "takes out more than 1")]
fn a_large_step_is_found() {
    let mut ledger = Ledger::full();
    ledger.add(1000, Does::Detach, [0, 1].map(|pod| endpoint(pod, false)));
    ledger.judge();
}

#[test]
#[should_panic(expected = "comes too early after")]
fn a_short_pause_is_found() {
    let mut ledger = Ledger::full();
    ledger.step(1000, 0, 1100);
    ledger.step(2000, 1, 2100);
    ledger.judge();
}

#[test]
#[should_panic(expected = "comes too early after")]
fn a_step_within_another_is_found() {
    let mut ledger = Ledger::full();
    ledger.add(1000, Does::Detach, [endpoint(0, false)]).failure = Some("failed".to_owned());
    ledger.add(1049, Does::Detach, [endpoint(1, false)]);
    ledger.judge();
}

#[test]
#[should_panic(expected = "2 pods are missing")]
fn too_many_that_are_missing_are_found() {
    let mut ledger = Ledger::full();
    ledger.add(1000, Does::Detach, [0, 1].map(|pod| endpoint(pod, false)));
    ledger.add(1100, Does::Attach, [0, 1].map(|pod| endpoint(pod, true)));
    ledger.judge();
}

#[test]
#[should_panic(expected = "has no request id of its own")]
fn a_request_id_that_two_operations_have_is_found() {
    let mut ledger = Ledger::full();
    ledger.step(1000, 0, 1100);
    ledger.0[2].request_id = ledger.0[1].request_id.clone();
    ledger.judge();
}

#[test]
#[should_panic(expected = "attaches what is there")]
fn what_is_attached_twice_is_found() {
    let mut ledger = Ledger::full();
    ledger.add(1000, Does::Attach, [endpoint(0, true)]);
    ledger.judge();
}

#[test]
#[should_panic(expected = "detaches what is not there")]
fn what_is_detached_in_vain_is_found() {
    let mut ledger = Ledger::full();
    ledger.add(1000, Does::Detach, [endpoint(0, true)]);
    ledger.judge();
}

#[test]
#[should_panic(expected = "touches what is on its way")]
fn what_is_asked_for_while_it_is_under_way_is_found() {
    let mut ledger = Ledger::full();
    ledger.add(1000, Does::Detach, [endpoint(0, false)]);
    ledger.add(1010, Does::Detach, [endpoint(0, false)]);
    ledger.judge();
}

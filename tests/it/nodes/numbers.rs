//! Each node gets a unique number, and keeps it: 50 hosts at once, restarts, kills, lost state folders.

use needs::needs;
use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::manifests::Manifests;
use super::site::{Config, Host, wait_until};
use super::store::{Etcd, RECORDS};

const HOSTS: u32 = 50;

/// How often the kill tests kill each host.
const KILLS: u64 = 8;

fn name(number: u32) -> String {
    format!("node-{number:02}")
}

/// The published address of the node of this name.
fn address(number: u32) -> String {
    format!("192.168.16.{number}/24")
}

fn joining(etcd: &Etcd, manifests: &Manifests, number: u32) -> Config {
    let (name, address) = (name(number), address(number));
    manifests.put_node(&name, &format!("172.30.1.{number}"));
    Config::new(&name, manifests)
        .against(&etcd.url())
        .numbered()
        .publishing(&[&address])
}

#[needs(etcd)]
#[test]
fn fifty_hosts_that_start_at_once_get_the_numbers_1_to_50() {
    let etcd = Etcd::start();
    let manifests = Manifests::new();
    // All are up and ask before any gets an answer. A question may wait that long.
    etcd.hang();
    let configs = (1..=HOSTS).map(|number| joining(&etcd, &manifests, number).patient(600_000));
    let mut hosts: Vec<Host> = configs.map(Host::new).collect();
    hosts.iter_mut().for_each(Host::start);
    hosts.iter_mut().for_each(Host::wait_until_up);
    etcd.go_on();

    let numbers: Vec<u32> = hosts.iter_mut().map(Host::wait_for_number).collect();
    let all: BTreeSet<u32> = (1..=HOSTS).collect();
    assert_eq!(BTreeSet::from_iter(numbers.iter().copied()), all);
    // A node that published wrote its own record, and no other's.
    let told = |number: u32| (name(number), address(number));
    let expected =
        |id: u32, (name, address): (String, String)| json!({ "id": id, "name": name, "ip_addresses": [address] });
    let expected: Vec<_> = (1..=HOSTS)
        .zip(&numbers)
        .map(|(number, id)| (*id, expected(*id, told(number))))
        .collect();
    let expected = expected.into_iter().collect();
    wait_until("all addresses to be published", || etcd.records() == expected);

    // Every node knows every other.
    let mut nodes: Vec<_> = (1..=HOSTS)
        .zip(&numbers)
        .map(|(number, id)| (name(number), u64::from(*id), vec![address(number)]))
        .collect();
    nodes.sort();
    for host in &hosts {
        wait_until(&format!("all nodes at {}", host.node), || host.nodes() == nodes);
    }
    // With so many at once, some lose every attempt, and start over with a fresh listing.
    let exhausted = hosts
        .iter()
        .filter(|host| host.stderr().contains("others were faster in each of 11 attempts"));
    assert_ne!(exhausted.count(), 0, "no node lost all attempts");
    hosts.iter().for_each(Host::ask_to_end);
    for host in &mut hosts {
        let ended = host.wait_for_end().exits(0);
        assert_eq!(
            ended.last_line(),
            "50 nodes, 0 services: 0 renderers true, 0 failed",
            "{ended}"
        );
    }
    assert_eq!(etcd.records(), expected, "a node that goes down keeps its number");
}

#[needs(etcd)]
#[test]
fn a_host_that_restarts_keeps_its_number_and_writes_nothing() {
    let etcd = Etcd::start();
    let manifests = Manifests::new();
    let mut hosts: Vec<Host> = (1..=3)
        .map(|number| Host::start_new(joining(&etcd, &manifests, number)))
        .collect();
    let numbers: Vec<u32> = hosts.iter_mut().map(Host::wait_for_number).collect();
    wait_until("all addresses to be published", || {
        etcd.records().values().all(|record| record["ip_addresses"].is_array())
    });
    let records = etcd.records();
    let writes = |id: &u32| etcd.writes_of(&format!("{RECORDS}{id}"));
    let written: Vec<_> = numbers.iter().map(writes).collect();

    // One ends like a service, one crashes, and one loses all of its state.
    let (first, others) = hosts.split_at_mut(1);
    let (second, third) = others.split_at_mut(1);
    first[0].terminate().exits(0);
    second[0].kill();
    third[0].terminate().exits(0);
    third[0].lose_state();
    for host in &mut hosts {
        host.start();
    }
    let again: Vec<u32> = hosts.iter_mut().map(Host::wait_for_number).collect();
    assert_eq!(again, numbers);
    for host in &mut hosts {
        wait_until("all nodes", || host.nodes().len() == 3);
        host.terminate().exits(0);
    }
    assert_eq!(etcd.records(), records);
    let after: Vec<_> = numbers.iter().map(writes).collect();
    assert_eq!(after, written, "nothing is written again");
}

#[needs(etcd)]
#[test]
fn a_host_killed_repeatedly_keeps_one_record_and_its_first_number() {
    let etcd = Etcd::start();
    let manifests = Manifests::new();
    let mut other = Host::start_new(joining(&etcd, &manifests, 2));
    let taken = other.wait_for_number();
    let mut host = Host::new(joining(&etcd, &manifests, 1));
    // Each time later during a start; every other time, its state is lost too.
    let mut number = None;
    for kill in 0..KILLS {
        host.start();
        std::thread::sleep(Duration::from_millis(kill * 60));
        host.kill();
        if kill % 2 == 1 {
            host.lose_state();
        }
        let numbers = etcd.numbers_of("node-01");
        assert!(numbers.len() <= 1, "{numbers:?}");
        assert!(
            number.is_none() || number == numbers.first().copied(),
            "{number:?}, then {numbers:?}"
        );
        number = numbers.first().copied();
    }
    host.start();
    let last = host.wait_for_number();
    assert!(number.is_none_or(|number| number == last), "{number:?}, then {last}");
    for _ in 0..KILLS {
        host.kill();
        host.start();
        assert_eq!(host.wait_for_number(), last);
    }
    assert_eq!(etcd.numbers_of("node-01"), [last]);
    assert_eq!(etcd.numbers_of("node-02"), [taken]);
    wait_until("the nodes at the other", || other.nodes().len() == 2);
    host.terminate().exits(0);
    other.terminate().exits(0);
}

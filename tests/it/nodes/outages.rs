//! etcd is gone for 10 s while nodes join, addresses change and Services are edited: afterwards everything is as
//! without the outage.
//!
//! Users see the node ports: a Service must be reachable at every address of every node, which each node's `nat44`
//! writes for its agent.

use needs::needs;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

use serde_json::Value;

use super::manifests::Manifests;
use super::site::{Config, Host, wait_until};
use super::store::{Etcd, RECORDS};
use support::trueup;

/// Longer than a question may take and than the longest pause before its retry.
const OUTAGE: Duration = Duration::from_secs(10);

/// The Service on all nodes.
const SERVICE: &str = "web";

fn config(etcd: &Etcd, manifests: &Manifests, node: &str, address: &str) -> Config {
    Config::new(node, manifests)
        .against(&etcd.url())
        .numbered()
        .publishing(&[address])
        .serving(&["nat44"])
}

/// The addresses and ports at which a node's agent offers the Service, except its cluster IP.
fn offered(etcd: &Etcd, node: &str) -> BTreeSet<(String, u64)> {
    let key = format!("/vnf-agent/{node}/config/vpp/nat/v2/dnat44/shop/{SERVICE}");
    let Some(value) = etcd.under(&key).remove(&key) else {
        return BTreeSet::new();
    };
    let value: Value = serde_json::from_str(&value).unwrap();
    let mappings = value["st_mappings"].as_array().cloned().unwrap_or_default().into_iter();
    mappings
        .map(|mapping| {
            let ip = mapping["external_ip"].as_str().unwrap().to_owned();
            (ip, mapping["external_port"].as_u64().unwrap())
        })
        .filter(|(ip, _)| !ip.starts_with("10.96."))
        .collect()
}

#[track_caller]
fn wait_for_offers(etcd: &Etcd, nodes: &[&str], addresses: &[&str], port: u64) {
    let expected: BTreeSet<_> = addresses.iter().map(|&address| (address.to_owned(), port)).collect();
    for node in nodes {
        wait_until(&format!("{addresses:?} at {node}"), || offered(etcd, node) == expected);
    }
}

/// `gone` and `back` start and end the outage.
fn nothing_is_lost(gone: impl FnOnce(&mut Etcd), back: impl FnOnce(&mut Etcd)) {
    let mut etcd = Etcd::start();
    let manifests = Manifests::new();
    manifests.put_node("node-a", "172.30.1.1");
    manifests.put_node("node-b", "172.30.1.2");
    manifests.put_service(SERVICE, 10, 30080);
    manifests.put_endpoints(SERVICE, &["10.1.1.2"]);
    let mut a = Host::start_new(config(&etcd, &manifests, "node-a", "192.168.16.1/24"));
    assert_eq!(a.wait_for_number(), 1);
    let mut b = Host::start_new(config(&etcd, &manifests, "node-b", "192.168.16.2/24"));
    assert_eq!(b.wait_for_number(), 2);
    let both = ["192.168.16.1", "172.30.1.1", "192.168.16.2", "172.30.1.2"];
    wait_for_offers(&etcd, &["node-a", "node-b"], &both, 30080);

    gone(&mut etcd);
    // A node joins, another comes back with another address, a third gets another management address, and the Service
    // moves.
    manifests.put_node("node-c", "172.30.1.3");
    let mut c = Host::start_new(config(&etcd, &manifests, "node-c", "192.168.16.3/24"));
    b.kill();
    b.publishes(&["192.168.16.22/24"]);
    b.start();
    manifests.put_node("node-a", "172.30.1.11");
    manifests.put_service(SERVICE, 10, 30081);
    std::thread::sleep(OUTAGE);
    assert_eq!(
        (b.number(), c.number()),
        (None, None),
        "no node is numbered without the store"
    );
    back(&mut etcd);

    assert_eq!((b.wait_for_number(), c.wait_for_number()), (2, 3));
    let addresses = [
        "192.168.16.1",
        "172.30.1.11",
        "192.168.16.22",
        "172.30.1.2",
        "192.168.16.3",
        "172.30.1.3",
    ];
    wait_for_offers(&etcd, &["node-a", "node-b", "node-c"], &addresses, 30081);
    let names: Vec<(u32, Value)> = etcd
        .records()
        .into_iter()
        .map(|(id, record)| (id, record["name"].clone()))
        .collect();
    assert_eq!(
        names,
        [(1, "node-a".into()), (2, "node-b".into()), (3, "node-c".into())]
    );

    // A host that ran all the time still follows changes.
    etcd.put(
        &format!("{RECORDS}9"),
        r#"{"id":9,"name":"node-i","ip_addresses":["192.168.16.9/24"]}"#,
    );
    let addresses = [&addresses[..], &["192.168.16.9"]].concat();
    wait_for_offers(&etcd, &["node-a", "node-b", "node-c"], &addresses, 30081);
    for host in [&mut a, &mut b, &mut c] {
        // What a call does is visible before the call ends.
        wait_until("the ends of its calls", || host.status().code == Some(0));
        let ended = host.terminate().exits(0);
        assert_eq!(
            ended.last_line(),
            "4 nodes, 1 service: 1 renderer true, 0 failed",
            "{ended}"
        );
        let journals = host.site.journals();
        let replayed = trueup(
            [std::ffi::OsString::from("replay")]
                .into_iter()
                .chain(journals.into_iter().map(Into::into)),
        );
        replayed.exits(0);
    }
}

#[needs(etcd)]
#[test]
fn an_etcd_that_hangs_for_10_s_loses_nothing() {
    nothing_is_lost(|etcd| etcd.hang(), |etcd| etcd.go_on());
}

#[needs(etcd)]
#[test]
fn an_etcd_that_is_down_for_10_s_loses_nothing() {
    nothing_is_lost(Etcd::stop, Etcd::start_again);
}

#[needs(etcd)]
#[test]
fn a_first_member_that_never_answers_leaves_the_number_to_the_second() {
    let etcd = Etcd::start();
    let manifests = Manifests::new();
    manifests.put_node("node-a", "172.30.1.1");
    // It accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    let config = Config::new("node-a", &manifests)
        .against(&silent_url)
        .against(&etcd.url());
    let mut host = Host::start_new(config.patient_by_default().numbered().publishing(&["192.168.16.1/24"]));
    assert_eq!(host.wait_for_number(), 1);
    // The host asked it first.
    silent.set_nonblocking(true).unwrap();
    assert!(silent.accept().is_ok(), "no request came to the first member");
    // The watch uses the second, too.
    etcd.put(
        &format!("{RECORDS}9"),
        r#"{"id":9,"name":"node-i","ip_addresses":["192.168.16.9/24"]}"#,
    );
    let node = |name: &str, id: u64, address: &str| (name.to_owned(), id, vec![address.to_owned()]);
    let expected = [
        node("node-a", 1, "192.168.16.1/24"),
        node("node-i", 9, "192.168.16.9/24"),
    ];
    wait_until("both nodes", || host.nodes() == expected);
    let ended = host.terminate().exits(0);
    assert_eq!(
        ended.last_line(),
        "2 nodes, 0 services: 0 renderers true, 0 failed",
        "{ended}"
    );
}

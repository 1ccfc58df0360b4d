//! Records that others change under a running node: the node restores a deleted one; one with another owner stops the
//! instance, and the operator sees which.

use needs::needs;
use serde_json::{Value, json};

use super::manifests::Manifests;
use super::site::{Config, Host, wait_until};
use super::store::{Etcd, RECORDS};

/// Two nodes that know each other, the first of them with number 1.
fn two() -> (Etcd, Manifests, Host, Host) {
    let etcd = Etcd::start();
    let manifests = Manifests::new();
    let start = |name: &str, last: u8| {
        manifests.put_node(name, &format!("172.30.1.{last}"));
        let address = format!("192.168.16.{last}/24");
        let config = Config::new(name, &manifests)
            .against(&etcd.url())
            .numbered()
            .publishing(&[&address]);
        let mut host = Host::start_new(config);
        assert_eq!(host.wait_for_number(), u32::from(last));
        host
    };
    let (a, b) = (start("node-a", 1), start("node-b", 2));
    let both = [
        ("node-a".to_owned(), 1, vec!["192.168.16.1/24".to_owned()]),
        ("node-b".to_owned(), 2, vec!["192.168.16.2/24".to_owned()]),
    ];
    for host in [&a, &b] {
        wait_until("both nodes", || host.nodes() == both);
    }
    (etcd, manifests, a, b)
}

#[needs(etcd)]
#[test]
fn a_record_that_goes_is_put_back_as_it_was_and_the_node_goes_on() {
    let (etcd, _manifests, mut a, mut b) = two();
    let records = etcd.records();
    etcd.delete(&format!("{RECORDS}1"));
    wait_until("the record", || etcd.records() == records);
    // Both at once, and a key that is no record remains unchanged.
    etcd.put(&format!("{RECORDS}007"), "not a record");
    etcd.delete(&format!("{RECORDS}1"));
    etcd.delete(&format!("{RECORDS}2"));
    let is_back = || {
        let mut stored = etcd.under(RECORDS);
        let other = stored.remove(&format!("{RECORDS}007"));
        other.as_deref() == Some("not a record") && stored.len() == 2
    };
    wait_until("both records", is_back);
    etcd.delete(&format!("{RECORDS}007"));
    assert_eq!(etcd.records(), records);
    // An unreadable record is a missing input: the host reports it until it goes.
    etcd.put(&format!("{RECORDS}9"), "not a record");
    let problem = format!("problem   `{RECORDS}9` is no record of a node: it is no JSON object");
    wait_until("it in the status", || {
        let status = a.status();
        // The host may not have read the source yet, which it reports too.
        status.stdout.contains(&problem) && status.last_line() == "not well: 1 node's record can't be read"
    });
    a.status().exits(1);
    etcd.delete(&format!("{RECORDS}9"));
    wait_until("all to be well", || a.status().code == Some(0));
    for host in [&mut a, &mut b] {
        wait_until("both nodes again", || host.nodes().len() == 2);
        let ended = host.terminate().exits(0);
        assert_eq!(
            ended.last_line(),
            "2 nodes, 0 services: 0 renderers true, 0 failed",
            "{ended}"
        );
        assert_eq!(ended.stdout.matches(" numbered ").count(), 1, "{ended}");
    }
}

#[needs(etcd)]
#[test]
fn a_number_held_by_another_node_stops_the_instance_until_a_restart() {
    let (etcd, _manifests, mut a, mut b) = two();
    let key = format!("{RECORDS}1");
    etcd.put(&key, r#"{"id":1,"name":"node-z","ip_addresses":["192.168.16.26/24"]}"#);
    let says = "its number 1 belongs to `node-z` now: the instance is stopped; find out why two nodes have one number, then start \
                the host of one of them again";
    a.wait_for(says);
    let line = format!("{:<24} failed   {says}", "nodesync/node-a");
    assert!(a.stdout().lines().any(|said| said == line), "{}", a.stdout());

    // For people, and for programs.
    let status = a.status().exits(1);
    assert!(
        status.stdout.contains("nodesync/node-a") && status.stdout.contains(says),
        "{status}"
    );
    assert!(status.last_line().starts_with("not well: "), "{status}");
    assert!(status.stdout.contains("node      `node-a` has no number; "), "{status}");
    // The other node takes the record as it is, and is well.
    let node = |name: &str, id: u64, address: &str| (name.to_owned(), id, vec![address.to_owned()]);
    let expected = [
        node("node-b", 2, "192.168.16.2/24"),
        node("node-z", 1, "192.168.16.26/24"),
    ];
    wait_until("the other name at node-b", || b.nodes() == expected);
    // Its number does not imply that it has read its source.
    wait_until("node-b to be well", || b.status().code == Some(0));

    // The host no longer calls the instance, whatever happens.
    let calls = a.calls("nodesync").len();
    etcd.put(&format!("{RECORDS}9"), r#"{"id":9,"name":"node-i"}"#);
    wait_until("another node at node-b", || b.nodes().len() == 3);
    let line = "node      `node-b` has number 2; 3 nodes numbered; 0 services to render";
    wait_until("it in its status", || b.status().stdout.contains(line));
    assert_eq!(a.calls("nodesync").len(), calls);
    let written: Value = serde_json::from_str(&etcd.under(&key)[&key]).unwrap();
    assert_eq!(written["name"], "node-z", "it is not taken back");

    // After a restart it gets a number like a new node: its old one belongs to another.
    let ended = a.terminate();
    assert!(ended.stdout.contains(says), "{ended}");
    a.start();
    assert_eq!(a.wait_for_number(), 3);
    a.wait_for("the number 1 that this node had belongs to `node-z` by now: it is numbered anew");
    let its = json!({ "id": 3, "name": "node-a", "ip_addresses": ["192.168.16.1/24"] });
    wait_until("its record", || etcd.records().get(&3) == Some(&its));
    let written: Value = serde_json::from_str(&etcd.under(&key)[&key]).unwrap();
    assert_eq!(written["name"], "node-z", "it is left alone");
    wait_until("all to be well", || a.status().code == Some(0));
    a.terminate().exits(0);
    b.terminate().exits(0);
}

#[needs(etcd)]
#[test]
fn two_hosts_with_one_name_show() {
    let (etcd, manifests, mut a, b) = two();
    let mut twin = Host::start_new(
        Config::new("node-a", &manifests)
            .against(&etcd.url())
            .numbered()
            .publishing(&["192.168.16.3/24"]),
    );
    assert_eq!(twin.wait_for_number(), 1, "the record has its name");
    a.wait_for(
        "its record `/vnf-agent/contiv-ksr/allocatedIDs/1` was overwritten, with the addresses [192.168.16.3/24]: does another \
         host have the name `node-a`?",
    );
    wait_until("it in the status", || {
        a.status().stdout.contains("does another host have the name `node-a`?")
    });
    twin.wait_for("was overwritten, with the addresses [192.168.16.1/24]");
    twin.terminate();
    wait_until("all to be well", || a.status().code == Some(0));
    drop(b);
}

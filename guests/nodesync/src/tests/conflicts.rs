//! Races, failures and thefts: the effects on the number, and on the known contents of the database.

use serde_json::json;
use trueup_guest::Guest as _;

use super::{CONFIG, OWN_KEY, instance, lines, put, state, synced};
use crate::bindings::exports::trueup::nodesync::node_sync::{Change, Error};
use crate::bindings::trueup::nodesync::types::IpVersion;
use crate::node_sync::NodeSync;
use crate::simulated::Simulation;

fn database<T>(text: &str) -> Result<T, Error> {
    Err(Error::Database(text.to_owned()))
}

fn publish(node_sync: &mut NodeSync, world: &mut Simulation, addresses: &[&str]) -> Result<bool, Error> {
    let addresses: Vec<String> = addresses.iter().map(|&address| address.to_owned()).collect();
    node_sync.publish_node_ips(world, &addresses, IpVersion::Ipv4)
}

fn unavailable(world: &mut Simulation, call: &str) {
    world
        .questions
        .add_fault(&json!({"call": call, "error": {"Unavailable": "down"}}));
}

#[test]
fn a_faster_node_each_time_ends_the_allocation_at_last() {
    for (config, attempts) in [
        (CONFIG, 11),
        (r#"{"node_name": "me", "allocation_attempts": 1}"#, 1),
        (r#"{"node_name": "me", "allocation_attempts": 3}"#, 3),
    ] {
        let mut world = Simulation::default();
        let lost = json!({"call": "kv.put-if-not-exists", "answer": {"Ok": false}, "times": null});
        world.questions.add_fault(&lost);
        let mut node_sync = instance(config);
        assert_eq!(
            node_sync.resync(&mut world, state(&[], &[])),
            Err(Error::AttemptsExhausted(attempts))
        );
        assert_eq!(world.questions.take_calls().len(), 2 * attempts as usize);
        assert_eq!(node_sync.id, 0);
        world.questions.clear_faults();
        assert_eq!(node_sync.resync(&mut world, state(&[], &[])), Ok(()));
        assert_eq!(node_sync.id, 1);
    }
}

#[test]
fn an_allocation_with_a_lost_answer_is_found_by_name_in_the_next_listing() {
    let mut world = Simulation::default();
    let mut node_sync = instance(CONFIG);
    unavailable(&mut world, "kv.put-if-not-exists");
    assert_eq!(
        node_sync.resync(&mut world, state(&[], &[])),
        database("unavailable: down")
    );
    assert_eq!(node_sync.resync(&mut world, state(&[(1, "me", "")], &[])), Ok(()));
    assert_eq!((node_sync.id, world.store.len()), (1, 0));
}

#[test]
fn of_several_records_of_this_node_the_lowest_id_counts() {
    let mut world = Simulation::default();
    let records = [(9, "me", "10.0.0.9/8"), (2, "me", "10.0.0.2/8"), (3, "a", "")];
    let mut node_sync = synced(&mut world, &records);
    assert_eq!(node_sync.id, 2);
    assert_eq!(lines(&node_sync.all_nodes()), ["3 a [] []", "2 me [10.0.0.2/8] []"]);
    assert_eq!(
        world.record.messages(),
        ["several records bear the name of this node ids=2, 9"]
    );
    assert!(world.questions.take_calls().is_empty());
    // The node keeps that id even if a later listing only has another record of its name.
    let mut world = Simulation::default();
    assert_eq!(
        node_sync.resync(&mut world, state(&[(1, "me", "10.0.0.1/8")], &[])),
        Ok(())
    );
    assert_eq!(node_sync.id, 2);
    assert_eq!(
        world.store[OWN_KEY],
        r#"{"id":2,"name":"me","ip_addresses":["10.0.0.2/8"]}"#
    );
}

#[test]
fn a_theft_is_told_and_changes_nothing() {
    let mut world = Simulation::default();
    let mut node_sync = synced(&mut world, &[(2, "me", "10.0.0.2/8"), (3, "a", "")]);
    let before = node_sync.snapshot();
    let taken = |name: &str| Error::IdTaken(name.to_owned());
    assert_eq!(node_sync.update(&mut world, put(2, "thief", "")), Err(taken("thief")));
    let listing = [(2, "thief", ""), (2, "zoe", ""), (5, "me", ""), (6, "b", "")];
    assert_eq!(node_sync.resync(&mut world, state(&listing, &[])), Err(taken("thief")));
    assert!(world.questions.take_calls().is_empty());
    for (value, name) in [
        (r#"{"id":2,"name":"thief"}"#, "thief"),
        (r#"{"id":2}"#, ""),
        ("no JSON", ""),
        (r#"{"id":2,"name":""}"#, ""),
    ] {
        world.store.insert(OWN_KEY.to_owned(), value.to_owned());
        assert_eq!(
            node_sync.update(&mut world, Change::VppNodeDeleted(2)),
            Err(taken(name)),
            "{value}"
        );
        assert_eq!(
            node_sync.resync(&mut world, state(&[], &[])),
            Err(taken(name)),
            "{value}"
        );
        assert_eq!(world.store[OWN_KEY], value);
    }
    assert_eq!(node_sync.snapshot(), before);
}

#[test]
fn a_record_that_comes_and_goes_is_the_databases_error() {
    let mut world = Simulation::default();
    let mut node_sync = synced(&mut world, &[(2, "me", "10.0.0.2/8")]);
    let lost = json!({"call": "kv.put-if-not-exists", "answer": {"Ok": false}, "times": 2});
    world.questions.add_fault(&lost);
    let before = node_sync.snapshot();
    let text = "record of this node comes and goes";
    assert_eq!(node_sync.resync(&mut world, state(&[], &[])), database(text));
    assert_eq!(node_sync.snapshot(), before);
    assert_eq!(node_sync.update(&mut world, Change::VppNodeDeleted(2)), database(text));
    assert_eq!(lines(&node_sync.all_nodes()), ["2 me [10.0.0.2/8] []"]);
}

#[test]
fn a_record_that_was_not_restored_is_written_by_the_next_publish() {
    for call in ["kv.put-if-not-exists", "kv.get"] {
        let mut world = Simulation::default();
        let mut node_sync = synced(&mut world, &[(2, "me", "10.0.0.2/8")]);
        if call == "kv.get" {
            world.store.insert(OWN_KEY.to_owned(), "?".to_owned());
        }
        unavailable(&mut world, call);
        let put_back = node_sync.update(&mut world, Change::VppNodeDeleted(2));
        assert_eq!(put_back, database("unavailable: down"), "{call}");
        assert_eq!(lines(&node_sync.all_nodes()), ["2 me [10.0.0.2/8] []"]);
        assert_eq!(publish(&mut node_sync, &mut world, &["10.0.0.2/8"]), Ok(true), "{call}");
        assert_eq!(
            world.store[OWN_KEY],
            r#"{"id":2,"name":"me","ip_addresses":["10.0.0.2/8"]}"#
        );
        assert_eq!(publish(&mut node_sync, &mut world, &["10.0.0.2/8"]), Ok(false));
    }
}

#[test]
fn what_was_published_is_written_again_where_the_listing_differs() {
    let mut world = Simulation::default();
    let mut node_sync = synced(&mut world, &[(2, "me", "10.0.0.9/8")]);
    assert_eq!(publish(&mut node_sync, &mut world, &["10.0.0.2/8"]), Ok(true));
    let own = r#"{"id":2,"name":"me","ip_addresses":["10.0.0.2/8"]}"#;
    world.store.clear();
    assert_eq!(node_sync.update(&mut world, Change::VppNodeDeleted(2)), Ok(vec![]));
    assert_eq!(world.store[OWN_KEY], own);
    // Another writer stored something else; an update only takes note of it, a resync writes.
    world.store.insert(OWN_KEY.to_owned(), "else".to_owned());
    assert_eq!(node_sync.update(&mut world, put(2, "me", "10.0.0.9/8")), Ok(vec![]));
    assert_eq!(
        (world.store[OWN_KEY].as_str(), lines(&node_sync.all_nodes())),
        ("else", vec!["2 me [10.0.0.2/8] []".to_owned()])
    );
    world.questions.take_calls();
    node_sync
        .resync(&mut world, state(&[(2, "me", "10.0.0.9/8")], &[]))
        .unwrap();
    assert_eq!(world.questions.take_calls().len(), 1);
    assert_eq!(world.store[OWN_KEY], own);
}

#[test]
fn a_resync_tolerates_that_its_write_fails() {
    let mut world = Simulation::default();
    let mut node_sync = synced(&mut world, &[(2, "me", "")]);
    assert_eq!(publish(&mut node_sync, &mut world, &["10.0.0.2/8"]), Ok(true));
    unavailable(&mut world, "kv.put");
    assert_eq!(
        node_sync.resync(&mut world, state(&[(2, "me", ""), (3, "a", "")], &[])),
        Ok(())
    );
    assert_eq!(lines(&node_sync.all_nodes()), ["3 a [] []", "2 me [10.0.0.2/8] []"]);
    world.record.expect_metric("nodesync_publish_failures_total", 1.0);
    assert_eq!(
        world.record.messages(),
        [format!(
            "the addresses of this node are not stored; the next publish or resync tries again key={OWN_KEY} error=unavailable: down"
        )]
    );
    assert_eq!(publish(&mut node_sync, &mut world, &["10.0.0.2/8"]), Ok(true));
}

#[test]
fn nothing_published_is_not_an_empty_list_published() {
    let mut world = Simulation::default();
    let mut node_sync = synced(&mut world, &[(2, "me", "10.0.0.2/8")]);
    world.questions.take_calls();
    node_sync
        .resync(&mut world, state(&[(2, "me", "10.0.0.3/8")], &[]))
        .unwrap();
    assert!(world.questions.take_calls().is_empty());
    assert_eq!(publish(&mut node_sync, &mut world, &[]), Ok(true));
    assert_eq!(world.store[OWN_KEY], r#"{"id":2,"name":"me"}"#);
    assert_eq!(lines(&node_sync.all_nodes()), ["2 me [] []"]);
}

#[test]
fn a_wrong_address_leaves_what_was_published() {
    let mut world = Simulation::default();
    let mut node_sync = synced(&mut world, &[(2, "me", "")]);
    publish(&mut node_sync, &mut world, &["10.0.0.2/8"]).unwrap();
    let before = node_sync.snapshot();
    for wrong in ["10.0.0.3", "::ffff:10.0.0.3/8", "fd00::3/64", "10.0.0.3/08", ""] {
        let published = publish(&mut node_sync, &mut world, &["10.0.0.4/8", wrong, "x"]);
        assert_eq!(published, Err(Error::InvalidAddress(wrong.to_owned())));
    }
    let addresses = ["fd00::3/64".to_owned(), "10.0.0.3/8".to_owned()];
    let published = node_sync.publish_node_ips(&mut world, &addresses, IpVersion::Ipv6);
    assert_eq!(published, Err(Error::InvalidAddress("10.0.0.3/8".to_owned())));
    assert_eq!(node_sync.snapshot(), before);
}

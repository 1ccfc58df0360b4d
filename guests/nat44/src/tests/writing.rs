//! What the guest writes when: nothing that exists, nothing twice, in transactions that the database accepts.

use trueup_guest::bindings::trueup::etcd::kv::{Error, Operation};

use super::{CONFIG, PREFIX, dnat, event, id, instance, list, service, synced, with_port};
use crate::bindings::trueup::service::types::ContivService;
use crate::simulated::{Asked, Fault, Simulation};

fn web(backends: &str) -> ContivService {
    with_port(service("web", "10.96.0.1", ""), "http", 80, 0, backends)
}

fn unavailable() -> Error {
    Error::Unavailable("no leader".to_owned())
}

/// The keys of a commit, with a minus before those deleted.
fn keys(asked: &Asked) -> Vec<String> {
    let Asked::Commit(operations) = asked else {
        panic!("{asked:?}");
    };
    let key = |operation: &Operation| match operation {
        Operation::Put((key, _)) => key.strip_prefix(PREFIX).unwrap().to_owned(),
        Operation::Delete(key) => format!("-{}", key.strip_prefix(PREFIX).unwrap()),
    };
    operations.iter().map(key).collect()
}

fn asked_keys(world: &mut Simulation) -> Vec<Vec<String>> {
    world.take_asked().iter().map(keys).collect()
}

#[test]
fn before_a_resync_nothing_is_known_so_everything_is_written() {
    let (mut renderer, mut world) = (instance(CONFIG), Simulation::default());
    renderer.delete_service(&mut world, &id("web")).unwrap();
    renderer.add_service(&mut world, &web("")).unwrap();
    renderer.add_service(&mut world, &web("")).unwrap();
    renderer.delete_service(&mut world, &id("web")).unwrap();
    renderer.delete_service(&mut world, &id("web")).unwrap();
    renderer.update_local_frontend_ifs(&mut world, list("a")).unwrap();
    renderer.update_local_backend_ifs(&mut world, Vec::new()).unwrap();
    assert_eq!(
        asked_keys(&mut world),
        [
            vec!["-dnat44/default/web"],
            vec!["dnat44/default/web"],
            vec!["-dnat44/default/web"],
            vec!["-dnat44/default/web"],
            vec!["nat44-global"]
        ]
    );
    world.record.expect_metric("nat44_writes_total", 5.0);
}

#[test]
fn a_commit_whose_answer_was_lost_is_written_again_whatever_became_of_it() {
    for is_stored in [false, true] {
        let (mut renderer, mut world) = synced(CONFIG);
        let fault = Fault {
            call: "kv.commit",
            answer: Err(unavailable()),
            is_stored,
        };
        world.faults.push_back(fault.clone());
        let error = Err("unavailable: no leader".to_owned());
        assert_eq!(renderer.add_service(&mut world, &web("")), error);
        // The guest knows neither that it exists nor that it is gone.
        world.faults.push_back(fault);
        assert_eq!(renderer.delete_service(&mut world, &id("web")), error);
        renderer.add_service(&mut world, &web("10.1.1.3#80")).unwrap();
        assert_eq!(asked_keys(&mut world).len(), 3);
        assert!(dnat(&world, "web").contains("10.1.1.3"));
        renderer.delete_service(&mut world, &id("web")).unwrap();
        renderer.delete_service(&mut world, &id("web")).unwrap();
        assert_eq!(asked_keys(&mut world), [vec!["-dnat44/default/web"]]);
    }
}

#[test]
fn a_commit_that_answers_false_is_a_failure() {
    let (mut renderer, mut world) = synced(CONFIG);
    world.faults.push_back(Fault {
        call: "kv.commit",
        answer: Ok(false),
        is_stored: false,
    });
    let error = renderer.add_service(&mut world, &web("")).unwrap_err();
    assert_eq!(error, "unavailable: a commit without compares was not stored");
    renderer.add_service(&mut world, &web("")).unwrap();
    assert!(!dnat(&world, "web").is_empty());
}

#[test]
fn every_error_of_the_database_has_its_words() {
    for (error, words) in [
        (unavailable(), "unavailable: no leader"),
        (Error::AccessDenied("role".to_owned()), "access denied: role"),
        (Error::NotText("/k".to_owned()), "not text: /k"),
        (Error::TooManyOperations(64), "too many operations: 64"),
        (Error::Invalid("empty key".to_owned()), "invalid: empty key"),
    ] {
        let (mut renderer, mut world) = synced(CONFIG);
        world.fail("kv.list-prefix", error.clone());
        assert_eq!(renderer.resync(&mut world, event(Vec::new())), Err(words.to_owned()));
        world.fail("kv.commit", error);
        assert_eq!(renderer.add_service(&mut world, &web("")), Err(words.to_owned()));
    }
}

#[test]
fn of_several_transactions_the_first_stand_and_the_later_are_not_tried() {
    let (mut renderer, mut world) = synced(CONFIG);
    let services: Vec<ContivService> = (0..300)
        .map(|number| service(&format!("s{number:03}"), "", ""))
        .collect();
    world.fail("kv.list-prefix", unavailable());
    renderer.resync(&mut world, event(services.clone())).unwrap_err();
    world.faults.push_back(Fault {
        call: "kv.commit",
        answer: Ok(true),
        is_stored: true,
    });
    world.fail("kv.commit", unavailable());
    renderer.resync(&mut world, event(services.clone())).unwrap_err();
    // Identities and the global configuration already exist.
    assert_eq!(world.etcd.len(), 2 + 128);
    world.take_asked();
    // A change of one service does not write the others; a retry does.
    renderer.add_service(&mut world, &web("")).unwrap();
    assert_eq!(asked_keys(&mut world), [vec!["dnat44/default/web"]]);
    renderer.update_node_port_services(&mut world, &[], &services).unwrap();
    let lengths: Vec<usize> = asked_keys(&mut world).iter().map(Vec::len).collect();
    assert_eq!(lengths, [128, 44]);
    assert_eq!(world.etcd.len(), 2 + 300 + 1);
}

#[test]
fn a_transaction_holds_at_most_a_mebibyte() {
    let (mut renderer, mut world) = synced(CONFIG);
    let backends: Vec<String> = (0..6000)
        .map(|number| format!("10.2.{}.{}#80", number / 256, number % 256))
        .collect();
    let large = |name: &str| with_port(service(name, "10.96.0.1", ""), "http", 80, 0, &backends.join(" "));
    let services = ["a", "b", "c", "d"].map(large);
    renderer.update_node_port_services(&mut world, &[], &services).unwrap();
    let lengths: Vec<usize> = asked_keys(&mut world).iter().map(Vec::len).collect();
    assert_eq!(lengths, [2, 2]);
    let size = dnat(&world, "a").len();
    assert!((400_000..500_000).contains(&size), "{size}");
    // Larger than any transaction may be: the database must refuse it.
    let huge = with_port(large("huge"), "more", 81, 0, &backends.join(" "));
    let huge = with_port(huge, "most", 82, 0, &backends.join(" "));
    renderer
        .update_node_port_services(&mut world, &[], &[huge, service("small", "", "")])
        .unwrap();
    assert_eq!(
        asked_keys(&mut world),
        [vec!["dnat44/default/huge"], vec!["dnat44/default/small"]]
    );
}

#[test]
fn one_key_is_never_deleted_and_put_in_one_transaction() {
    let (mut renderer, mut world) = synced(CONFIG);
    let mut odd = service("b/c", "", "");
    odd.id.namespace = "a".to_owned();
    renderer.add_service(&mut world, &odd).unwrap();
    let old = std::mem::replace(&mut odd.id.namespace, "a/b".to_owned());
    odd.id.name = "c".to_owned();
    odd.cluster_ips = list("10.96.0.1");
    let odd = with_port(odd, "http", 80, 0, "10.1.1.3#80");
    world.take_asked();
    let mut old_id = id("b/c");
    old_id.namespace = old;
    renderer.update_service(&mut world, &old_id, &odd).unwrap();
    assert_eq!(asked_keys(&mut world), [vec!["dnat44/a/b/c"]]);
}

#[test]
fn what_is_told_is_kept_though_its_write_failed() {
    let (mut renderer, mut world) = synced(CONFIG);
    world.fail("kv.commit", unavailable());
    renderer.update_local_frontend_ifs(&mut world, list("a")).unwrap_err();
    renderer.update_local_backend_ifs(&mut world, list("b")).unwrap();
    let global = &world.etcd[&format!("{PREFIX}nat44-global")];
    assert!(
        global.contains(r#"[{"name":"a"},{"name":"b","is_inside":true}]"#),
        "{global}"
    );
    let node = with_port(service("node", "", ""), "http", 0, 30080, "10.1.1.3#80");
    world.fail("kv.commit", unavailable());
    renderer
        .update_node_port_services(&mut world, &list("192.0.2.1"), std::slice::from_ref(&node))
        .unwrap_err();
    renderer.add_service(&mut world, &node).unwrap();
    assert!(dnat(&world, "node").contains("192.0.2.1"));
    world.fail("kv.list-prefix", unavailable());
    let mut told = event(Vec::new());
    told.frontend_ifs = list("c");
    renderer.resync(&mut world, told).unwrap_err();
    renderer.update_local_backend_ifs(&mut world, list("b")).unwrap();
    let global = &world.etcd[&format!("{PREFIX}nat44-global")];
    assert!(
        global.contains(r#"[{"name":"c"},{"name":"b","is_inside":true}]"#),
        "{global}"
    );
}

#[test]
fn of_an_id_that_a_resync_gives_twice_the_last_counts() {
    let (mut renderer, mut world) = synced(CONFIG);
    renderer
        .resync(&mut world, event(vec![web("10.1.1.3#80"), web("10.1.1.4#80")]))
        .unwrap();
    assert!(dnat(&world, "web").contains("10.1.1.4"));
}

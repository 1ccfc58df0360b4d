//! What counts as existing, and the order of a plan.

use super::*;
use crate::bindings::trueup::lbaas::types::{Mode, Spec};
use crate::simulated::{backend, bind, built, desired, frontend, server, small};

fn plan(desired: &Desired, listed: Vec<Object>) -> Plan {
    check(&DESTROY, desired, listed).unwrap()
}

#[test]
fn a_plan_holds_only_what_has_its_parents_and_each_port_goes_on_by_itself() {
    let desired = desired(&["lb-1"], &[("https", 443, 30443), ("http", 80, 30080)], 2);
    assert_eq!(
        outline(&plan(&desired, Vec::new())),
        (vec!["http.web.ns.c1", "https.web.ns.c1"], vec![])
    );
    let there = vec![backend("b-1", "http.web.ns.c1", "lb-1")];
    let expected = [
        "https.web.ns.c1",
        "http.web.ns.c1",
        "node-0.http.web.ns.c1",
        "node-1.http.web.ns.c1",
    ];
    assert_eq!(outline(&plan(&desired, there)).0, expected);
}

#[test]
fn what_matches_nothing_is_destroyed_children_before_parents() {
    let mut listed = built().to_vec();
    listed.extend([
        backend("b-old", "old.web.ns.c1", "lb-1"),
        frontend("f-old", "old.web.ns.c1", "lb-1", "b-old"),
        bind("n-old", "v4.old.web.ns.c1", "f-old", "192.0.2.10", 8080),
        server("s-old2", "node-b.old.web.ns.c1", "b-old", "10.1.0.2", 30999),
        server("s-old1", "node-a.old.web.ns.c1", "b-old", "10.1.0.1", 30999),
    ]);
    let plan = plan(&small(), listed);
    assert_eq!(
        outline(&plan),
        (vec![], vec!["s-old1", "s-old2", "n-old", "f-old", "b-old"])
    );
}

/// What the plan destroys if one field of an own resource differs from the desired state.
#[track_caller]
fn replaced(at: usize, change: impl FnOnce(&mut Spec)) -> Vec<String> {
    let mut listed = built().to_vec();
    change(&mut listed[at].spec);
    plan(&small(), listed)
        .destroy
        .into_iter()
        .map(|object| object.identifier)
        .collect()
}

#[test]
fn every_field_that_is_compared_counts_and_takes_the_children_along() {
    type Change = fn(&mut Spec);
    let all = ["s-1", "n-1", "f-1", "b-1"].as_slice();
    macro_rules! change {
        ($kind:ident, $object:ident, $change:expr) => {
            |spec| match spec {
                Spec::$kind($object) => $change,
                other => panic!("{other:?}"),
            }
        };
    }
    let cases: [(usize, Change, &[&str]); 14] = [
        (0, change!(Backend, b, b.name.push('x')), all),
        (0, change!(Backend, b, b.mode = Mode::Http), all),
        (0, change!(Backend, b, b.health_check.clear()), all),
        (1, change!(Frontend, f, f.name.push('x')), &["n-1", "f-1"]),
        (1, change!(Frontend, f, f.mode = Mode::Http), &["n-1", "f-1"]),
        (1, change!(Frontend, f, f.default_backend.clear()), &["n-1", "f-1"]),
        (2, change!(Bind, b, b.name = "v6.http.web.ns.c1".to_owned()), &["n-1"]),
        (2, change!(Bind, b, b.address = "192.0.2.11".to_owned()), &["n-1"]),
        (2, change!(Bind, b, b.address = "nowhere".to_owned()), &["n-1"]),
        (2, change!(Bind, b, b.port = 81), &["n-1"]),
        (
            3,
            change!(Server, b, b.name = "node-9.http.web.ns.c1".to_owned()),
            &["s-1"],
        ),
        (3, change!(Server, b, b.ip = "10.1.0.2".to_owned()), &["s-1"]),
        (3, change!(Server, b, b.port = 1), &["s-1"]),
        (3, change!(Server, b, b.check = "disabled".to_owned()), &["s-1"]),
    ];
    for (index, (at, change, destroyed)) in cases.into_iter().enumerate() {
        assert_eq!(replaced(at, change), destroyed, "case {index}");
    }
}

/// One port and one server, with addresses in these spellings.
fn spelled(external_addresses: [&str; 2], server: &str) -> Desired {
    let mut desired = desired(&["lb-1"], &[("http", 80, 30080)], 1);
    desired.external_addresses = external_addresses.map(str::to_owned).into();
    desired.servers[0].address = server.to_owned();
    desired
}

#[test]
fn addresses_are_compared_as_addresses() {
    let desired = spelled(["2001:0DB8:0:0::0010", "::ffff:192.0.2.10"], "::ffff:10.1.0.1");
    let mut listed = built()[..3].to_vec();
    listed.extend([
        bind("n-2", "v6.http.web.ns.c1", "f-1", "2001:db8:0:0:0:0:0:10", 80),
        server("s-1", "node-0.http.web.ns.c1", "b-1", "::FFFF:10.1.0.1", 30080),
    ]);
    assert_eq!(outline(&plan(&desired, listed)), (vec![], vec![]));
}

#[test]
fn addresses_are_sent_in_one_spelling() {
    let desired = spelled(["::192.0.2.9", "::ffff:192.0.2.10"], "2001:DB8::0:1");
    let listed = built()[..2].to_vec();
    let sent: Vec<(String, String)> = (plan(&desired, listed).create.into_iter())
        .map(|spec| match spec {
            Spec::Bind(bind) => (bind.name, bind.address),
            Spec::Server(server) => (server.name, server.ip),
            Spec::Backend(_) | Spec::Frontend(_) => panic!("{spec:?}"),
        })
        .collect();
    let expected = [
        ("v4.http.web.ns.c1", "192.0.2.10"),
        ("v6.http.web.ns.c1", "::c000:209"),
        ("node-0.http.web.ns.c1", "2001:db8::1"),
    ];
    assert_eq!(
        sent,
        expected.map(|(name, address)| (name.to_owned(), address.to_owned()))
    );
}

#[test]
fn of_two_that_match_the_one_in_use_stays_then_the_smaller_identifier() {
    let mut listed = built().to_vec();
    listed.push(backend("a-0", "http.web.ns.c1", "lb-1"));
    listed.push(frontend("f-0", "http.web.ns.c1", "lb-1", "b-1"));
    listed.push(bind("n-2", "v4.http.web.ns.c1", "f-1", "192.0.2.10", 80));
    listed.push(server("s-0", "node-0.http.web.ns.c1", "b-1", "10.1.0.1", 30080));
    assert_eq!(
        outline(&plan(&small(), listed)),
        (vec![], vec!["s-1", "n-2", "f-0", "a-0"])
    );
    let unused = vec![
        backend("b-2", "http.web.ns.c1", "lb-1"),
        backend("b-10", "http.web.ns.c1", "lb-1"),
    ];
    assert_eq!(outline(&plan(&small(), unused)).1, ["b-2"]);
}

#[test]
fn a_port_is_added_and_removed_without_touching_the_others() {
    let mut world = Simulation::of(built());
    let mut both = small();
    both.ports.extend(desired(&[], &[("https", 443, 30443)], 0).ports);
    assert_eq!(reconcile(&mut world, &DESTROY, &both), done(4, 0, 4));
    assert_eq!(reconcile(&mut world, &DESTROY, &small()), done(0, 4, 2));
    assert_eq!(world.all(), built());
    nothing_to_do(&mut world, &DESTROY, &small());
}

#[test]
fn a_changed_field_is_destroyed_before_it_is_created() {
    let mut old = built();
    if let Spec::Server(server) = &mut old[3].spec {
        server.port = 31000;
    }
    let mut world = Simulation::of(old);
    assert_eq!(reconcile(&mut world, &DESTROY, &small()), done(1, 1, 3));
    let list = "list-tagged anxccm-svc-uid=u1";
    let expected = [
        "load-balancer lb-1",
        list,
        "destroy s-1",
        list,
        "create node-0.http.web.ns.c1",
        "get server-1",
        list,
    ];
    assert_eq!(world.transcript(), expected);
}

#[test]
fn only_tagged_resources_on_the_load_balancers_asked_for_are_seen() {
    let mut world = Simulation::of(built());
    world.add(backend("b-2", "http.web.ns.c1", "lb-1"), &["anxccm-svc-uid=u2"]);
    world.add(backend("b-3", "http.web.ns.c1", "lb-2"), &["anxccm-svc-uid=u1"]);
    world.add(backend("b-4", "http.web.ns.c1", "lb-1"), &["other"]);
    world.add(
        server("s-3", "node-0.http.web.ns.c1", "b-3", "10.1.0.1", 30080),
        &["anxccm-svc-uid=u1"],
    );
    world.add(server("s-4", "x", "b-4", "10.1.0.1", 1), &["anxccm-svc-uid=u1"]);
    nothing_to_do(&mut world, &DESTROY, &small());
    let mut gone = small();
    gone.ports.clear();
    assert_eq!(reconcile(&mut world, &DESTROY, &gone), done(0, 4, 2));
    assert_eq!(world.identifiers(), ["b-2", "b-3", "b-4", "s-3", "s-4"]);
}

#[test]
fn names_leave_an_empty_port_or_suffix_out() {
    let (mut without_port, mut without_suffix) = (small(), small());
    without_port.ports[0].name.clear();
    without_suffix.name_suffix.clear();
    for (desired, names) in [
        (
            without_port,
            ["web.ns.c1", "web.ns.c1", "v4.web.ns.c1", "node-0.web.ns.c1"],
        ),
        (without_suffix, ["http", "http", "v4.http", "node-0.http"]),
    ] {
        let mut world = Simulation::of([]);
        assert_eq!(reconcile(&mut world, &DESTROY, &desired), done(4, 0, 4));
        let all = world.all();
        let found: Vec<_> = all.iter().map(|object| crate::order::name(&object.spec)).collect();
        assert_eq!(found, names);
        nothing_to_do(&mut world, &DESTROY, &desired);
    }
}

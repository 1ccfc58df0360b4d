//! Several load balancers: handled side by side, and independently.

use super::*;
use crate::bindings::trueup::lbaas::api::Error as ApiError;
use crate::bindings::trueup::lbaas::types::State;
use crate::simulated::{backend, bind, built, frontend, in_state, server, small};

fn on(load_balancers: [&str; 2]) -> Desired {
    Desired {
        load_balancers: load_balancers.map(str::to_owned).to_vec(),
        ..small()
    }
}

/// `built` on lb-2: `b-1x` and so on.
fn built_on_second() -> [Object; 4] {
    [
        backend("b-1x", "http.web.ns.c1", "lb-2"),
        frontend("f-1x", "http.web.ns.c1", "lb-2", "b-1x"),
        bind("n-1x", "v4.http.web.ns.c1", "f-1x", "192.0.2.10", 80),
        server("s-1x", "node-0.http.web.ns.c1", "b-1x", "10.1.0.1", 30080),
    ]
}

#[test]
fn all_load_balancers_share_the_lists_of_one_round() {
    let mut world = Simulation::of([]);
    assert_eq!(reconcile(&mut world, &DESTROY, &on(["lb-2", "lb-1"])), done(8, 0, 4));
    let expected = [
        "load-balancer lb-2",
        "load-balancer lb-1",
        "list-tagged anxccm-svc-uid=u1",
        "create http.web.ns.c1 http.web.ns.c1",
        "get backend-1 backend-2",
        "list-tagged anxccm-svc-uid=u1",
        "create http.web.ns.c1 http.web.ns.c1 node-0.http.web.ns.c1 node-0.http.web.ns.c1",
        "get frontend-1 frontend-2 server-1 server-2",
        "list-tagged anxccm-svc-uid=u1",
        "create v4.http.web.ns.c1 v4.http.web.ns.c1",
        "get bind-1 bind-2",
        "list-tagged anxccm-svc-uid=u1",
    ];
    assert_eq!(world.transcript(), expected);
    let status = calls::status(&mut world, &on(["lb-2", "lb-1"])).unwrap();
    let status: Vec<_> = status
        .iter()
        .map(|entry| (entry.address.as_str(), entry.ports.as_slice()))
        .collect();
    assert_eq!(status, [("192.0.2.10", [80].as_slice())]);
}

#[test]
fn one_waits_for_progress_while_the_other_creates_in_the_same_looks() {
    let mut world = Simulation::of([]);
    for object in built_on_second() {
        let state = if object.identifier == "b-1x" {
            State::Ok
        } else {
            State::Pending
        };
        world.add_settling(in_state(state, object), 500);
    }
    assert_eq!(reconcile(&mut world, &DESTROY, &on(["lb-2", "lb-1"])), done(4, 0, 4));
    let transcript = world.transcript();
    // The second look covers only what was not ready.
    let expected = [
        "create http.web.ns.c1",
        "get backend-1 f-1x n-1x s-1x",
        "get f-1x n-1x s-1x",
    ];
    assert_eq!(transcript[3..6], expected);
    assert_eq!(world.sleeps, [1000]);
    nothing_to_do(&mut world, &DESTROY, &on(["lb-1", "lb-2"]));
}

#[test]
fn ones_reset_does_not_stop_the_other() {
    let failed = in_state(State::Failed, backend("b-1x", "http.web.ns.c1", "lb-2"));
    let mut world = Simulation::of([failed]);
    world.settle_ms = 100;
    let pending = refs([(Kind::Backend, "b-1x")]);
    assert_eq!(
        reconcile(&mut world, &RESET, &on(["lb-2", "lb-1"])),
        Err(Error::RecoveryPending(pending))
    );
    assert_eq!(
        world.identifiers(),
        ["b-1x", "backend-1", "frontend-1", "bind-1", "server-1"]
    );
    // The closed one is not listed again: one backend in the first list, then one of lb-1's in each.
    world
        .record
        .expect_metric("trueup_lbaas_retrieved_resources_total{type=\"backend\"}", 4.0);
}

#[test]
fn ones_failed_creation_does_not_stop_the_other() {
    let mut world = Simulation::of(built());
    let no = ApiError::Refused((422, "no".to_owned()));
    world.fault("create", Some("http.web.ns.c1"), no.clone(), Some(1));
    let mut changed = on(["lb-2", "lb-1"]);
    changed.servers[0].name = "node-new".to_owned();
    assert_eq!(reconcile(&mut world, &DESTROY, &changed), Err(Error::Api(no)));
    // lb-1 lost its old server and got the new one.
    assert_eq!(world.identifiers(), ["b-1", "f-1", "n-1", "server-1"]);
}

#[test]
fn all_errors_of_the_first_ones_case_are_joined_in_order() {
    let pending = |object| in_state(State::Pending, object);
    let mut listed = [built(), built_on_second()].concat();
    listed[0] = pending(listed[0].clone());
    listed[4] = pending(listed[4].clone());
    let mut world = Simulation::of(listed);
    let both = refs([(Kind::Backend, "b-1"), (Kind::Backend, "b-1x")]);
    for order in [["lb-2", "lb-1"], ["lb-1", "lb-2"]] {
        let answer = calls::reconcile_check(&mut world, &DESTROY, &on(order));
        assert_eq!(answer, Err(Error::Progressing(both.clone())));
        assert_eq!(
            reconcile(&mut world, &DESTROY, &on(order)),
            Err(Error::TimedOut(both.clone()))
        );
    }
}

#[test]
fn errors_of_two_kinds_the_first_load_balancer_given_answers() {
    let mut world = Simulation::of([built(), built_on_second()].concat());
    world.add(frontend("f-0", "old", "lb-1", "b-1"), &["anxccm-svc-uid=u1"]);
    world.add(bind("n-9", "mine", "f-0", "192.0.2.99", 80), &[]);
    world.add(
        in_state(State::Pending, built_on_second()[3].clone()),
        &["anxccm-svc-uid=u1"],
    );
    let late = Error::TimedOut(refs([(Kind::Server, "s-1x")]));
    assert_eq!(reconcile(&mut world, &DESTROY, &on(["lb-2", "lb-1"])), Err(late));
    // This call did not create it.
    assert!(
        !world.record.metrics.keys().any(|name| name.contains("create")),
        "{:?}",
        world.record.metrics
    );
    let stuck = Error::NotDestroyable(refs([(Kind::Frontend, "f-0")]));
    assert_eq!(reconcile(&mut world, &DESTROY, &on(["lb-1", "lb-2"])), Err(stuck));
}

#[test]
fn a_frontend_that_leads_to_the_other_load_balancers_backend_is_replaced() {
    let mut listed = [built(), built_on_second()].concat();
    listed[1] = frontend("f-1", "http.web.ns.c1", "lb-1", "b-1x");
    let mut world = Simulation::of(listed);
    assert_eq!(reconcile(&mut world, &DESTROY, &on(["lb-1", "lb-2"])), done(2, 2, 4));
    nothing_to_do(&mut world, &DESTROY, &on(["lb-1", "lb-2"]));
}

/// A failed resource is destroyed with what refers to it on its own load balancer (1.7). No plan contains a frontend of
/// the other load balancer while that one has failures to handle first.
#[test]
fn failures_that_block_each_other_are_reported_and_not_touched() {
    let world = |second: State| {
        Simulation::of([
            in_state(State::Failed, backend("b-1", "http.web.ns.c1", "lb-1")),
            in_state(second, backend("b-2", "http.web.ns.c1", "lb-2")),
            frontend("f-1", "http.web.ns.c1", "lb-1", "b-2"),
            frontend("f-2", "http.web.ns.c1", "lb-2", "b-1"),
        ])
    };
    let mut both = world(State::Failed);
    let stuck = Error::NotDestroyable(refs([(Kind::Backend, "b-1"), (Kind::Backend, "b-2")]));
    assert_eq!(reconcile(&mut both, &DESTROY, &on(["lb-1", "lb-2"])), Err(stuck));
    assert_eq!(both.all().len(), 4);
    // After the operator mends one of the two, the rest follows.
    let mut one = world(State::Ok);
    assert!(reconcile(&mut one, &DESTROY, &on(["lb-1", "lb-2"])).is_ok());
    assert_eq!(one.all().len(), 8);
}

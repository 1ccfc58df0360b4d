//! Failed, updating and pending resources.

use super::*;
use crate::bindings::trueup::lbaas::api::Error as ApiError;
use crate::bindings::trueup::lbaas::types::State;
use crate::simulated::{built, in_state, server, small};

/// `built` with some in other states, by their index.
fn built_in<const N: usize>(states: [(usize, State); N]) -> Vec<Object> {
    let mut objects = built().to_vec();
    for (at, state) in states {
        objects[at].state = state;
    }
    objects
}

fn check(settings: &Settings, listed: Vec<Object>) -> Result<Plan, Error> {
    super::check(settings, &small(), listed)
}

#[test]
fn destroy_takes_a_failed_parent_with_all_that_refers_to_it() {
    for (failed, destroyed) in [
        (0, ["s-1", "n-1", "f-1", "b-1"].as_slice()),
        (1, ["n-1", "f-1"].as_slice()),
        (2, ["n-1"].as_slice()),
        (3, ["s-1"].as_slice()),
    ] {
        // Their own states don't matter.
        let mut states = [(3, State::Updating), (2, State::Pending), (failed, State::Failed)];
        states.sort_by_key(|&(_, state)| state == State::Failed);
        let plan = check(&DESTROY, built_in(states)).unwrap();
        assert_eq!(outline(&plan), (vec![], destroyed.to_vec()));
    }
    let mut world = Simulation::of(built_in([(0, State::Failed)]));
    assert_eq!(reconcile(&mut world, &DESTROY, &small()), done(4, 4, 5));
    nothing_to_do(&mut world, &DESTROY, &small());
}

#[test]
fn destroy_plans_nothing_but_the_failed_while_something_failed() {
    let mut listed = built_in([(2, State::Failed)]);
    listed[3] = server("s-old", "old", "b-1", "10.1.0.9", 1);
    assert_eq!(
        outline(&check(&DESTROY, listed.clone()).unwrap()),
        (vec![], vec!["n-1"])
    );
    let mut world = Simulation::of(listed);
    assert_eq!(reconcile(&mut world, &DESTROY, &small()), done(2, 2, 4));
    assert_eq!(world.identifiers(), ["b-1", "f-1", "bind-1", "server-1"]);
}

#[test]
fn each_state_has_its_answer() {
    use State::{Failed, Pending, Updating};
    let backend = || refs([(Kind::Backend, "b-1")]);
    let both = || refs([(Kind::Backend, "b-1"), (Kind::Frontend, "f-1")]);
    let plan = || {
        Ok(Plan {
            create: vec![],
            destroy: vec![],
        })
    };
    for (settings, states, expected) in [
        (DESTROY, [(0, Updating), (1, State::Ok)], plan()),
        (
            DESTROY,
            [(0, Pending), (1, Updating)],
            Err(Error::Progressing(backend())),
        ),
        (RESET, [(0, Pending), (1, Pending)], Err(Error::Progressing(both()))),
        (
            RESET,
            [(0, Updating), (1, Pending)],
            Err(Error::RecoveryPending(backend())),
        ),
        (RESET, [(0, Failed), (1, Updating)], Err(Error::Failed(backend()))),
        (RESET, [(0, Failed), (1, Failed)], Err(Error::Failed(both()))),
    ] {
        assert_eq!(check(&settings, built_in(states)), expected, "{settings:?} {states:?}");
    }
}

#[test]
fn reset_applies_the_failed_again_and_the_call_ends_there() {
    let mut world = Simulation::of(built_in([(0, State::Failed), (1, State::Updating)]));
    world.settle_ms = 4000;
    let both = Error::RecoveryPending(refs([(Kind::Backend, "b-1"), (Kind::Frontend, "f-1")]));
    assert_eq!(reconcile(&mut world, &RESET, &small()), Err(both.clone()));
    assert_eq!(world.transcript()[2..], ["reset b-1"]);
    world
        .record
        .expect_metric("trueup_lbaas_reset_total{kind=\"backend\"}", 1.0);
    assert_eq!(reconcile(&mut world, &RESET, &small()), Err(both.clone()));
    assert_eq!(calls::reconcile_check(&mut world, &RESET, &small()), Err(both));
    assert!(!world.transcript().iter().any(|call| call.starts_with("reset")));
}

#[test]
fn a_failed_reset_is_the_answer_but_for_one_that_is_gone() {
    let failed = || Simulation::of(built_in([(0, State::Failed), (1, State::Failed)]));
    let mut world = failed();
    let odd = ApiError::Refused((500, "odd".to_owned()));
    world.fault("reset", Some("f-1"), odd.clone(), Some(1));
    assert_eq!(reconcile(&mut world, &RESET, &small()), Err(Error::Api(odd)));
    world
        .record
        .expect_metric("trueup_lbaas_reset_total{kind=\"backend\"}", 1.0);
    assert!(
        !world
            .record
            .metrics
            .contains_key("trueup_lbaas_reset_total{kind=\"frontend\"}")
    );

    let mut world = failed();
    world.fault("reset", Some("f-1"), ApiError::NotFound, Some(1));
    let both = refs([(Kind::Backend, "b-1"), (Kind::Frontend, "f-1")]);
    assert_eq!(
        reconcile(&mut world, &RESET, &small()),
        Err(Error::RecoveryPending(both))
    );

    let mut world = failed();
    world.fault("reset", Some("f-1"), ApiError::Unauthorized, Some(1));
    assert_eq!(
        reconcile(&mut world, &RESET, &small()),
        Err(Error::Api(ApiError::Unauthorized))
    );
    world
        .record
        .expect_metric("trueup_lbaas_reset_total{kind=\"backend\"}", 1.0);
}

#[test]
fn pending_resources_are_waited_for_and_then_the_next_round_goes_on() {
    let mut world = Simulation::of([]);
    world.settle_ms = 3000;
    let impatient = Desired {
        backoff_steps: 1,
        ..small()
    };
    let backend = refs([(Kind::Backend, "backend-1")]);
    assert_eq!(
        reconcile(&mut world, &DESTROY, &impatient),
        Err(Error::TimedOut(backend.clone()))
    );
    assert_eq!(world.sleeps, [0; 0]);
    world
        .record
        .expect_metric("trueup_lbaas_create_errors_total{kind=\"backend\"}", 1.0);
    assert_eq!(
        calls::reconcile_check(&mut world, &DESTROY, &small()),
        Err(Error::Progressing(backend))
    );
    let waits = world.record.observed["trueup_lbaas_create_resources_duration_seconds"].len();
    assert_eq!(reconcile(&mut world, &DESTROY, &small()), done(3, 0, 4));
    // Two waits included created resources, the first did not.
    assert_eq!(
        world.record.observed["trueup_lbaas_create_resources_duration_seconds"].len(),
        waits + 2
    );
}

#[test]
fn a_pending_resource_that_fails_or_goes_ends_the_call_in_that_look() {
    let mut listed = built_in([(3, State::Pending)]);
    listed.push(in_state(
        State::Pending,
        server("s-2", "node-0.http.web.ns.c1", "b-1", "10.1.0.1", 30080),
    ));
    let mut world = Simulation::of(listed);
    world.fault("get", Some("s-1"), ApiError::NotFound, Some(1));
    let gone = refs([(Kind::Server, "s-1")]);
    assert_eq!(reconcile(&mut world, &DESTROY, &small()), Err(Error::Failed(gone)));
    assert_eq!(world.transcript()[2..], ["get s-1 s-2"]);
}

#[test]
fn looks_come_at_once_and_then_after_growing_pauses() {
    let mut world = Simulation::of([]);
    world.settle_ms = 2500;
    let mut desired = Desired {
        backoff_steps: 3,
        ..small()
    };
    desired.external_addresses.clear();
    desired.servers.clear();
    assert_eq!(reconcile(&mut world, &DESTROY, &desired), done(2, 0, 3));
    assert_eq!(world.sleeps, [1000, 1500, 1000, 1500]);
    let desired = Desired {
        backoff_steps: 2,
        servers: vec![],
        ..small()
    };
    let bind = refs([(Kind::Bind, "bind-1")]);
    assert_eq!(reconcile(&mut world, &DESTROY, &desired), Err(Error::TimedOut(bind)));
    assert_eq!(world.sleeps[4..], [1000]);
}

#[test]
fn chance_makes_pauses_longer() {
    let mut world = Simulation::of([]);
    world.settle_ms = 1;
    world.random = 1 << 63;
    let settings = Settings {
        backoff_jitter_percent: 150,
        ..DESTROY
    };
    assert_eq!(reconcile(&mut world, &settings, &small()), done(4, 0, 4));
    assert_eq!(world.sleeps, [1750, 1750, 1750]);
}

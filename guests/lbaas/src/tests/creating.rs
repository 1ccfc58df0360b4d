//! From nothing to a deployed service, and what happens if a creation or a look at one fails.

use trueup_guest::Level;

use super::*;
use crate::bindings::trueup::lbaas::api::Error as ApiError;
use crate::simulated::{built, desired, small};

#[test]
fn a_new_service_takes_three_rounds_of_creations_and_one_empty_round() {
    let mut world = Simulation::of([]);
    assert_eq!(reconcile(&mut world, &DESTROY, &small()), done(4, 0, 4));
    let expected = [
        "load-balancer lb-1",
        "list-tagged anxccm-svc-uid=u1",
        "create http.web.ns.c1",
        "get backend-1",
        "list-tagged anxccm-svc-uid=u1",
        "create http.web.ns.c1 node-0.http.web.ns.c1",
        "get frontend-1 server-1",
        "list-tagged anxccm-svc-uid=u1",
        "create v4.http.web.ns.c1",
        "get bind-1",
        "list-tagged anxccm-svc-uid=u1",
    ];
    assert_eq!(world.transcript(), expected);
    // The guest built the same as `built`, but for the identifiers.
    let specs = |objects: &[Object]| -> Vec<_> { objects.iter().map(|object| object.spec.clone()).collect() };
    let renamed = |text: String| (text.replace("\"b-1\"", "\"backend-1\"")).replace("\"f-1\"", "\"frontend-1\"");
    assert_eq!(
        format!("{:?}", specs(&world.all())),
        renamed(format!("{:?}", specs(&built())))
    );
    nothing_to_do(&mut world, &DESTROY, &small());
}

#[test]
fn what_could_be_created_stays_and_the_first_error_is_the_answer() {
    let mut world = Simulation::of([]);
    let no = ApiError::Refused((422, "no".to_owned()));
    world.fault("create", Some("https.web.ns.c1"), no.clone(), Some(1));
    let desired = desired(&["lb-1"], &[("http", 80, 30080), ("https", 443, 30443)], 1);
    assert_eq!(reconcile(&mut world, &DESTROY, &desired), Err(Error::Api(no)));
    assert_eq!(world.identifiers(), ["backend-1"]);
    world
        .record
        .expect_metric("trueup_lbaas_created_total{kind=\"backend\"}", 1.0);
    world
        .record
        .expect_metric("trueup_lbaas_create_errors_total{kind=\"backend\"}", 1.0);
    assert_eq!(
        world.record.gauges["trueup_lbaas_resources_pending{operation=\"create\"}"],
        [2.0, 0.0]
    );
    assert!(
        !world
            .record
            .gauges
            .contains_key("trueup_lbaas_resources_pending{operation=\"destroy\"}")
    );
    let warned = "not created kind=backend name=https.web.ns.c1 error=refused with status 422: no".to_owned();
    assert!(
        world.record.lines.contains(&(Level::Warn, warned)),
        "{:?}",
        world.record.lines
    );
    let ended = "the call ends with an error call=reconcile service_uid=u1 error=refused with status 422: no";
    assert_eq!(world.record.lines.last(), Some(&(Level::Error, ended.to_owned())));
    assert_eq!(reconcile(&mut world, &DESTROY, &desired), done(9, 0, 4));
    nothing_to_do(&mut world, &DESTROY, &desired);
}

#[test]
fn a_rate_limit_ends_the_call_and_what_was_created_before_it_counts() {
    let desired = desired(&["lb-1"], &[("a", 1, 1), ("b", 2, 2), ("c", 3, 3)], 0);
    let mut world = Simulation::of([]);
    let limit = ApiError::RateLimited(Some(1500));
    world.fault("create", Some("b.web.ns.c1"), limit.clone(), Some(1));
    assert_eq!(
        reconcile(&mut world, &DESTROY, &desired),
        Err(Error::Api(limit.clone()))
    );
    assert_eq!(
        world.transcript().last().unwrap(),
        "create a.web.ns.c1 b.web.ns.c1 c.web.ns.c1"
    );
    world
        .record
        .expect_metric("trueup_lbaas_created_total{kind=\"backend\"}", 1.0);
    world
        .record
        .expect_metric("trueup_lbaas_create_errors_total{kind=\"backend\"}", 2.0);
    world.fault("get", None, limit.clone(), Some(1));
    assert_eq!(reconcile(&mut world, &DESTROY, &desired), Err(Error::Api(limit)));
    assert_eq!(
        world.record.observed["trueup_lbaas_create_resources_duration_seconds"],
        [0.0]
    );
}

#[test]
fn every_error_of_the_whole_call_ends_it_wherever_it_comes_from() {
    for error in [
        ApiError::RateLimited(None),
        ApiError::Unauthorized,
        ApiError::AccessDenied("not granted".to_owned()),
    ] {
        for call in ["load-balancer", "list-tagged", "create", "get", "destroy"] {
            let mut old = built();
            old[3].identifier = "s-old".to_owned();
            if let crate::bindings::trueup::lbaas::types::Spec::Server(server) = &mut old[3].spec {
                server.port = 1;
            }
            let mut world = Simulation::of(old);
            world.fault(call, None, error.clone(), Some(1));
            assert_eq!(
                reconcile(&mut world, &DESTROY, &small()),
                Err(Error::Api(error.clone())),
                "{call}"
            );
            assert!(
                world.transcript().last().unwrap().starts_with(call),
                "nothing is asked after {call}"
            );
            let pending = world.record.gauges.values().filter_map(|values| values.last());
            assert!(pending.copied().all(|value| value == 0.0), "{call}");
            assert_eq!(
                reconcile(&mut world, &DESTROY, &small()).map(|report| report.rounds > 0),
                Ok(true)
            );
        }
    }
}

#[test]
fn a_look_that_fails_after_a_creation_is_settled_by_the_next_round() {
    let mut world = Simulation::of([]);
    world.fault("get", None, ApiError::Refused((500, "odd".to_owned())), Some(1));
    assert_eq!(reconcile(&mut world, &DESTROY, &small()), done(4, 0, 4));
}

#[test]
fn what_fails_after_its_creation_is_destroyed_and_built_again() {
    let mut world = Simulation::of([]);
    world.failing = 1;
    assert_eq!(reconcile(&mut world, &DESTROY, &small()), done(5, 1, 6));
    nothing_to_do(&mut world, &DESTROY, &small());
}

#[test]
fn creating_and_failing_for_ever_is_bounded_by_the_rounds() {
    let mut world = Simulation::of([]);
    world.failing = u32::MAX;
    let settings = Settings {
        max_rounds: 4,
        ..DESTROY
    };
    let last = refs([(Kind::Backend, "backend-2")]);
    assert_eq!(reconcile(&mut world, &settings, &small()), Err(Error::TimedOut(last)));
    // Two creations, each destroyed again.
    assert_eq!(world.identifiers(), [""; 0]);
}

#[test]
fn the_rounds_are_bounded_and_the_last_ones_work_is_the_answer() {
    let mut world = Simulation::of([]);
    let settings = Settings {
        max_rounds: 2,
        ..DESTROY
    };
    let last = refs([(Kind::Frontend, "frontend-1"), (Kind::Server, "server-1")]);
    assert_eq!(reconcile(&mut world, &settings, &small()), Err(Error::TimedOut(last)));
    assert_eq!(reconcile(&mut world, &settings, &small()), done(1, 0, 2));
}

#[test]
fn metrics_count_by_kind_and_time_in_seconds() {
    let mut world = Simulation::of([]);
    world.settle_ms = 1500;
    let mut both = small();
    both.ports.extend(desired(&[], &[("https", 443, 30443)], 0).ports);
    assert_eq!(reconcile(&mut world, &DESTROY, &both), done(8, 0, 4));
    assert_eq!(reconcile(&mut world, &DESTROY, &small()), done(0, 4, 2));
    let metrics = world.record.metrics.iter();
    let metrics: Vec<String> = metrics.map(|(name, number)| format!("{name} {number}")).collect();
    let expected = [
        "trueup_lbaas_created_total{kind=\"backend\"} 2",
        "trueup_lbaas_created_total{kind=\"bind\"} 2",
        "trueup_lbaas_created_total{kind=\"frontend\"} 2",
        "trueup_lbaas_created_total{kind=\"server\"} 2",
        "trueup_lbaas_deleted_total{kind=\"backend\"} 1",
        "trueup_lbaas_deleted_total{kind=\"bind\"} 1",
        "trueup_lbaas_deleted_total{kind=\"frontend\"} 1",
        "trueup_lbaas_deleted_total{kind=\"server\"} 1",
        "trueup_lbaas_resources_pending{operation=\"create\"} 0",
        "trueup_lbaas_resources_pending{operation=\"destroy\"} 0",
        "trueup_lbaas_retrieved_resources_total{type=\"backend\"} 9",
        "trueup_lbaas_retrieved_resources_total{type=\"bind\"} 5",
        "trueup_lbaas_retrieved_resources_total{type=\"frontend\"} 7",
        "trueup_lbaas_retrieved_resources_total{type=\"server\"} 7",
    ];
    assert_eq!(metrics, expected);
    assert_eq!(
        world.record.gauges["trueup_lbaas_resources_pending{operation=\"create\"}"],
        [2.0, 0.0, 4.0, 0.0, 2.0, 0.0]
    );
    let destroying = &world.record.gauges["trueup_lbaas_resources_pending{operation=\"destroy\"}"];
    assert_eq!(destroying, &[4.0, 3.0, 2.0, 1.0, 0.0, 0.0]);
    assert_eq!(
        world.record.observed["trueup_lbaas_total_duration_seconds"],
        [2.5, 2.5, 2.5, 0.0, 0.0, 0.0]
    );
    assert_eq!(
        world.record.observed["trueup_lbaas_create_resources_duration_seconds"],
        [2.5, 2.5, 2.5]
    );
    let info = |(level, line): &(Level, String)| (*level == Level::Info).then(|| line.clone());
    let lines: Vec<String> = world.record.lines.iter().filter_map(info).take(4).collect();
    let expected = [
        "a round round=1 create=2 destroy=0",
        "a wait resources=2",
        "a round round=2 create=4 destroy=0",
        "a wait resources=4",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn bad_input_is_refused_before_anything_is_asked() {
    let mut world = Simulation::of([]);
    let mut bad = small();
    bad.backoff_steps = 0;
    let refused = Error::InvalidInput("backoff-steps: was 0, must be at least 1".to_owned());
    assert_eq!(reconcile(&mut world, &DESTROY, &bad), Err(refused.clone()));
    assert_eq!(calls::reconcile_check(&mut world, &DESTROY, &bad), Err(refused.clone()));
    assert_eq!(calls::status(&mut world, &bad), Err(refused));
    assert_eq!(world.transcript(), [""; 0]);
}

#[test]
fn a_load_balancer_that_can_not_be_read_ends_the_call_before_the_list() {
    let mut world = Simulation::of([]);
    let mut desired = small();
    desired.load_balancers.push("lb-9".to_owned());
    assert_eq!(
        reconcile(&mut world, &DESTROY, &desired),
        Err(Error::Api(ApiError::NotFound))
    );
    assert_eq!(world.transcript(), ["load-balancer lb-1", "load-balancer lb-9"]);
    let down = ApiError::Unavailable("down".to_owned());
    world.fault("list-tagged", None, down.clone(), Some(1));
    assert_eq!(
        calls::reconcile_check(&mut world, &DESTROY, &small()),
        Err(Error::Api(down))
    );
}

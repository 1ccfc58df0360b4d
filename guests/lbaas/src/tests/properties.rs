//! Properties of any world: it converges, other owners' resources stay, and the plan follows the plain rules.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::bindings::trueup::lbaas::api::Error as ApiError;
use crate::bindings::trueup::lbaas::types::{Spec, State};
use crate::desired::DesiredState;
use crate::own::{Found, split};
use crate::simulated::{TAG, backend, bind, desired, frontend, in_state, server};
use crate::{input, order};

const PORTS: [(&str, u16, u16); 2] = [("http", 80, 30080), ("", 443, 30443)];

fn wanted() -> Desired {
    desired(&["lb-2", "lb-1"], &PORTS, 2)
}

/// Resources as a guest, a person, or an earlier version may have left them: mostly right, often duplicated.
fn leftovers() -> impl Strategy<Value = Vec<Object>> {
    let state = || {
        select(vec![
            State::Ok,
            State::Ok,
            State::Ok,
            State::Updating,
            State::Pending,
            State::Failed,
        ])
    };
    let name = || select(vec!["http.web.ns.c1", "web.ns.c1", "old"]);
    let load_balancer = || select(vec!["lb-1", "lb-2", "lb-9"]);
    let address = select(vec![
        "192.0.2.10",
        "::ffff:192.0.2.10",
        "2001:DB8::10",
        "2001:db8::11",
        "nowhere",
    ]);
    let ip = select(vec!["10.1.0.1", "10.1.0.2", "::ffff:10.1.0.2"]);
    let node = select(vec!["node-0.", "node-1.", ""]);
    let some = || any::<Index>();
    (
        prop::collection::vec((name(), load_balancer(), state()), 1..6),
        prop::collection::vec((name(), load_balancer(), some(), state()), 0..6),
        prop::collection::vec(
            (
                select(vec!["v4.", "v6."]),
                name(),
                some(),
                address,
                select(vec![80, 443]),
                state(),
            ),
            0..9,
        ),
        prop::collection::vec((node, name(), some(), ip, select(vec![30080, 30443]), state()), 0..9),
    )
        .prop_map(|(backends, frontends, binds, servers)| {
            let b = |at: &Index| format!("b{}", at.index(backends.len()));
            let f = |at: &Index| format!("f{}", at.index(frontends.len().max(1)));
            let mut objects = Vec::new();
            for (n, (name, lb, state)) in backends.iter().enumerate() {
                objects.push(in_state(*state, backend(&format!("b{n}"), name, lb)));
            }
            for (n, (name, lb, at, state)) in frontends.iter().enumerate() {
                objects.push(in_state(*state, frontend(&format!("f{n}"), name, lb, &b(at))));
            }
            for (n, (family, name, at, address, port, state)) in binds.iter().enumerate() {
                objects.push(in_state(
                    *state,
                    bind(&format!("n{n}"), &format!("{family}{name}"), &f(at), address, *port),
                ));
            }
            for (n, (node, name, at, ip, port, state)) in servers.iter().enumerate() {
                objects.push(in_state(
                    *state,
                    server(&format!("s{n}"), &format!("{node}{name}"), &b(at), ip, *port),
                ));
            }
            objects
        })
}

/// The same world without what the guest may not destroy: references from other load balancers into these, or from
/// these into others. It also removes mutual blocks of two load balancers: a failed resource that a frontend of the
/// other one refers to waits for that one, so references go in one direction only, from lb-2 to lb-1.
fn reachable(objects: Vec<Object>) -> Vec<Object> {
    let owner: BTreeMap<String, String> = objects
        .iter()
        .filter_map(|object| match &object.spec {
            Spec::Backend(backend) => Some((object.identifier.clone(), backend.load_balancer.clone())),
            Spec::Frontend(_) | Spec::Bind(_) | Spec::Server(_) => None,
        })
        .collect();
    let stays = |object: &Object| match &object.spec {
        Spec::Frontend(f) => match (f.load_balancer.as_str(), owner.get(&f.default_backend)) {
            (own, Some(other)) if own == other => true,
            (own, Some(other)) => own == "lb-2" && other == "lb-1",
            (_, None) => true,
        },
        _ => true,
    };
    objects.into_iter().filter(stays).collect()
}

/// The desired specs given the kept resources, compared one by one: the rules word for word, and quadratic.
fn by_the_rules<'a>(
    load_balancer: &str,
    desired: &DesiredState<'_>,
    own: &[Found<'a>],
) -> (Vec<Spec>, Vec<&'a Object>) {
    let objects: Vec<&Object> = own.iter().map(|found| found.object).collect();
    let same = |wanted: &Spec, found: &Spec| order::specs(wanted, found).is_eq();
    let refers = |child: &Object, parent: &Object| match (&child.spec, &parent.spec) {
        (Spec::Frontend(f), Spec::Backend(_)) => f.default_backend == parent.identifier,
        (Spec::Server(s), Spec::Backend(_)) => s.backend == parent.identifier,
        (Spec::Bind(b), Spec::Frontend(_)) => b.frontend == parent.identifier,
        _ => false,
    };
    let mut create = Vec::new();
    let mut kept: Vec<&Object> = Vec::new();
    let mut settle = |wanted: Spec| -> Option<String> {
        let uses = |parent: &Object| objects.iter().filter(|child| refers(child, parent)).count();
        let found = (objects.iter().filter(|object| same(&wanted, &object.spec)))
            .min_by_key(|object| (std::cmp::Reverse(uses(object)), object.identifier.clone()));
        match found {
            Some(found) => {
                kept.push(found);
                Some(found.identifier.clone())
            }
            None => {
                create.push(wanted);
                None
            }
        }
    };
    for port in &desired.ports {
        let Some(backend) = settle(Spec::Backend(port.backend(load_balancer))) else {
            continue;
        };
        for target in &desired.targets {
            settle(Spec::Server(port.server(&backend, target)));
        }
        let Some(frontend) = settle(Spec::Frontend(port.frontend(load_balancer, &backend))) else {
            continue;
        };
        for &address in &desired.addresses {
            settle(Spec::Bind(port.bind(&frontend, address)));
        }
    }
    let kept: Vec<ObjectRef> = kept.into_iter().map(order::reference).collect();
    let destroy = objects
        .into_iter()
        .filter(|object| !kept.contains(&order::reference(object)));
    (create, destroy.collect())
}

fn ascending(plan: &Plan) -> bool {
    plan.create
        .is_sorted_by(|left, right| order::specs(left, right).is_lt())
        && plan
            .destroy
            .is_sorted_by(|left, right| order::destruction(left, right).is_lt())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_plan_is_what_the_rules_say_word_for_word(objects in leftovers()) {
        let listed: Vec<Object> = objects.into_iter().map(|object| in_state(State::Ok, object)).collect();
        let input = wanted();
        let desired = input::parse(&input).unwrap();
        let owned = split(&desired.load_balancers, &listed);
        let (mut create, mut destroy) = (Vec::new(), Vec::new());
        for (load_balancer, own) in desired.load_balancers.iter().zip(&owned) {
            let (created, destroyed) = by_the_rules(load_balancer, &desired, own);
            create.extend(created);
            destroy.extend(destroyed.into_iter().cloned());
        }
        create.sort_by(order::specs);
        destroy.sort_by(order::destruction);
        let plan = check(&DESTROY, &input, listed.clone()).unwrap();
        prop_assert!(ascending(&plan));
        prop_assert_eq!(plan, Plan { create, destroy });
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(
        (listed, shuffled) in leftovers().prop_flat_map(|objects| (Just(objects.clone()), Just(objects).prop_shuffle())),
        ports in Just(wanted().ports).prop_shuffle(),
        servers in Just(wanted().servers).prop_shuffle(),
        external_addresses in Just(wanted().external_addresses).prop_shuffle(),
        reset: bool,
    ) {
        let settings = if reset { RESET } else { DESTROY };
        let expected = check(&settings, &wanted(), listed);
        let other = Desired { ports, servers, external_addresses, ..wanted() };
        prop_assert_eq!(check(&settings, &other, shuffled), expected);
    }

    #[test]
    fn any_world_converges_and_then_nothing_is_left_to_do(
        objects in leftovers().prop_map(reachable),
        settle_ms in 0..3000_u64,
        failing in 0..3_u32,
        reset: bool,
        faults in prop::collection::vec((
            select(vec!["create", "destroy", "get", "list-tagged", "reset", "load-balancer"]),
            select(vec![
                ApiError::NotFound,
                ApiError::RateLimited(Some(1)),
                ApiError::Refused((500, "odd".to_owned())),
                ApiError::Unavailable("down".to_owned()),
            ]),
        ), 0..4),
    ) {
        let settings = if reset { RESET } else { DESTROY };
        let mut world = Simulation::of([]);
        let foreign: Vec<Object> = {
            let others = split(&["lb-9"], &objects);
            others[0].iter().map(|found| found.object.clone()).collect()
        };
        for object in &objects {
            world.add_settling(object.clone(), settle_ms);
        }
        world.settle_ms = settle_ms;
        world.failing = failing;
        for (call, error) in faults {
            // The simulation need not recover from a list, or a get, with a wrong answer: errors only.
            world.fault(call, None, error, Some(1));
        }
        let desired = Desired { backoff_steps: 8, ..wanted() };
        let mut answers = Vec::new();
        // Each fault, and each failed object to reset, may cost a call.
        for _ in 0..20 {
            let answer = reconcile(&mut world, &settings, &desired);
            let ended = answer.is_ok();
            answers.push(answer);
            let pending = world.record.gauges.values().filter_map(|values| values.last());
            prop_assert!(pending.copied().all(|value| value == 0.0));
            if ended {
                break;
            }
            world.now_ms += settle_ms;
        }
        prop_assert!(answers.last().is_some_and(Result::is_ok), "{:?}", answers);
        world.faults.clear();
        nothing_to_do(&mut world, &settings, &desired);
        let plan = calls::reconcile_check(&mut world, &settings, &desired);
        prop_assert_eq!(plan, Ok(Plan { create: vec![], destroy: vec![] }));

        // Both load balancers hold exactly the desired state, and other owners' resources are unchanged.
        let all = world.all();
        for own in split(&["lb-1", "lb-2"], &all) {
            let of_kind = |kind| own.iter().filter(|found| order::kind(&found.object.spec) == kind).count();
            let kinds = [Kind::Backend, Kind::Frontend, Kind::Bind, Kind::Server];
            prop_assert_eq!(kinds.map(of_kind), [2, 2, 4, 4]);
        }
        let others = split(&["lb-9"], &all);
        let strip = |objects: Vec<Object>| -> Vec<Object> {
            objects.into_iter().map(|object| in_state(State::Ok, object)).collect()
        };
        prop_assert_eq!(strip(others[0].iter().map(|found| found.object.clone()).collect()), strip(foreign));
        prop_assert!(world.sleeps.iter().all(|&ms| ms > 0));
    }

    #[test]
    fn a_service_that_goes_takes_everything_tagged_along(objects in leftovers().prop_map(reachable)) {
        let ready: Vec<Object> = objects.into_iter().map(|object| in_state(State::Ok, object)).collect();
        let own: usize = split(&["lb-1", "lb-2"], &ready).iter().map(Vec::len).sum();
        let mut world = Simulation::of(ready);
        let gone = Desired { ports: vec![], servers: vec![], external_addresses: vec![], ..wanted() };
        let destroyed = u32::try_from(own).unwrap();
        let rounds = if own == 0 { 1 } else { 2 };
        prop_assert_eq!(reconcile(&mut world, &DESTROY, &gone), done(0, destroyed, rounds));
        prop_assert_eq!(split(&["lb-1", "lb-2"], &world.all()).iter().map(Vec::len).sum::<usize>(), 0);
        prop_assert_eq!(TAG, input::parse(&gone).unwrap().tag);
    }
}

#[test]
fn ten_thousand_servers_that_are_true_need_nothing() {
    let ports: Vec<(String, u16, u16)> = (0..100).map(|n| (format!("p{n}"), 1000 + n, 30000 + n)).collect();
    let ports: Vec<(&str, u16, u16)> = ports.iter().map(|(name, e, i)| (name.as_str(), *e, *i)).collect();
    let desired = desired(&["lb-1"], &ports, 100);
    let mut listed = Vec::new();
    let mut rounds = 0;
    loop {
        let plan = check(&DESTROY, &desired, listed.clone()).unwrap();
        assert!(ascending(&plan) && plan.destroy.is_empty());
        if plan.create.is_empty() {
            break;
        }
        rounds += 1;
        for spec in plan.create {
            let identifier = format!("{}-{}", order::word(order::kind(&spec)), listed.len());
            listed.push(Object {
                identifier,
                state: State::Ok,
                spec,
            });
        }
    }
    assert_eq!((rounds, listed.len()), (3, 100 + 100 + 200 + 10_000));
}

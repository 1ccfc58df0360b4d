//! The rules of the simulated Engine that guests can see, and the consistency of its indexes.

use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use serde_json::json;
use trueup_base::clock::VirtualClock;

use super::super::testing;
use super::*;
use crate::faults::Fault;

struct World {
    clock: Arc<VirtualClock>,
    faults: Arc<Faults>,
    engine: Simulated,
}

fn world(settle_ms: u64) -> World {
    let clock = Arc::new(VirtualClock::new(1_000));
    let faults = Arc::new(Faults::default());
    let engine = Simulated::new(clock.clone(), faults.clone(), settle_ms);
    engine.put_load_balancer("lb-1".into(), State::Ok);
    World { clock, faults, engine }
}

/// The simulation never waits, so one poll returns the answer.
fn done<T>(answer: impl Future<Output = T>) -> T {
    match std::pin::pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the simulated Engine waited"),
    }
}

fn backend(name: &str) -> Spec {
    testing::backend(name, "lb-1")
}

fn frontend(backend: &str) -> Spec {
    testing::frontend("f", "lb-1", backend)
}

fn bind(frontend: &str) -> Spec {
    testing::bind("n", frontend, "192.0.2.1")
}

fn server(backend: &str) -> Spec {
    testing::server("s", backend)
}

fn reference(kind: Kind, identifier: &str) -> ObjectRef {
    ObjectRef::new(kind, identifier)
}

fn create(engine: &Simulated, specs: &[Spec]) -> Vec<Result<String, Error>> {
    let answer = done(engine.create(specs, &["t".to_owned()]));
    answer
        .into_iter()
        .map(|entry| entry.map(|object| object.identifier))
        .collect()
}

fn states(engine: &Simulated) -> Vec<(String, State)> {
    engine
        .resources()
        .into_iter()
        .map(|resource| (resource.identifier, resource.state))
        .collect()
}

fn refused(status: u16, text: &str) -> Error {
    Error::Refused((status, text.to_owned()))
}

#[test]
fn identifiers_count_up_per_kind_skip_those_in_use_and_never_go_back() {
    let World { engine, .. } = world(0);
    let given = Resource {
        identifier: "backend-2".into(),
        state: State::Ok,
        tags: BTreeSet::new(),
        spec: frontend("gone"),
    };
    engine.put(given);
    let ids = create(&engine, &[backend("a"), backend("b"), frontend("backend-1")]);
    assert_eq!(
        ids,
        ["backend-1", "backend-3", "frontend-1"].map(|id| Ok(id.to_owned()))
    );
    assert_eq!(done(engine.destroy(&[reference(Kind::Backend, "backend-3")])), [Ok(())]);
    assert_eq!(create(&engine, &[backend("b")]), [Ok("backend-4".to_owned())]);
}

#[test]
fn what_is_applied_settles_with_the_clock_and_what_was_given_stays() {
    let World { clock, engine, .. } = world(500);
    engine.put(Resource {
        identifier: "g".into(),
        state: State::Failed,
        tags: BTreeSet::new(),
        spec: backend("g"),
    });
    engine.put(Resource {
        identifier: "h".into(),
        state: State::Pending,
        tags: BTreeSet::new(),
        spec: backend("h"),
    });
    let created = done(engine.create(&[backend("a")], &[]));
    assert_eq!(created[0].as_ref().map(|object| object.state), Ok(State::Pending));
    assert_eq!(done(engine.reset(&[reference(Kind::Backend, "g")])), [Ok(())]);
    let at = |g, a| {
        vec![
            ("backend-1".to_owned(), a),
            ("g".to_owned(), g),
            ("h".to_owned(), State::Pending),
        ]
    };
    clock.advance_ms(499);
    assert_eq!(states(&engine), at(State::Updating, State::Pending));
    clock.advance_ms(1);
    assert_eq!(states(&engine), at(State::Ok, State::Ok));
    let looked = done(engine.get(&[reference(Kind::Backend, "g"), reference(Kind::Server, "g")]));
    assert_eq!(
        looked
            .iter()
            .map(|entry| entry.clone().map(|o| o.state))
            .collect::<Vec<_>>(),
        [Ok(State::Ok), Err(Error::NotFound)]
    );
}

#[test]
fn without_settle_time_everything_is_ok_at_once() {
    let World { engine, .. } = world(0);
    engine.put(Resource {
        identifier: "g".into(),
        state: State::Failed,
        tags: BTreeSet::new(),
        spec: backend("g"),
    });
    create(&engine, &[backend("a")]);
    done(engine.reset(&[reference(Kind::Backend, "g")]));
    assert_eq!(
        states(&engine),
        [("backend-1".to_owned(), State::Ok), ("g".to_owned(), State::Ok)]
    );
}

#[test]
fn a_parent_must_exist_and_can_not_go_before_its_children() {
    let World { engine, .. } = world(0);
    let unknown = || Err(refused(422, "unknown reference"));
    assert_eq!(
        create(
            &engine,
            &[frontend("backend-1"), bind("frontend-1"), server("backend-1")]
        ),
        [unknown(), unknown(), unknown()]
    );
    assert_eq!(create(&engine, &[testing::frontend("f", "lb-9", "")]), [unknown()]);
    // In order: the first entries are the parents of the later ones.
    let ids = create(
        &engine,
        &[
            backend("a"),
            frontend("backend-1"),
            bind("frontend-1"),
            server("backend-1"),
            frontend(""),
        ],
    );
    assert!(ids.iter().all(Result::is_ok), "{ids:?}");
    let destroy = |kind, id: &str| done(engine.destroy(&[reference(kind, id)])).remove(0);
    let in_use = || Err(refused(409, "in use"));
    assert_eq!(destroy(Kind::Backend, "backend-1"), in_use());
    assert_eq!(destroy(Kind::Frontend, "frontend-1"), in_use());
    assert_eq!(destroy(Kind::Bind, "bind-1"), Ok(()));
    assert_eq!(destroy(Kind::Frontend, "frontend-1"), Ok(()));
    assert_eq!(destroy(Kind::Backend, "backend-1"), in_use());
    assert_eq!(destroy(Kind::Server, "server-1"), Ok(()));
    assert_eq!(destroy(Kind::Backend, "backend-1"), Ok(()));
    assert_eq!(destroy(Kind::Backend, "backend-1"), Err(Error::NotFound));
    assert_eq!(
        done(engine.reset(&[reference(Kind::Backend, "backend-1")])),
        [Err(Error::NotFound)]
    );
}

#[test]
fn lists_show_what_carries_the_tag_by_kind_then_identifier() {
    let World { engine, .. } = world(0);
    assert_eq!(
        create(&engine, &[backend("a"), backend("b"), frontend("backend-1")]).len(),
        3
    );
    engine.put(Resource {
        identifier: "a".into(),
        state: State::Ok,
        tags: ["u".into(), "t".into()].into(),
        spec: bind("x"),
    });
    let list = |tag| {
        done(engine.list_tagged(tag))
            .unwrap()
            .into_iter()
            .map(|o| o.identifier)
            .collect::<Vec<_>>()
    };
    assert_eq!(list("t"), ["backend-1", "backend-2", "frontend-1", "a"]);
    assert_eq!(list("u"), ["a"]);
    assert_eq!(list("v"), [""; 0]);
    assert_eq!(engine.resources()[3].tags, ["t".to_owned(), "u".to_owned()].into());
}

#[test]
fn load_balancers_are_known_or_not() {
    let World { engine, .. } = world(0);
    engine.put_load_balancer("lb-2".into(), State::Failed);
    assert_eq!(done(engine.load_balancer("lb-2")), Ok(State::Failed));
    assert_eq!(done(engine.load_balancer("lb-3")), Err(Error::NotFound));
}

#[test]
fn after_a_rate_limit_the_rest_of_a_list_has_no_effect() {
    let World { engine, faults, .. } = world(0);
    let limited = Error::RateLimited(Some(7));
    let matching = Some(json!({"Backend": {"name": "b"}}));
    let answer = json!({"Err": {"RateLimited": 7}});
    faults.add(Fault {
        call: "api.create".into(),
        answer,
        times: Some(1),
        matching,
    });
    let specs = [backend("a"), backend("b"), backend("c")];
    assert_eq!(
        create(&engine, &specs),
        [Ok("backend-1".to_owned()), Err(limited.clone()), Err(limited)]
    );
    assert_eq!(create(&engine, &specs).iter().filter(|entry| entry.is_ok()).count(), 3);
}

#[test]
fn a_fault_in_a_look_fails_only_the_entries_that_fit() {
    let World { engine, faults, .. } = world(0);
    create(&engine, &[backend("a"), backend("b")]);
    let matching = Some(json!({"identifier": "backend-1"}));
    faults.add(Fault {
        call: "api.get".into(),
        answer: json!({"Err": {"RateLimited": null}}),
        times: None,
        matching,
    });
    let refs = [
        reference(Kind::Backend, "backend-1"),
        reference(Kind::Backend, "backend-2"),
    ];
    let answer = done(engine.get(&refs));
    assert_eq!(answer[0], Err(Error::RateLimited(None)));
    assert!(answer[1].is_ok());
}

#[test]
fn whole_answers_take_the_place_of_the_simulation() {
    let World { engine, faults, .. } = world(0);
    let fault = |call: &str, answer| Fault {
        call: call.into(),
        answer,
        times: Some(1),
        matching: None,
    };
    faults.add(fault("api.create", json!([])));
    assert_eq!(create(&engine, &[backend("a")]), []);
    assert_eq!(create(&engine, &[backend("a")]), [Ok("backend-1".to_owned())]);
}

#[test]
fn filling_adds_what_is_new_and_tags_what_is_known() {
    let World { engine, .. } = world(0);
    create(&engine, &[backend("a")]);
    let listed = done(engine.list_tagged("t")).unwrap();
    engine.fill("u", &listed);
    let other = Object {
        identifier: "f-1".into(),
        state: State::Pending,
        spec: frontend("backend-1"),
    };
    engine.fill("u", &[other]);
    assert_eq!(done(engine.list_tagged("u")).unwrap().len(), 2);
    assert_eq!(engine.resources()[0].tags, ["t".to_owned(), "u".to_owned()].into());
    assert_eq!(
        done(engine.destroy(&[reference(Kind::Backend, "backend-1")])),
        [Err(refused(409, "in use"))]
    );
}

#[derive(Debug, Clone)]
enum Step {
    Create(usize, usize),
    Destroy(usize, usize),
    Put(usize, usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..ALL.len(), 0..6_usize).prop_map(|(kind, parent)| Step::Create(kind, parent)),
        2 => (0..ALL.len(), 0..6_usize).prop_map(|(kind, id)| Step::Destroy(kind, id)),
        1 => (0..ALL.len(), 0..6_usize, 0..6_usize).prop_map(|(kind, id, parent)| Step::Put(kind, id, parent)),
    ];
    proptest::collection::vec(step, 0..60)
}

const ALL: [Kind; 4] = Kind::ALL;

fn spec(kind: usize, parent: usize) -> Spec {
    match ALL[kind] {
        Kind::Backend => backend("b"),
        Kind::Frontend => frontend(&format!("backend-{parent}")),
        Kind::Bind => bind(&format!("frontend-{parent}")),
        Kind::Server => server(&format!("backend-{parent}")),
    }
}

proptest! {
    #[test]
    fn whatever_happens_the_indexes_say_what_the_objects_say(steps in steps()) {
        let World { engine, .. } = world(0);
        let mut created = BTreeSet::new();
        for step in steps {
            match step {
                Step::Create(kind, parent) => {
                    if let Ok(identifier) = create(&engine, &[spec(kind, parent)]).remove(0) {
                        prop_assert!(created.insert(identifier), "an identifier came twice");
                    }
                }
                Step::Destroy(kind, id) => {
                    let identifier = format!("{}-{id}", ALL[kind].name());
                    let _ = done(engine.destroy(&[reference(ALL[kind], &identifier)]));
                }
                Step::Put(kind, id, parent) => {
                    let identifier = format!("{}-{id}", ALL[kind].name());
                    engine.put(Resource { identifier, state: State::Ok, tags: ["u".into()].into(), spec: spec(kind, parent) });
                }
            }
            let store = engine.store.lock();
            let mut referrers = BTreeMap::<ObjectRef, usize>::new();
            let mut by_tag = BTreeMap::<String, BTreeSet<ObjectRef>>::new();
            for (key, stored) in &store.objects {
                if let Some(parent) = parent(&stored.resource.spec) {
                    *referrers.entry(parent).or_default() += 1;
                }
                for tag in &stored.resource.tags {
                    by_tag.entry(tag.clone()).or_default().insert(key.clone());
                }
            }
            prop_assert_eq!(&store.referrers, &referrers);
            prop_assert_eq!(&store.by_tag, &by_tag);
        }
    }
}

//! A plan reads the real Engine once and never writes to it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use trueup_base::clock::VirtualClock;

use super::*;
use crate::lbaas::{Kind, testing};

/// Holds the backends `b-1` to `b-3`: the first two tagged `one`, the last two tagged `two`. A write ends the test.
#[derive(Default)]
struct ReadOnly {
    asked: Mutex<Vec<String>>,
    /// The next read fails with this error.
    fails: Mutex<Option<Error>>,
}

impl ReadOnly {
    fn read<T>(&self, what: String, value: T) -> Result<T, Error> {
        self.asked.lock().unwrap().push(what);
        self.fails.lock().unwrap().take().map_or(Ok(value), Err)
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

fn object(n: u32) -> Object {
    Object {
        identifier: format!("b-{n}"),
        state: State::Failed,
        spec: testing::backend(&format!("backend {n}"), "lb-1"),
    }
}

/// In work at the Engine, as a host that has just created it leaves it.
fn unsettled() -> Object {
    Object {
        state: State::Pending,
        ..object(9)
    }
}

fn reference(n: u32) -> ObjectRef {
    ObjectRef::new(Kind::Backend, &format!("b-{n}"))
}

#[async_trait]
impl Api for ReadOnly {
    async fn load_balancer(&self, identifier: &str) -> Result<State, Error> {
        let known = if identifier == "lb-1" {
            Ok(State::Pending)
        } else {
            Err(Error::NotFound)
        };
        self.read(format!("load-balancer {identifier}"), known)?
    }

    async fn list_tagged(&self, tag: &str) -> Result<Vec<Object>, Error> {
        let listed = match tag {
            "one" => vec![object(1), object(2)],
            "two" => vec![object(2), object(3)],
            "new" => vec![unsettled()],
            _ => Vec::new(),
        };
        self.read(format!("list-tagged {tag}"), listed)
    }

    async fn get(&self, refs: &[ObjectRef]) -> Vec<Result<Object, Error>> {
        let names: Vec<&str> = refs.iter().map(|reference| reference.identifier.as_str()).collect();
        let asked = self.read(format!("get {}", names.join(" ")), ());
        let look = |reference: &ObjectRef| {
            asked.clone()?;
            (1..=3)
                .map(object)
                .find(|object| object.identifier == reference.identifier)
                .ok_or(Error::NotFound)
        };
        refs.iter().map(look).collect()
    }

    async fn create(&self, _: &[Spec], _: &[String]) -> Vec<Result<Object, Error>> {
        panic!("a plan created something")
    }

    async fn reset(&self, _: &[ObjectRef]) -> Vec<Result<(), Error>> {
        panic!("a plan reset something")
    }

    async fn destroy(&self, _: &[ObjectRef]) -> Vec<Result<(), Error>> {
        panic!("a plan destroyed something")
    }
}

fn planned() -> (Arc<ReadOnly>, Planned) {
    let real = Arc::new(ReadOnly::default());
    let api: Arc<dyn Api> = Arc::<ReadOnly>::clone(&real);
    (real, Planned::new(Reads::of(api), Arc::new(VirtualClock::new(0))))
}

async fn listed(planned: &Planned, tag: &str) -> Vec<String> {
    planned
        .list_tagged(tag)
        .await
        .unwrap()
        .into_iter()
        .map(|object| object.identifier)
        .collect()
}

#[tokio::test]
async fn what_the_engine_still_applies_counts_as_applied() {
    let (_, planned) = planned();
    let settled = Object {
        state: State::Ok,
        ..unsettled()
    };
    assert_eq!(planned.list_tagged("new").await.unwrap(), [settled]);
}

#[tokio::test]
async fn each_thing_is_read_once_and_shown_as_it_is() {
    let (real, planned) = planned();
    for _ in 0..3 {
        assert_eq!(planned.load_balancer("lb-1").await, Ok(State::Pending));
        assert_eq!(planned.list_tagged("one").await.unwrap(), [object(1), object(2)]);
        assert_eq!(
            planned.get(&[reference(3), reference(1)]).await,
            [Ok(object(3)), Ok(object(1))]
        );
        assert_eq!(listed(&planned, "none").await, [""; 0]);
    }
    assert_eq!(
        real.asked(),
        ["load-balancer lb-1", "list-tagged one", "get b-3", "list-tagged none"]
    );
}

#[tokio::test]
async fn writes_go_to_the_simulation_alone_and_are_seen_there() {
    let (real, planned) = planned();
    planned.load_balancer("lb-1").await.unwrap();
    assert_eq!(listed(&planned, "one").await, ["b-1", "b-2"]);
    assert_eq!(planned.reset(&[reference(1)]).await, [Ok(())]);
    assert_eq!(
        planned.get(&[reference(1)]).await[0].as_ref().unwrap().state,
        State::Ok,
        "applied at once"
    );
    assert_eq!(planned.destroy(&[reference(2)]).await, [Ok(())]);
    let created = planned.create(&[object(4).spec], &["one".to_owned()]).await;
    let created = created[0].as_ref().unwrap();
    assert_eq!(created.state, State::Ok, "settled at once");
    assert_eq!(listed(&planned, "one").await, ["b-1", created.identifier.as_str()]);
    assert_eq!(planned.get(&[created.reference()]).await, [Ok(created.clone())]);
    assert_eq!(planned.get(&[reference(2)]).await, [Err(Error::NotFound)]);
    assert_eq!(
        real.asked(),
        ["load-balancer lb-1", "list-tagged one"],
        "what the plan made or destroyed cannot be read"
    );
    // The real list of another tag still holds what the plan destroyed.
    assert_eq!(listed(&planned, "two").await, ["b-3"]);
}

#[tokio::test]
async fn a_second_tag_is_added_to_what_is_known_already() {
    let (_real, planned) = planned();
    assert_eq!(listed(&planned, "one").await, ["b-1", "b-2"]);
    assert_eq!(listed(&planned, "two").await, ["b-2", "b-3"]);
}

#[tokio::test]
async fn what_was_got_by_its_identifier_is_in_the_lists_of_its_tags() {
    let (_real, planned) = planned();
    assert_eq!(planned.get(&[reference(1)]).await, [Ok(object(1))]);
    assert_eq!(listed(&planned, "one").await, ["b-1", "b-2"]);
}

#[tokio::test]
async fn a_read_that_failed_is_tried_again() {
    let (real, planned) = planned();
    let fail = || *real.fails.lock().unwrap() = Some(Error::Unavailable("down".into()));
    let down = || Error::Unavailable("down".into());
    fail();
    assert_eq!(planned.load_balancer("lb-1").await, Err(down()));
    assert_eq!(planned.load_balancer("lb-1").await, Ok(State::Pending));
    fail();
    assert_eq!(planned.list_tagged("one").await, Err(down()));
    assert_eq!(listed(&planned, "one").await, ["b-1", "b-2"]);
    fail();
    assert_eq!(
        planned.get(&[reference(1), reference(3)]).await,
        [Err(down()), Err(down())]
    );
    assert_eq!(
        planned.get(&[reference(1), reference(3)]).await,
        [Ok(object(1)), Ok(object(3))]
    );
    assert_eq!(planned.load_balancer("lb-9").await, Err(Error::NotFound));
}

//! A simulated Engine that records requests, and the tests' fixtures.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use trueup_base::clock::VirtualClock;

use crate::faults::Faults;
use crate::lbaas::simulated::{Resource, Simulated};
use crate::lbaas::testing::{backend, bind, frontend, server};
use crate::lbaas::{Api, Error, Kind, Object, ObjectRef, Spec, State};

/// A simulated Engine that records requests.
pub(crate) struct Engine {
    simulated: Simulated,
    asked: Mutex<Vec<String>>,
}

impl Engine {
    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    /// The requests since the last call.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

pub(crate) fn names(refs: &[ObjectRef]) -> String {
    refs.iter()
        .map(|reference| reference.identifier.as_str())
        .collect::<Vec<_>>()
        .join(" ")
}

#[async_trait]
impl Api for Engine {
    async fn load_balancer(&self, identifier: &str) -> Result<State, Error> {
        self.note(format!("load-balancer {identifier}"));
        self.simulated.load_balancer(identifier).await
    }

    async fn list_tagged(&self, tag: &str) -> Result<Vec<Object>, Error> {
        self.note(format!("list-tagged {tag}"));
        self.simulated.list_tagged(tag).await
    }

    async fn get(&self, refs: &[ObjectRef]) -> Vec<Result<Object, Error>> {
        self.note(format!("get {}", names(refs)));
        self.simulated.get(refs).await
    }

    async fn create(&self, specs: &[Spec], tags: &[String]) -> Vec<Result<Object, Error>> {
        self.note(format!(
            "create {}",
            specs.iter().map(Spec::name).collect::<Vec<_>>().join(" ")
        ));
        self.simulated.create(specs, tags).await
    }

    async fn reset(&self, refs: &[ObjectRef]) -> Vec<Result<(), Error>> {
        self.note(format!("reset {}", names(refs)));
        self.simulated.reset(refs).await
    }

    async fn destroy(&self, refs: &[ObjectRef]) -> Vec<Result<(), Error>> {
        self.note(format!("destroy {}", names(refs)));
        self.simulated.destroy(refs).await
    }
}

fn reference(identifier: &str) -> ObjectRef {
    let kind = match identifier.as_bytes()[0] {
        b'b' => Kind::Backend,
        b'f' => Kind::Frontend,
        b'n' => Kind::Bind,
        _ => Kind::Server,
    };
    ObjectRef::new(kind, identifier)
}

pub(crate) fn refs(identifiers: &[&str]) -> Vec<ObjectRef> {
    identifiers.iter().map(|identifier| reference(identifier)).collect()
}

/// On each of `lb-1` and `lb-2` one of each kind (`b1`, `f1`, `n1` and `s1` on the first), all tagged `t`.
pub(crate) fn engine() -> Arc<Engine> {
    let simulated = Simulated::new(Arc::new(VirtualClock::new(0)), Arc::new(Faults::default()), 0);
    for n in ["1", "2"] {
        let load_balancer = format!("lb-{n}");
        simulated.put_load_balancer(load_balancer.clone(), State::Ok);
        let [b, f, bi, s] = ["b", "f", "n", "s"].map(|kind| format!("{kind}{n}"));
        let specs = [
            (b.clone(), backend(&b, &load_balancer)),
            (f.clone(), frontend(&f, &load_balancer, &b)),
            (bi.clone(), bind(&bi, &f, "192.0.2.1")),
            (s.clone(), server(&s, &b)),
        ];
        for (identifier, spec) in specs {
            simulated.put(Resource {
                identifier,
                state: State::Ok,
                tags: ["t".into()].into(),
                spec,
            });
        }
    }
    Arc::new(Engine {
        simulated,
        asked: Mutex::default(),
    })
}

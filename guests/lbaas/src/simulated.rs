//! The API in memory, with a virtual clock, faults and a transcript, for native tests.
//!
//! Behaves like the simulated LBaaS API of scenario files: identifiers `KIND-N`, settling, conflicts, unknown
//! references.

use std::collections::{BTreeMap, BTreeSet};

use trueup_guest::Clock;
use trueup_guest::testing::{Simulated, Transcript};

use crate::bindings::exports::trueup::lbaas::reconciliation::{Desired, Port, Target};
use crate::bindings::trueup::lbaas::api::Error as ApiError;
use crate::bindings::trueup::lbaas::types::{
    Backend, Bind, Frontend, Kind, Mode, Object, ObjectRef, Server, Spec, State,
};
use crate::desired::{CHECK, HEALTH_CHECK};
use crate::order;
use crate::world::World;

/// The tag of the service that [`desired`] wants.
pub(crate) const TAG: &str = "anxccm-svc-uid=u1";

/// Two addresses, ports as (name, external, internal), servers `node-0` and so on.
pub(crate) fn desired(load_balancers: &[&str], ports: &[(&str, u16, u16)], servers: usize) -> Desired {
    let port = |&(name, external, internal): &(&str, u16, u16)| Port {
        name: name.to_owned(),
        external,
        internal,
    };
    let server = |n: usize| Target {
        name: format!("node-{n}"),
        address: format!("10.1.{}.{}", n / 250, n % 250 + 1),
    };
    Desired {
        load_balancers: load_balancers.iter().map(|&identifier| identifier.to_owned()).collect(),
        name_suffix: "web.ns.c1".to_owned(),
        service_uid: "u1".to_owned(),
        external_addresses: vec!["192.0.2.10".to_owned(), "2001:db8::10".to_owned()],
        ports: ports.iter().map(port).collect(),
        servers: (0..servers).map(server).collect(),
        backoff_steps: 5,
    }
}

fn object(identifier: &str, spec: Spec) -> Object {
    Object {
        identifier: identifier.to_owned(),
        state: State::Ok,
        spec,
    }
}

/// A backend as the guest builds them.
pub(crate) fn backend(identifier: &str, name: &str, load_balancer: &str) -> Object {
    let (name, load_balancer) = (name.to_owned(), load_balancer.to_owned());
    let health_check = HEALTH_CHECK.to_owned();
    object(
        identifier,
        Spec::Backend(Backend {
            name,
            load_balancer,
            mode: Mode::Tcp,
            health_check,
        }),
    )
}

/// A frontend as the guest builds them.
pub(crate) fn frontend(identifier: &str, name: &str, load_balancer: &str, default_backend: &str) -> Object {
    let (name, load_balancer) = (name.to_owned(), load_balancer.to_owned());
    let default_backend = default_backend.to_owned();
    object(
        identifier,
        Spec::Frontend(Frontend {
            name,
            load_balancer,
            mode: Mode::Tcp,
            default_backend,
        }),
    )
}

/// A bind as the guest builds them.
pub(crate) fn bind(identifier: &str, name: &str, frontend: &str, address: &str, port: u16) -> Object {
    let (name, frontend, address) = (name.to_owned(), frontend.to_owned(), address.to_owned());
    object(
        identifier,
        Spec::Bind(Bind {
            name,
            frontend,
            address,
            port,
        }),
    )
}

/// A server as the guest builds them.
pub(crate) fn server(identifier: &str, name: &str, backend: &str, ip: &str, port: u16) -> Object {
    let (name, backend, ip, check) = (name.to_owned(), backend.to_owned(), ip.to_owned(), CHECK.to_owned());
    object(
        identifier,
        Spec::Server(Server {
            name,
            backend,
            ip,
            port,
            check,
        }),
    )
}

/// The same object in another state.
pub(crate) fn in_state(state: State, object: Object) -> Object {
    Object { state, ..object }
}

/// One port `http`, one address, one node, all of it built: `b-1`, `f-1`, `n-1`, `s-1`.
pub(crate) fn built() -> [Object; 4] {
    [
        backend("b-1", "http.web.ns.c1", "lb-1"),
        frontend("f-1", "http.web.ns.c1", "lb-1", "b-1"),
        bind("n-1", "v4.http.web.ns.c1", "f-1", "192.0.2.10", 80),
        server("s-1", "node-0.http.web.ns.c1", "b-1", "10.1.0.1", 30080),
    ]
}

/// The `desired` that [`built`] fulfils.
pub(crate) fn small() -> Desired {
    let mut desired = desired(&["lb-1"], &[("http", 80, 30080)], 1);
    desired.external_addresses.truncate(1);
    desired
}

/// Makes entries of one import fail.
pub(crate) struct Fault {
    /// `create`, `destroy`, ...
    pub(crate) call: &'static str,
    /// the identifier, tag or name of the entries that fail; `None` means all entries
    pub(crate) of: Option<&'static str>,
    pub(crate) error: ApiError,
    /// for how many calls; `None` means for ever
    pub(crate) times: Option<u32>,
}

struct Stored {
    object: Object,
    tags: Vec<String>,
    /// when, and into which state; `None` if its state stays
    settles: Option<(u64, State)>,
}

#[derive(Default)]
pub(crate) struct Simulation {
    objects: BTreeMap<ObjectRef, Stored>,
    numbers: BTreeMap<Kind, u32>,
    pub(crate) load_balancers: BTreeSet<String>,
    pub(crate) settle_ms: u64,
    /// how many of the objects created next settle as failed
    pub(crate) failing: u32,
    pub(crate) faults: Vec<Fault>,
    pub(crate) now_ms: u64,
    pub(crate) random: u64,
    /// every API call, in words
    pub(crate) calls: Vec<String>,
    pub(crate) sleeps: Vec<u64>,
    pub(crate) record: Transcript,
}

impl Simulation {
    /// Load balancers `lb-1` and `lb-2`, and these objects with the service's tag.
    pub(crate) fn of(objects: impl IntoIterator<Item = Object>) -> Self {
        let load_balancers = BTreeSet::from(["lb-1".to_owned(), "lb-2".to_owned()]);
        let mut simulation = Self {
            load_balancers,
            ..Self::default()
        };
        for object in objects {
            simulation.add(object, &[TAG]);
        }
        simulation
    }

    pub(crate) fn add(&mut self, object: Object, tags: &[&str]) {
        let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        self.objects.insert(
            order::reference(&object),
            Stored {
                object,
                tags,
                settles: None,
            },
        );
    }

    /// Like [`add`](Self::add); a pending or updating object settles at that time.
    pub(crate) fn add_settling(&mut self, object: Object, at_ms: u64) {
        let settles = matches!(object.state, State::Pending | State::Updating).then_some((at_ms, State::Ok));
        self.objects.insert(
            order::reference(&object),
            Stored {
                object,
                tags: vec![TAG.to_owned()],
                settles,
            },
        );
    }

    pub(crate) fn fault(&mut self, call: &'static str, of: Option<&'static str>, error: ApiError, times: Option<u32>) {
        self.faults.push(Fault { call, of, error, times });
    }

    /// All objects, whatever their tag.
    pub(crate) fn all(&mut self) -> Vec<Object> {
        self.settle();
        self.objects.values().map(|stored| stored.object.clone()).collect()
    }

    pub(crate) fn identifiers(&self) -> Vec<&str> {
        self.objects
            .keys()
            .map(|reference| reference.identifier.as_str())
            .collect()
    }

    /// The questions since the last call.
    pub(crate) fn transcript(&mut self) -> Vec<String> {
        std::mem::take(&mut self.calls)
    }

    fn settle(&mut self) {
        for stored in self.objects.values_mut() {
            if let Some((at_ms, state)) = stored.settles
                && at_ms <= self.now_ms
            {
                stored.object.state = state;
                stored.settles = None;
            }
        }
    }

    /// Records the call, and returns the error of each entry that a fault matches.
    fn enter(&mut self, call: &'static str, entries: &[String]) -> Vec<Option<ApiError>> {
        self.settle();
        self.calls.push([&[call.to_owned()], entries].concat().join(" "));
        let mut errors = vec![None; entries.len()];
        for fault in self
            .faults
            .iter_mut()
            .filter(|fault| fault.call == call && fault.times != Some(0))
        {
            let mut met = false;
            for (entry, error) in entries.iter().zip(&mut errors) {
                if error.is_none() && fault.of.is_none_or(|of| of == entry) {
                    *error = Some(fault.error.clone());
                    met = true;
                }
            }
            if met {
                fault.times = fault.times.map(|times| times - 1);
            }
        }
        errors
    }

    /// Handles entries in order; after a rate limit the remaining entries get the same answer.
    fn each<A, T>(
        &mut self,
        errors: Vec<Option<ApiError>>,
        entries: &[A],
        mut act: impl FnMut(&mut Self, &A) -> Result<T, ApiError>,
    ) -> Vec<Result<T, ApiError>> {
        let mut limited = None;
        let mut answers = Vec::new();
        for (entry, error) in entries.iter().zip(errors) {
            let answer = match limited.clone().or(error) {
                Some(error) => Err(error),
                None => act(self, entry),
            };
            if let Err(ApiError::RateLimited(ms)) = &answer {
                limited = Some(ApiError::RateLimited(*ms));
            }
            answers.push(answer);
        }
        answers
    }

    fn exists(&self, kind: Kind, identifier: &str) -> bool {
        self.objects.contains_key(&ObjectRef {
            kind,
            identifier: identifier.to_owned(),
        })
    }

    fn create_one(&mut self, spec: &Spec, tags: &[String]) -> Result<Object, ApiError> {
        let known = match spec {
            Spec::Backend(backend) => self.load_balancers.contains(&backend.load_balancer),
            Spec::Frontend(frontend) => {
                self.load_balancers.contains(&frontend.load_balancer)
                    && self.exists(Kind::Backend, &frontend.default_backend)
            }
            Spec::Bind(bind) => self.exists(Kind::Frontend, &bind.frontend),
            Spec::Server(server) => self.exists(Kind::Backend, &server.backend),
        };
        if !known {
            return Err(ApiError::Refused((422, "unknown reference".to_owned())));
        }
        let kind = order::kind(spec);
        let identifier = loop {
            let number = self.numbers.entry(kind).or_default();
            *number += 1;
            let identifier = format!("{}-{number}", order::word(kind));
            if !self.exists(kind, &identifier) {
                break identifier;
            }
        };
        let fails = self.failing > 0;
        self.failing = self.failing.saturating_sub(1);
        let settled = if fails { State::Failed } else { State::Ok };
        let object = Object {
            identifier,
            state: State::Pending,
            spec: spec.clone(),
        };
        let settles = Some((self.now_ms + self.settle_ms, settled));
        let reference = order::reference(&object);
        self.objects.insert(
            reference.clone(),
            Stored {
                object,
                tags: tags.to_vec(),
                settles,
            },
        );
        self.settle();
        Ok(self.objects[&reference].object.clone())
    }

    fn destroy_one(&mut self, reference: &ObjectRef) -> Result<(), ApiError> {
        if !self.objects.contains_key(reference) {
            return Err(ApiError::NotFound);
        }
        let refers = |stored: &Stored| match &stored.object.spec {
            Spec::Backend(_) => false,
            Spec::Frontend(f) => reference.kind == Kind::Backend && f.default_backend == reference.identifier,
            Spec::Bind(b) => reference.kind == Kind::Frontend && b.frontend == reference.identifier,
            Spec::Server(s) => reference.kind == Kind::Backend && s.backend == reference.identifier,
        };
        if self.objects.values().any(refers) {
            return Err(ApiError::Refused((409, "in use".to_owned())));
        }
        self.objects.remove(reference);
        Ok(())
    }

    fn reset_one(&mut self, reference: &ObjectRef) -> Result<(), ApiError> {
        let settles = Some((self.now_ms + self.settle_ms, State::Ok));
        let stored = self.objects.get_mut(reference).ok_or(ApiError::NotFound)?;
        stored.object.state = State::Updating;
        stored.settles = settles;
        Ok(())
    }
}

fn identifiers_of(refs: &[ObjectRef]) -> Vec<String> {
    refs.iter().map(|reference| reference.identifier.clone()).collect()
}

impl World for Simulation {
    fn load_balancer(&mut self, identifier: &str) -> Result<State, ApiError> {
        let errors = self.enter("load-balancer", &[identifier.to_owned()]);
        let act = |world: &mut Self, identifier: &&str| {
            world
                .load_balancers
                .contains(*identifier)
                .then_some(State::Ok)
                .ok_or(ApiError::NotFound)
        };
        self.each(errors, &[identifier], act).remove(0)
    }

    fn list_tagged(&mut self, tag: &str) -> Result<Vec<Object>, ApiError> {
        let errors = self.enter("list-tagged", &[tag.to_owned()]);
        let act = |world: &mut Self, tag: &&str| {
            let tagged = world
                .objects
                .values()
                .filter(|stored| stored.tags.iter().any(|own| own == tag));
            Ok(tagged.map(|stored| stored.object.clone()).collect())
        };
        self.each(errors, &[tag], act).remove(0)
    }

    fn get(&mut self, refs: &[ObjectRef]) -> Vec<Result<Object, ApiError>> {
        let errors = self.enter("get", &identifiers_of(refs));
        self.each(errors, refs, |world, reference| {
            world
                .objects
                .get(reference)
                .map(|stored| stored.object.clone())
                .ok_or(ApiError::NotFound)
        })
    }

    fn create(&mut self, specs: &[Spec], tags: &[String]) -> Vec<Result<Object, ApiError>> {
        assert_eq!(tags, [TAG]);
        let names: Vec<String> = specs.iter().map(|spec| order::name(spec).to_owned()).collect();
        let errors = self.enter("create", &names);
        self.each(errors, specs, |world, spec| world.create_one(spec, tags))
    }

    fn reset(&mut self, refs: &[ObjectRef]) -> Vec<Result<(), ApiError>> {
        let errors = self.enter("reset", &identifiers_of(refs));
        self.each(errors, refs, |world, reference| world.reset_one(reference))
    }

    fn destroy(&mut self, refs: &[ObjectRef]) -> Vec<Result<(), ApiError>> {
        let errors = self.enter("destroy", &identifiers_of(refs));
        self.each(errors, refs, |world, reference| world.destroy_one(reference))
    }

    fn sleep_ms(&mut self, duration_ms: u64) {
        self.sleeps.push(duration_ms);
        self.now_ms += duration_ms;
    }

    fn next_u64(&mut self) -> u64 {
        self.random
    }
}

impl Clock for Simulation {
    fn now_ms(&mut self) -> u64 {
        self.now_ms
    }
}

impl Simulated for Simulation {
    fn record(&mut self) -> &mut Transcript {
        &mut self.record
    }
}

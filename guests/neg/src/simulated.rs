//! The NEG API, the clock and timers in memory, with faults and a transcript: for native tests.
//!
//! An operation changes nothing until it ends; then it applies completely or not at all, by the rules of the simulated
//! Compute Engine: an endpoint can't be attached beside another form of it, and a missing one can't be detached.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trueup_guest::Clock;
use trueup_guest::testing::{Simulated, Transcript};

use crate::bindings::trueup::neg::api::{Error, NegRef};
use crate::bindings::trueup::neg::types::Endpoint;
use crate::operations::Kind;
use crate::world::World;

/// A NEG by zone and name.
pub(crate) type Name = (String, String);

/// An operation that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(crate) kind: Kind,
    pub(crate) name: Name,
    pub(crate) endpoints: Vec<Endpoint>,
}

/// The guest's world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Simulation {
    pub(crate) now_ms: u64,
    pub(crate) negs: BTreeMap<Name, BTreeSet<Endpoint>>,
    pub(crate) started: BTreeMap<u64, Started>,
    pub(crate) operation: u64,
    pub(crate) timer: u64,
    /// When each timer is due.
    pub(crate) timers: BTreeMap<u64, u64>,
    /// The next answer to a call is its first fault.
    pub(crate) faults: VecDeque<(&'static str, Error)>,
    /// Calls of the API as text: `attach z1 web-s1 10.0.0.1`.
    pub(crate) asked: Vec<String>,
    pub(crate) record: Transcript,
}

/// An endpoint in the notation of tests: its addresses joined by `+`, then `:port` and `@node` unless they are `80` and
/// `n1`.
pub(crate) fn short(endpoint: &Endpoint) -> String {
    let addresses = [&endpoint.ip, &endpoint.ipv6].map(String::as_str);
    let addresses: Vec<&str> = addresses.into_iter().filter(|text| !text.is_empty()).collect();
    let mut text = addresses.join("+");
    if endpoint.port != "80" {
        text += &format!("#{}", endpoint.port);
    }
    if endpoint.node != "n1" {
        text += &format!("@{}", endpoint.node);
    }
    text
}

impl Simulation {
    /// Makes the next call of this name fail.
    pub(crate) fn fail(&mut self, call: &'static str, error: Error) {
        self.faults.push_back((call, error));
    }

    /// The questions since the last call.
    pub(crate) fn take_asked(&mut self) -> Vec<String> {
        std::mem::take(&mut self.asked)
    }

    /// The timers due until then, in the order in which they fire; moves the clock to each.
    pub(crate) fn next_timer(&mut self, until_ms: u64) -> Option<u64> {
        let (&timer, &due_ms) = self.timers.iter().min_by_key(|&(&timer, &due_ms)| (due_ms, timer))?;
        if due_ms > until_ms {
            return None;
        }
        self.timers.remove(&timer);
        self.now_ms = self.now_ms.max(due_ms);
        Some(timer)
    }

    /// Forgets the timers, like the host for a new instance.
    pub(crate) fn restart(&mut self) {
        self.timers.clear();
        self.timer = 0;
    }

    /// Ends an operation; returns its failure, which may be the API's own.
    pub(crate) fn end(&mut self, operation: u64, failure: Option<&str>) -> Option<String> {
        let Started { kind, name, endpoints } = self.started.remove(&operation)?;
        if let Some(failure) = failure {
            return Some(failure.to_owned());
        }
        let Some(neg) = self.negs.get_mut(&name) else {
            return Some("404: no such NEG".to_owned());
        };
        match kind {
            Kind::Attach => {
                let clashes = |new: &Endpoint, old: &Endpoint| {
                    let shares = |new: &str, old: &str| !new.is_empty() && new == old;
                    let same_place = (&new.port, &new.node) == (&old.port, &old.node);
                    new != old && same_place && (shares(&new.ip, &old.ip) || shares(&new.ipv6, &old.ipv6))
                };
                if endpoints.iter().any(|new| neg.iter().any(|old| clashes(new, old))) {
                    return Some("400: another form of it is there".to_owned());
                }
                neg.extend(endpoints);
            }
            Kind::Detach => {
                if !endpoints.iter().all(|endpoint| neg.contains(endpoint)) {
                    return Some("404: not attached".to_owned());
                }
                neg.retain(|endpoint| !endpoints.contains(endpoint));
            }
        }
        None
    }

    fn ask(&mut self, call: &'static str, neg: &NegRef, endpoints: &[Endpoint]) -> Result<Name, Error> {
        let mut text = format!("{call} {} {}", neg.zone, neg.name);
        for endpoint in endpoints {
            text += " ";
            text += &short(endpoint);
        }
        self.asked.push(text);
        match self.faults.iter().position(|&(faulty, _)| faulty == call) {
            Some(index) => Err(self.faults.remove(index).unwrap().1),
            None => Ok((neg.zone.clone(), neg.name.clone())),
        }
    }

    fn start(&mut self, kind: Kind, neg: &NegRef, endpoints: &[Endpoint]) -> Result<u64, Error> {
        let name = self.ask(kind.word(), neg, endpoints)?;
        if !self.negs.contains_key(&name) {
            return Err(Error::NotFound);
        }
        assert!((1..=500).contains(&endpoints.len()), "{} endpoints", endpoints.len());
        self.operation += 1;
        let endpoints = endpoints.to_vec();
        self.started.insert(self.operation, Started { kind, name, endpoints });
        Ok(self.operation)
    }
}

impl World for Simulation {
    fn ensure(&mut self, neg: &NegRef, _: &str) -> Result<bool, Error> {
        let name = self.ask("ensure", neg, &[])?;
        let is_new = !self.negs.contains_key(&name);
        self.negs.entry(name).or_default();
        Ok(is_new)
    }

    fn list_endpoints(&mut self, neg: &NegRef) -> Result<Vec<Endpoint>, Error> {
        let name = self.ask("list", neg, &[])?;
        let endpoints = self.negs.get(&name).ok_or(Error::NotFound)?;
        Ok(endpoints.iter().cloned().collect())
    }

    fn attach(&mut self, neg: &NegRef, endpoints: &[Endpoint]) -> Result<u64, Error> {
        self.start(Kind::Attach, neg, endpoints)
    }

    fn detach(&mut self, neg: &NegRef, endpoints: &[Endpoint]) -> Result<u64, Error> {
        self.start(Kind::Detach, neg, endpoints)
    }

    fn schedule(&mut self, delay_ms: u64) -> u64 {
        self.timer += 1;
        self.timers.insert(self.timer, self.now_ms + delay_ms);
        self.timer
    }

    fn cancel(&mut self, timer: u64) -> bool {
        self.timers.remove(&timer).is_some()
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

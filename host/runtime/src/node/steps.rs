//! Which renderer has what it should have, and which is to be told all of it again. Pure: what each answered goes in.
//!
//! What all should have is what the service processor was told that they took. A renderer is *in step* where it has just
//! that. It is not where it answered an error, is new, or took a call that counted as refused and was not made again: then
//! a resync comes before its next call.
//!
//! ```text
//! call -> plan for each renderer: call, resync then call, or pass over -> answers -> one answer
//! end of the processor's own call -> who is out of step
//! ```

use std::collections::{BTreeMap, BTreeSet};

use trueup_capabilities::renderer::{Call, ContivService, ObjectId, ResyncEvent};

/// What every renderer should have.
#[derive(Debug, Default)]
struct Expected {
    node_ips: Vec<String>,
    /// By namespace and name.
    services: BTreeMap<(String, String), ContivService>,
    frontend_ifs: Vec<String>,
    backend_ifs: Vec<String>,
}

impl Expected {
    fn take(&mut self, call: &Call) {
        match call {
            Call::AddService { service } => {
                self.services.insert(key_of(&service.id), service.clone());
            }
            Call::UpdateService { old, new } => {
                if old.id.namespace != new.id.namespace || old.id.name != new.id.name {
                    self.services.remove(&key_of(&old.id));
                }
                self.services.insert(key_of(&new.id), new.clone());
            }
            Call::DeleteService { service } => {
                self.services.remove(&key_of(&service.id));
            }
            Call::UpdateNodePortServices { node_ips, .. } => self.node_ips.clone_from(node_ips),
            Call::UpdateLocalFrontendIfs { new, .. } => self.frontend_ifs.clone_from(new),
            Call::UpdateLocalBackendIfs { new, .. } => self.backend_ifs.clone_from(new),
            Call::Resync { event } => {
                let services = event.services.iter();
                self.services = services.map(|service| (key_of(&service.id), service.clone())).collect();
                self.node_ips.clone_from(&event.node_ips);
                self.frontend_ifs.clone_from(&event.frontend_ifs);
                self.backend_ifs.clone_from(&event.backend_ifs);
            }
        }
    }

    fn event(&self) -> ResyncEvent {
        ResyncEvent {
            node_ips: self.node_ips.clone(),
            services: self.services.values().cloned().collect(),
            frontend_ifs: self.frontend_ifs.clone(),
            backend_ifs: self.backend_ifs.clone(),
        }
    }
}

fn key_of(id: &ObjectId) -> (String, String) {
    (id.namespace.clone(), id.name.clone())
}

/// What a call other than a resync is about: a later call about the same makes up for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    NodeIps,
    FrontendIfs,
    BackendIfs,
    Service((String, String)),
}

impl Part {
    /// None: it is about everything.
    fn of(call: &Call) -> Option<Self> {
        Some(match call {
            Call::AddService { service } | Call::DeleteService { service } => Self::Service(key_of(&service.id)),
            Call::UpdateService { new, .. } => Self::Service(key_of(&new.id)),
            Call::UpdateNodePortServices { .. } => Self::NodeIps,
            Call::UpdateLocalFrontendIfs { .. } => Self::FrontendIfs,
            Call::UpdateLocalBackendIfs { .. } => Self::BackendIfs,
            Call::Resync { .. } => return None,
        })
    }
}

/// How one renderer stands.
#[derive(Debug, Default)]
struct Standing {
    in_step: bool,
    /// Calls in a row that it did not take.
    failures: u32,
    /// What it took though the call counted as refused.
    ahead: BTreeSet<Part>,
    /// It is not called at all.
    is_set_aside: bool,
}

/// What is to be done with one renderer about a call.
#[derive(Debug, PartialEq)]
pub(super) enum Turn {
    /// It gets the call.
    Call,
    /// It gets this resync, and the call where it takes that.
    ResyncThenCall(ResyncEvent),
    /// It gets nothing: it failed already, and its next try is the retry timer's.
    PassOver,
}

/// The renderers of one service processor, in the order in which they are called.
#[derive(Debug)]
pub(super) struct Steps {
    expected: Expected,
    /// A resync was asked for: before, nobody knows what they should have.
    is_known: bool,
    standings: Vec<Standing>,
    /// Parts whose calls counted as refused since the processor's own call began.
    refused: BTreeSet<Part>,
    /// How often it changed what they should have.
    stamp: u64,
}

/// One call as it goes from renderer to renderer.
#[derive(Debug)]
pub(super) struct Round {
    part: Option<Part>,
    took: Vec<usize>,
    /// The first error of a renderer that was not known to fail.
    counted: Option<String>,
    /// The first error of any.
    first: Option<String>,
}

impl Steps {
    /// So many renderers, none of which has anything.
    pub(super) fn new(renderers: usize) -> Self {
        Self {
            expected: Expected::default(),
            is_known: false,
            standings: (0..renderers).map(|_| Standing::default()).collect(),
            refused: BTreeSet::new(),
            stamp: 0,
        }
    }

    /// Another one where what they should have is, or may be, something else.
    pub(super) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// A call begins.
    pub(super) fn begin(&mut self, call: &Call) -> Round {
        if let Call::Resync { .. } = call {
            // The processor asks for it until it succeeds: whoever comes out of step meanwhile is to have this already.
            self.expected.take(call);
            self.stamp += 1;
            self.is_known = true;
            self.refused.clear();
        }
        Round {
            part: Part::of(call),
            took: Vec::new(),
            counted: None,
            first: None,
        }
    }

    /// What the call means for one renderer.
    pub(super) fn turn(&self, renderer: usize, round: &Round) -> Turn {
        let Some(standing) = self.standings.get(renderer) else {
            return Turn::PassOver;
        };
        if standing.is_set_aside {
            return Turn::PassOver;
        }
        if standing.in_step || round.part.is_none() || !self.is_known {
            return Turn::Call;
        }
        if standing.failures > 0 {
            return Turn::PassOver;
        }
        Turn::ResyncThenCall(self.expected.event())
    }

    /// It took a resync that was none of this call.
    pub(super) fn took_resync(&mut self, renderer: usize) {
        if let Some(standing) = self.standings.get_mut(renderer) {
            standing.in_step = true;
            standing.failures = 0;
            standing.ahead.clear();
        }
    }

    /// It took the call.
    pub(super) fn took(&mut self, renderer: usize, round: &mut Round) {
        if round.part.is_none() {
            self.took_resync(renderer);
        }
        round.took.push(renderer);
    }

    /// It did not take the call, or the resync before it.
    pub(super) fn refused(&mut self, renderer: usize, round: &mut Round, error: &str) {
        let is_news = self.failed(renderer);
        round.first.get_or_insert_with(|| error.to_owned());
        if is_news {
            round.counted.get_or_insert_with(|| error.to_owned());
        }
    }

    /// It failed: it is out of step. True where it did not fail before.
    pub(super) fn failed(&mut self, renderer: usize) -> bool {
        let Some(standing) = self.standings.get_mut(renderer) else {
            return false;
        };
        standing.in_step = false;
        standing.failures = standing.failures.saturating_add(1);
        standing.failures == 1
    }

    /// All had their turn: the answer to the processor. Who failed already, and is being retried, does not count as long
    /// as another took the call.
    ///
    /// # Errors
    /// What a renderer answered.
    pub(super) fn end(&mut self, call: &Call, round: Round) -> Result<(), String> {
        let Round {
            part,
            took,
            counted,
            first,
        } = round;
        let refusal = counted.or_else(|| {
            let why = || {
                first.unwrap_or_else(|| {
                    "no renderer is in step; each is told everything when it is tried again".to_owned()
                })
            };
            took.is_empty().then(why)
        });
        match (&part, &refusal) {
            (None, _) => {}
            (Some(part), None) => {
                self.expected.take(call);
                self.stamp += 1;
                for standing in &mut self.standings {
                    standing.ahead.remove(part);
                }
            }
            (Some(part), Some(_)) => {
                for renderer in took {
                    if let Some(standing) = self.standings.get_mut(renderer) {
                        standing.ahead.insert(part.clone());
                    }
                }
                self.refused.insert(part.clone());
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    /// The processor's own call ended. What it will ask for again is what was refused in it; who took anything else that
    /// counted as refused has what nobody should have.
    pub(super) fn settle(&mut self) {
        let refused = std::mem::take(&mut self.refused);
        for standing in &mut self.standings {
            if standing.ahead.iter().any(|part| !refused.contains(part)) {
                standing.in_step = false;
                standing.ahead.clear();
            }
        }
    }

    /// It took a resync of what is not any more what it should have: the next one comes before its next call.
    pub(super) fn is_behind(&mut self, renderer: usize) {
        if let Some(standing) = self.standings.get_mut(renderer) {
            standing.failures = 0;
            standing.ahead.clear();
        }
    }

    /// Another version renders, or the same from nothing: it has to be told everything.
    pub(super) fn is_new(&mut self, renderer: usize) {
        if let Some(standing) = self.standings.get_mut(renderer) {
            *standing = Standing::default();
        }
    }

    /// It is not called any more, until it is new.
    pub(super) fn set_aside(&mut self, renderer: usize) {
        if let Some(standing) = self.standings.get_mut(renderer) {
            standing.is_set_aside = true;
        }
    }

    /// Those that are to be told everything, of those that are called: by position.
    pub(super) fn out_of_step(&self) -> Vec<usize> {
        let standings = self.standings.iter().enumerate();
        standings
            .filter(|(_, standing)| self.is_known && !standing.in_step && !standing.is_set_aside)
            .map(|(renderer, _)| renderer)
            .collect()
    }

    /// Whether it has what it should have.
    pub(super) fn is_in_step(&self, renderer: usize) -> bool {
        self.standings.get(renderer).is_some_and(|standing| standing.in_step)
    }

    /// Whether it is not called any more.
    pub(super) fn is_set_aside(&self, renderer: usize) -> bool {
        self.standings
            .get(renderer)
            .is_some_and(|standing| standing.is_set_aside)
    }

    /// What each should have; none: nobody knows yet.
    pub(super) fn event(&self) -> Option<ResyncEvent> {
        self.is_known.then(|| self.expected.event())
    }

    /// How many services each should have.
    pub(super) fn services(&self) -> usize {
        self.expected.services.len()
    }
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;

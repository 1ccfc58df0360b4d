//! Which renderer has what it should have, and which is to be told all of it again. Pure: what each answered goes in.
//!
//! What all should have is what the service processor was told that they took. A renderer is *in step* where it has just
//! that. It is not where it answered an error, is new, or took a call that counted as refused and was not made again: then
//! a resync comes before its next call.
//!
//! A resync takes its time. One that is *being told* everything beside the loop misses what the others are told meanwhile,
//! and is told that next, in the same order: changes that keep coming do not have it begin again.
//!
//! ```text
//! call -> plan for each renderer: call, resync then call, or pass over -> answers -> one answer
//! end of the processor's own call -> who is out of step
//! out of step -> resync -> what it missed meanwhile -> in step
//! ```

use std::collections::{BTreeMap, BTreeSet};

use trueup_capabilities::renderer::{Call, ContivService, ObjectId, ResyncEvent};

/// Calls that one renderer may miss while it is told everything. One that missed more is told everything once more, which
/// is hardly more work.
const MISSED_MAX: usize = 4096;

/// In one call of the processor so many resyncs are tried with renderers that refused something in it. A resync costs as much
/// as there are services.
const RESYNCS_MAX: usize = 4;

/// Why nobody took a call.
const NONE_IN_STEP: &str = "no renderer is in step; each is told everything when it is tried again";
const ALL_SET_ASIDE: &str = "every renderer is set aside, until another version of it is active";

/// What every renderer should have.
#[derive(Debug, Default, PartialEq)]
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
            Call::Resync { event } => *self = Self::of(event),
        }
    }

    fn of(event: &ResyncEvent) -> Self {
        let services = event.services.iter();
        Self {
            node_ips: event.node_ips.clone(),
            services: services.map(|service| (key_of(&service.id), service.clone())).collect(),
            frontend_ifs: event.frontend_ifs.clone(),
            backend_ifs: event.backend_ifs.clone(),
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
    /// It is being told everything. None: it is not.
    telling: Option<Telling>,
}

/// What one renderer misses while it is told everything.
#[derive(Debug, Default)]
struct Telling {
    /// In order, since it was asked last.
    missed: Vec<Call>,
    /// There were too many: it begins again.
    is_too_much: bool,
    /// It is another one since: what it is told was for the one before.
    is_void: bool,
}

impl Telling {
    fn miss(&mut self, call: &Call) {
        if let Call::Resync { .. } = call {
            // It makes up for all before it.
            self.missed.clear();
            self.is_too_much = false;
        }
        if self.missed.len() >= MISSED_MAX {
            self.missed.clear();
            self.is_too_much = true;
        }
        if !self.is_too_much {
            self.missed.push(call.clone());
        }
    }
}

/// What is to be done with one renderer about a call.
#[derive(Debug, PartialEq)]
pub(super) enum Turn {
    /// It gets the call.
    Call,
    /// It gets this resync, and the call where it takes that.
    ResyncThenCall(ResyncEvent),
    /// It gets nothing: it is being told everything, or it failed already and its next try is the retry timer's.
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
    /// Resyncs that were no call of the processor's, since then.
    resyncs: usize,
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
            resyncs: 0,
        }
    }

    /// A call begins.
    pub(super) fn begin(&mut self, call: &Call) -> Round {
        if let Call::Resync { event } = call {
            // The processor asks for it until it succeeds: whoever comes out of step meanwhile is to have this already.
            let expected = Expected::of(event);
            if self.expected != expected {
                self.expected = expected;
                self.is_missed(call);
            }
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
        if standing.is_set_aside || standing.telling.is_some() {
            return Turn::PassOver;
        }
        if standing.in_step || !self.is_known {
            return Turn::Call;
        }
        if standing.failures > 0 && self.is_another_well(renderer) {
            return Turn::PassOver;
        }
        // A resync that only it could take, it gets at once: nobody else has anything to wait for.
        if round.part.is_none() {
            return Turn::Call;
        }
        // It may have refused this one thing alone, for good: what comes after that must not wait for it. Where it does not
        // take the resync either, or refuses one thing after another, all wait for the retry timer.
        if standing.failures > 1 || (standing.failures > 0 && self.resyncs >= RESYNCS_MAX) {
            return Turn::PassOver;
        }
        Turn::ResyncThenCall(self.expected.event())
    }

    /// Whether another one may well take what it is asked.
    fn is_another_well(&self, renderer: usize) -> bool {
        let mut others = self.standings.iter().enumerate().filter(|(at, _)| *at != renderer);
        others.any(|(_, other)| !other.is_set_aside && other.failures == 0)
    }

    /// Those that are being told everything do not hear of it now.
    fn is_missed(&mut self, call: &Call) {
        let telling = self
            .standings
            .iter_mut()
            .filter_map(|standing| standing.telling.as_mut());
        telling.for_each(|telling| telling.miss(call));
    }

    /// It is to be told everything, beside the loop: this first. None: it need not, can't, or already is.
    pub(super) fn begin_telling(&mut self, renderer: usize) -> Option<ResyncEvent> {
        let standing = self.standings.get_mut(renderer)?;
        if !self.is_known || standing.in_step || standing.is_set_aside || standing.telling.is_some() {
            return None;
        }
        standing.telling = Some(Telling::default());
        Some(self.expected.event())
    }

    /// It took all that it was told so far. What it missed meanwhile and is told next; nothing: it is in step, or has to
    /// begin again as another one.
    pub(super) fn tell_next(&mut self, renderer: usize) -> Vec<Call> {
        let Some(standing) = self.standings.get_mut(renderer) else {
            return Vec::new();
        };
        let Some(telling) = standing.telling.take() else {
            return Vec::new();
        };
        if telling.is_void {
            return Vec::new();
        }
        if !telling.is_too_much && telling.missed.is_empty() {
            self.took_resync(renderer);
            return Vec::new();
        }
        standing.telling = Some(Telling::default());
        if telling.is_too_much {
            let event = self.expected.event();
            return vec![Call::Resync { event }];
        }
        telling.missed
    }

    /// It did not take what it was told.
    pub(super) fn not_told(&mut self, renderer: usize) {
        let telling = self
            .standings
            .get_mut(renderer)
            .and_then(|standing| standing.telling.take());
        if telling.is_some_and(|telling| !telling.is_void) {
            self.failed(renderer);
        }
    }

    /// It took the resync before the call.
    pub(super) fn took_resync_first(&mut self, renderer: usize) {
        self.resyncs += 1;
        self.took_resync(renderer);
    }

    fn took_resync(&mut self, renderer: usize) {
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
                let all_set_aside = self.standings.iter().all(|standing| standing.is_set_aside);
                let why = if all_set_aside { ALL_SET_ASIDE } else { NONE_IN_STEP };
                first.unwrap_or_else(|| why.to_owned())
            };
            took.is_empty().then(why)
        });
        match (&part, &refusal) {
            (None, _) => {}
            (Some(part), None) => {
                self.expected.take(call);
                self.is_missed(call);
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
        self.resyncs = 0;
        let refused = std::mem::take(&mut self.refused);
        for standing in &mut self.standings {
            if standing.ahead.iter().any(|part| !refused.contains(part)) {
                standing.in_step = false;
                standing.ahead.clear();
            }
        }
    }

    /// Another version renders, or the same from nothing: it has to be told everything.
    pub(super) fn is_new(&mut self, renderer: usize) {
        if let Some(standing) = self.standings.get_mut(renderer) {
            let telling = standing.telling.take().map(|_| Telling {
                is_void: true,
                ..Telling::default()
            });
            *standing = Standing {
                telling,
                ..Standing::default()
            };
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

    /// Whether it is being told everything, beside the loop.
    pub(super) fn is_being_told(&self, renderer: usize) -> bool {
        let standing = self.standings.get(renderer);
        standing.is_some_and(|standing| standing.telling.is_some())
    }

    /// Whether it is not called any more.
    pub(super) fn is_set_aside(&self, renderer: usize) -> bool {
        self.standings
            .get(renderer)
            .is_some_and(|standing| standing.is_set_aside)
    }

    /// How many services each should have.
    pub(super) fn services(&self) -> usize {
        self.expected.services.len()
    }
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;

//! Decides which renderer has what it should have, and which needs a full resync. Pure: takes what each answered.
//!
//! The expected state is what the service processor knows that they took. A renderer is *in step* if it has exactly
//! that. It is out of step if it answered with an error, is new, or took a call that counted as refused and was not
//! repeated: it then gets a resync before its next call.
//!
//! A resync takes time. A renderer in a resync beside the loop misses calls that the others get
//! meanwhile. It gets them next, in the same order, so that frequent changes do not restart its resync.
//!
//! ```text
//! call -> plan for each renderer: call, resync then call, or pass over -> answers -> one answer
//! end of the processor's own call -> which are out of step
//! out of step -> resync -> what it missed meanwhile -> in step
//! ```

use std::collections::{BTreeMap, BTreeSet};

use trueup_capabilities::renderer::{Call, ContivService, ObjectId, OfService, Resync, ResyncEvent, UpdateService};

/// The maximum number of calls that a renderer may miss during a resync. If it misses more, it gets another full
/// resync, which is hardly more work.
const MISSED_MAX: usize = 4096;

/// The maximum number of resyncs in one call of the processor for renderers that refused something in it. A resync
/// costs in proportion to the number of services.
const RESYNCS_MAX: usize = 4;

/// Why no renderer took a call.
const NONE_IN_STEP: &str = "no renderer is in step; each gets everything when it is tried again";
const ALL_SET_ASIDE: &str = "every renderer is set aside, until another version of it is active";

/// What every renderer should have.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Expected {
    node_ips: Vec<String>,
    /// By namespace and name.
    services: BTreeMap<(String, String), ContivService>,
    frontend_ifs: Vec<String>,
    backend_ifs: Vec<String>,
}

impl Expected {
    fn take(&mut self, call: &Call) {
        match call {
            Call::AddService(OfService { service }) => {
                self.services.insert(key_of(&service.id), service.clone());
            }
            Call::UpdateService(UpdateService { old, new }) => {
                self.services.remove(&key_of(&old.id));
                self.services.insert(key_of(&new.id), new.clone());
            }
            Call::DeleteService(OfService { service }) => _ = self.services.remove(&key_of(&service.id)),
            Call::UpdateNodePortServices(args) => self.node_ips.clone_from(&args.node_ips),
            Call::UpdateLocalFrontendIfs(args) => self.frontend_ifs.clone_from(&args.new),
            Call::UpdateLocalBackendIfs(args) => self.backend_ifs.clone_from(&args.new),
            Call::Resync(Resync { event }) => *self = Self::of(event),
        }
    }

    /// What a renderer has after a call that it took. `None` if it got no full resync up to this call.
    pub(super) fn after(before: Option<Self>, call: &Call) -> Option<Self> {
        let mut after = match call {
            Call::Resync { .. } => Self::default(),
            _ => before?,
        };
        after.take(call);
        Some(after)
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

/// What a call other than a resync is about. A later call about the same part makes up for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    NodeIps,
    FrontendIfs,
    BackendIfs,
    Service((String, String)),
}

impl Part {
    /// `None` if it is about everything.
    fn of(call: &Call) -> Option<Self> {
        Some(match call {
            Call::AddService(args) | Call::DeleteService(args) => Self::Service(key_of(&args.service.id)),
            Call::UpdateService(args) => Self::Service(key_of(&args.new.id)),
            Call::UpdateNodePortServices(_) => Self::NodeIps,
            Call::UpdateLocalFrontendIfs(_) => Self::FrontendIfs,
            Call::UpdateLocalBackendIfs(_) => Self::BackendIfs,
            Call::Resync(_) => return None,
        })
    }
}

/// The state of one renderer.
#[derive(Debug, Default)]
pub(super) struct RendererState {
    pub(super) in_step: bool,
    /// Calls in a row that it refused.
    failures: u32,
    /// What it took although the call counted as refused.
    ahead: BTreeSet<Part>,
    /// It gets no calls at all.
    pub(super) is_set_aside: bool,
    /// Set while it gets a full resync.
    pub(super) resyncing: Option<Resyncing>,
}

/// What one renderer misses during a full resync.
#[derive(Debug, Default)]
pub(super) struct Resyncing {
    /// In order, since its last call.
    missed: Vec<Call>,
    /// It missed too many, and needs another resync.
    is_too_much: bool,
}

impl Resyncing {
    fn miss(&mut self, call: &Call) {
        if let Call::Resync(_) = call {
            // A resync replaces everything before it.
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

/// What to do with one renderer for a call.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// It gets the call.
    Call,
    /// It gets this resync, and then the call if it takes the resync.
    ResyncThenCall(ResyncEvent),
    /// It gets nothing: it is in a full resync, or it failed already and waits for its retry timer.
    PassOver,
}

/// The renderers of one service processor, in calling order.
#[derive(Debug, Default)]
pub(super) struct RendererStates {
    expected: Expected,
    /// Whether there was a resync. Before that, the expected state is unknown.
    is_known: bool,
    renderers: Vec<RendererState>,
    /// Parts whose calls counted as refused since the processor's own call began.
    refused: BTreeSet<Part>,
    /// Resyncs since then that the processor did not request.
    resyncs: usize,
}

/// One call as it goes from renderer to renderer.
#[derive(Debug, Default)]
pub(super) struct Round {
    part: Option<Part>,
    took: Vec<usize>,
    /// The first error of a renderer that was not known to fail.
    counted: Option<String>,
    /// The first error of any renderer.
    first: Option<String>,
}

impl RendererStates {
    /// This many renderers, none of which has anything.
    pub(super) fn new(renderers: usize) -> Self {
        Self {
            renderers: (0..renderers).map(|_| RendererState::default()).collect(),
            ..Self::default()
        }
    }

    /// Begins a call.
    pub(super) fn begin(&mut self, call: &Call) -> Round {
        if let Call::Resync(Resync { event }) = call {
            // The processor repeats it until it succeeds. A renderer that falls out of step meanwhile should already
            // get this.
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
            ..Round::default()
        }
    }

    /// What the call means for one renderer.
    pub(super) fn action(&self, renderer: usize, round: &Round) -> Action {
        let is_free = |state: &&RendererState| !state.is_set_aside && state.resyncing.is_none();
        let Some(state) = self.renderers.get(renderer).filter(is_free) else {
            return Action::PassOver;
        };
        if state.in_step || !self.is_known {
            return Action::Call;
        }
        let mut others = self.renderers.iter().enumerate().filter(|(at, _)| *at != renderer);
        // Another renderer is likely to take the call.
        if state.failures > 0 && others.any(|(_, other)| !other.is_set_aside && other.failures == 0) {
            return Action::PassOver;
        }
        // If only this renderer could take a resync, it gets it at once: no other has to wait.
        if round.part.is_none() {
            return Action::Call;
        }
        // It may have refused this one thing alone, for good, so later calls must not wait for it. If it refuses the
        // resync too, or one thing after another, all wait for the retry timer.
        if state.failures > 1 || (state.failures > 0 && self.resyncs >= RESYNCS_MAX) {
            return Action::PassOver;
        }
        Action::ResyncThenCall(self.expected.event())
    }

    /// Notes the call for renderers in a full resync, which do not get it now.
    fn is_missed(&mut self, call: &Call) {
        let resyncing = self.renderers.iter_mut().filter_map(|state| state.resyncing.as_mut());
        resyncing.for_each(|resyncing| resyncing.miss(call));
    }

    /// Begins a full resync beside the loop. Returns its content. `None` if the renderer does not need it, can't get
    /// it, or is already in one.
    pub(super) fn begin_resync(&mut self, renderer: usize) -> Option<ResyncEvent> {
        let state = self.renderers.get_mut(renderer)?;
        if !self.is_known || state.in_step || state.is_set_aside || state.resyncing.is_some() {
            return None;
        }
        state.resyncing = Some(Resyncing::default());
        Some(self.expected.event())
    }

    /// The renderer took everything so far. Returns what it missed meanwhile. Empty if it is in step.
    pub(super) fn next_missed(&mut self, renderer: usize) -> Vec<Call> {
        let state = self.renderers.get_mut(renderer);
        let Some(resyncing) = state.and_then(|state| state.resyncing.as_mut()) else {
            return Vec::new();
        };
        let Resyncing { missed, is_too_much } = std::mem::take(resyncing);
        if is_too_much {
            let event = self.expected.event();
            return vec![Call::Resync(Resync { event })];
        }
        if missed.is_empty() {
            self.took_resync(renderer);
        }
        missed
    }

    /// The renderer refused what it got.
    pub(super) fn resync_failed(&mut self, renderer: usize) {
        let state = self.renderers.get_mut(renderer);
        if state.and_then(|state| state.resyncing.take()).is_some() {
            self.failed(renderer);
        }
    }

    /// The renderer took the resync before the call.
    pub(super) fn took_resync_first(&mut self, renderer: usize) {
        self.resyncs += 1;
        self.took_resync(renderer);
    }

    fn took_resync(&mut self, renderer: usize) {
        if let Some(state) = self.renderers.get_mut(renderer) {
            state.in_step = true;
            state.failures = 0;
            state.ahead.clear();
            state.resyncing = None;
        }
    }

    /// The renderer took the call.
    pub(super) fn took(&mut self, renderer: usize, round: &mut Round) {
        if round.part.is_none() {
            self.took_resync(renderer);
        }
        round.took.push(renderer);
    }

    /// The renderer refused the call, or the resync before it.
    pub(super) fn refused(&mut self, renderer: usize, round: &mut Round, error: &str) {
        let is_news = self.failed(renderer);
        round.first.get_or_insert_with(|| error.to_owned());
        if is_news {
            round.counted.get_or_insert_with(|| error.to_owned());
        }
    }

    /// The renderer failed and is out of step. `true` if it did not fail before.
    pub(super) fn failed(&mut self, renderer: usize) -> bool {
        let Some(state) = self.renderers.get_mut(renderer) else {
            return false;
        };
        state.in_step = false;
        state.failures = state.failures.saturating_add(1);
        state.failures == 1
    }

    /// All had their turn. Returns the answer to the processor. A renderer that failed before and is being retried
    /// does not count if another took the call.
    ///
    /// # Errors
    /// What a renderer answered.
    pub(super) fn end(&mut self, call: &Call, round: Round) -> Result<(), String> {
        let none_took = || {
            let all_set_aside = self.renderers.iter().all(|state| state.is_set_aside);
            let why = if all_set_aside { ALL_SET_ASIDE } else { NONE_IN_STEP };
            round.first.unwrap_or_else(|| why.to_owned())
        };
        let refusal = round.counted.or_else(|| round.took.is_empty().then(none_took));
        match (round.part, &refusal) {
            (None, _) => {}
            (Some(part), None) => {
                self.expected.take(call);
                self.is_missed(call);
                for state in &mut self.renderers {
                    state.ahead.remove(&part);
                }
            }
            (Some(part), Some(_)) => {
                for renderer in round.took {
                    if let Some(state) = self.renderers.get_mut(renderer) {
                        state.ahead.insert(part.clone());
                    }
                }
                self.refused.insert(part);
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    /// The processor's own call ended. It will repeat what was refused in it. A renderer that took anything else that
    /// counted as refused has what none should have.
    pub(super) fn settle(&mut self) {
        self.resyncs = 0;
        let refused = std::mem::take(&mut self.refused);
        for state in &mut self.renderers {
            if state.ahead.iter().any(|part| !refused.contains(part)) {
                state.in_step = false;
                state.ahead.clear();
            }
        }
    }

    /// A new version renders, or the same one from nothing: it needs a full resync. It must not be in one.
    pub(super) fn is_new(&mut self, renderer: usize) {
        if let Some(state) = self.renderers.get_mut(renderer) {
            *state = RendererState::default();
        }
    }

    /// Stops calling it until it is replaced.
    pub(super) fn set_aside(&mut self, renderer: usize) {
        if let Some(state) = self.renderers.get_mut(renderer) {
            state.is_set_aside = true;
        }
    }

    /// Whether a renderer with this state needs a full resync, and gets calls.
    pub(super) fn is_out_of_step(&self, state: &RendererState) -> bool {
        self.is_known && !state.in_step && !state.is_set_aside
    }

    /// The positions of renderers that need a full resync, among those that get calls.
    pub(super) fn out_of_step(&self) -> Vec<usize> {
        let is_out = |(renderer, state)| self.is_out_of_step(state).then_some(renderer);
        self.renderers.iter().enumerate().filter_map(is_out).collect()
    }

    /// The state of each renderer, in order.
    pub(super) fn all(&self) -> &[RendererState] {
        &self.renderers
    }

    /// How many services each should have.
    pub(super) fn services(&self) -> usize {
        self.expected.services.len()
    }
}

#[cfg(test)]
#[path = "renderer_states_tests.rs"]
mod tests;

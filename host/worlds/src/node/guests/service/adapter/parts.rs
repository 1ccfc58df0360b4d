//! The parts of the guests' input, and how a look changed them.

use std::collections::BTreeMap;

use trueup_work::objects::Id;

use super::Changes;
use crate::node::guests::nodesync::Change;
use crate::node::guests::service::Event;

/// A part of the guests' input, in the order in which parts are sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Service(Id),
    /// All slices of a Service.
    Endpoints(Id),
    Pod(Id),
    Node(String),
}

/// What a guest receives about a part: what it is, or that it is gone.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Input {
    Service(Event),
    Nodesync(Change),
}

/// What a look may have changed.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// The parts, as they were.
    pub(super) parts: BTreeMap<Part, Input>,
    pub(super) notes: Vec<String>,
    pub(super) about: Vec<(Id, String)>,
}

impl Changes {
    /// Adds the parts that are not as they were.
    pub(super) fn add_differences(&mut self, parts: BTreeMap<Part, Input>, now: impl Fn(&Part) -> Input) {
        for (part, before) in parts {
            match now(&part) {
                now if now == before => {}
                Input::Service(event) => self.events.push(event),
                Input::Nodesync(change) => self.nodes.push(change),
            }
        }
    }
}

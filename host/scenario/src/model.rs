//! The content of a scenario file as types: fully checked, except for what only a run can show.

use std::collections::BTreeMap;

use serde_json::Value;
use trueup_capabilities::{faults::Fault, meter::Limits};

use crate::simulated::Parts;
use crate::written::{Asked, Ending};

/// One scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The line on which it begins.
    pub line: u64,
    /// Unique in its file.
    pub name: String,
    /// One line about it.
    pub about: Option<String>,
    /// `NAME` or `NAME@VERSION`.
    pub guest: String,
    /// An object, for `lifecycle.init`.
    pub config: Value,
    /// Text that the error of `init` must contain. In this case there are no steps.
    pub expect_init_error: Option<String>,
    /// The initial world.
    pub given: Given,
    /// The limits of its instances.
    pub limits: Limits,
    /// In order.
    pub steps: Vec<Step>,
}

/// The initial world.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// The time of the clock.
    pub now_ms: u64,
    /// Its other parts, by the key of the capability.
    pub(crate) parts: Parts,
}

/// One step and its line.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// In its file.
    pub line: u64,
    /// Its action.
    pub action: Action,
    /// The answer; where the clock moves, `[id, result]` of each timer that fired.
    pub expect: Option<Value>,
    /// The expected questions, in order.
    pub expect_calls: Option<Vec<Asked>>,
}

/// What a step does. Values may contain `${name}`.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Calls an export.
    Call {
        /// `interface.function` in WIT spelling.
        export: String,
        /// By parameter name.
        args: Value,
        /// How it must end without an answer.
        expect_ending: Option<Ending>,
        /// Maps a name to a JSON pointer into the answer.
        save: BTreeMap<String, String>,
    },
    /// Moves the clock by milliseconds.
    Advance(u64),
    /// Adds a fault.
    Fault(Fault),
    /// Removes all faults.
    ClearFaults,
    /// Ends an operation of a capability.
    OperationDone {
        /// Its number.
        operation: u64,
        /// Why it failed.
        failure: Option<String>,
    },
    /// Starts a new instance.
    Restart {
        /// Whether the new instance restores the old one's snapshot.
        carry_state: bool,
    },
    /// Compares the world: its parts by the key of the capability. Missing parts are not compared.
    ExpectState(Parts),
}

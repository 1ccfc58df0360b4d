//! The content of a scenario file as types: fully checked, except for what only a run can show.

use std::collections::BTreeMap;

use serde_json::Value;
use trueup_capabilities::checkpoint::Saved;
use trueup_capabilities::cri::Sandbox;
use trueup_capabilities::faults::Fault;
use trueup_capabilities::lbaas::{State, simulated::Resource};
use trueup_capabilities::neg::simulated::Neg;

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
    /// In order.
    pub steps: Vec<Step>,
}

/// The initial world.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// The time of the clock.
    pub now_ms: u64,
    /// The LBaaS API.
    pub lbaas: Option<GivenLbaas>,
    /// The NEG API.
    pub negs: Vec<Neg>,
    /// The stored checkpoint. `None` if there never was one.
    pub checkpoint: Option<Saved>,
    /// The sandboxes in the container runtime.
    pub sandboxes: Vec<Sandbox>,
    /// The stored values by key.
    pub etcd: BTreeMap<String, String>,
}

/// The initial state of the simulated LBaaS API.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GivenLbaas {
    /// By identifier.
    pub load_balancers: BTreeMap<String, State>,
    /// The objects.
    pub objects: Vec<Resource>,
    /// How long an applied change takes to settle.
    pub settle_ms: u64,
}

/// One step and its line.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// In its file.
    pub line: u64,
    /// Its action.
    pub action: Action,
}

/// What a step does and what must result. Values may contain `${name}`.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Calls an export.
    Call {
        /// `interface.function` in WIT spelling.
        export: String,
        /// By parameter name.
        args: Value,
        /// The answer.
        expect: Option<Value>,
        /// The expected questions, in order.
        expect_calls: Option<Vec<Value>>,
        /// Maps a name to a JSON pointer into the answer.
        save: BTreeMap<String, String>,
    },
    /// Moves the clock.
    Advance {
        /// The duration.
        duration_ms: u64,
        /// `[id, result]` of each timer that fired.
        expect_timers: Option<Vec<Value>>,
        /// The expected questions, in order.
        expect_calls: Option<Vec<Value>>,
    },
    /// Adds a fault.
    Fault(Fault),
    /// Removes all faults.
    ClearFaults,
    /// Ends a NEG operation.
    OperationDone {
        /// Its number.
        operation: u64,
        /// Why it failed.
        failure: Option<String>,
        /// The answer of `syncer.on-operation`.
        expect: Option<Value>,
        /// The expected questions, in order.
        expect_calls: Option<Vec<Value>>,
    },
    /// Starts a new instance.
    Restart {
        /// Whether the new instance restores the old one's snapshot.
        carry_state: bool,
    },
    /// Compares the world.
    ExpectState(ExpectedState),
}

/// The expected world. Missing parts are not compared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExpectedState {
    /// `objects` of the LBaaS API.
    pub lbaas: Option<Vec<Value>>,
    /// `negs` of the NEG API.
    pub neg: Option<Vec<Value>>,
    /// Expected metrics by series.
    pub metrics: Option<BTreeMap<String, f64>>,
    /// The stored checkpoint, `null` for none.
    pub checkpoint: Option<Value>,
    /// The stored values: an object of texts.
    pub etcd: Option<Value>,
}

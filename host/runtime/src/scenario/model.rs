//! What a scenario file says, in types: no lines, no unknown keys, nothing left to check but what a run shows.

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
    /// Text that the error of `init` must contain; then there are no steps.
    pub expect_init_error: Option<String>,
    /// The world before.
    pub given: Given,
    /// In order.
    pub steps: Vec<Step>,
}

/// The world before.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// The clock.
    pub now_ms: u64,
    /// The LBaaS API.
    pub lbaas: Option<GivenLbaas>,
    /// The NEG API.
    pub negs: Vec<Neg>,
    /// What is stored; none: nothing ever was.
    pub checkpoint: Option<Saved>,
    /// What the container runtime runs.
    pub sandboxes: Vec<Sandbox>,
    /// What is stored under which key.
    pub etcd: BTreeMap<String, String>,
}

/// The simulated LBaaS API before.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GivenLbaas {
    /// By identifier.
    pub load_balancers: BTreeMap<String, State>,
    /// As they are.
    pub objects: Vec<Resource>,
    /// How long what is applied takes to settle.
    pub settle_ms: u64,
}

/// One step and the line that it stands on.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// In its file.
    pub line: u64,
    /// What it does.
    pub action: Action,
}

/// What a step does and must show. Values may hold `${name}`.
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
        /// The questions asked, in order.
        expect_calls: Option<Vec<Value>>,
        /// Name to JSON pointer into the answer.
        save: BTreeMap<String, String>,
    },
    /// Moves the clock.
    Advance {
        /// By so much.
        duration_ms: u64,
        /// `[id, result]` of each timer that fired.
        expect_timers: Option<Vec<Value>>,
        /// The questions asked, in order.
        expect_calls: Option<Vec<Value>>,
    },
    /// Adds a fault.
    Fault(Fault),
    /// Forgets all faults.
    ClearFaults,
    /// Ends a NEG operation.
    OperationDone {
        /// Its number.
        operation: u64,
        /// Why it failed.
        failure: Option<String>,
        /// The answer of `syncer.on-operation`.
        expect: Option<Value>,
        /// The questions asked, in order.
        expect_calls: Option<Vec<Value>>,
    },
    /// Starts a new instance.
    Restart {
        /// Whether the old one's snapshot is restored into it.
        carry_state: bool,
    },
    /// Compares the world.
    ExpectState(ExpectedState),
}

/// What the world must be like; parts left out are not looked at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExpectedState {
    /// `objects` of the LBaaS API.
    pub lbaas: Option<Vec<Value>>,
    /// `negs` of the NEG API.
    pub neg: Option<Vec<Value>>,
    /// Series to number.
    pub metrics: Option<BTreeMap<String, f64>>,
    /// What is stored, `null` for nothing.
    pub checkpoint: Option<Value>,
    /// What is stored under which key: an object of texts.
    pub etcd: Option<Value>,
}

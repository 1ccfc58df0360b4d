//! A simulated Compute Engine in its own process: its requests, and its contents.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Value, json};

use support::Simulation;

/// An endpoint in Compute Engine's form. All have an IPv4 address; `ipv6` may be empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Endpoint {
    pub(crate) instance: String,
    pub(crate) ip_address: String,
    #[serde(default)]
    pub(crate) ipv6_address: String,
    pub(crate) port: u16,
}

impl Endpoint {
    /// True for two forms of one VM and port with a common address: Compute Engine can hold only one of them.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        let shared = |ours: &str, theirs: &str| !ours.is_empty() && ours == theirs;
        (&self.instance, self.port) == (&other.instance, other.port)
            && (shared(&self.ip_address, &other.ip_address) || shared(&self.ipv6_address, &other.ipv6_address))
    }
}

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Does {
    #[serde(rename = "insert")]
    Insert,
    #[serde(rename = "attachNetworkEndpoints")]
    Attach,
    #[serde(rename = "detachNetworkEndpoints")]
    Detach,
}

/// A line of the server's ledger. Times are the server's, in milliseconds since 1970.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Operation {
    pub(crate) id: u64,
    #[serde(rename = "type")]
    pub(crate) does: Does,
    pub(crate) zone: String,
    pub(crate) neg: String,
    pub(crate) request_id: Option<String>,
    /// How often the same request was repeated.
    pub(crate) repeats: u64,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) received_ms: u64,
    /// `None` while it is in flight.
    pub(crate) done_ms: Option<u64>,
    pub(crate) failure: Option<String>,
}

impl Operation {
    /// When it took effect; `None` if it did not, or not yet.
    pub(crate) fn effect_ms(&self) -> Option<u64> {
        self.done_ms.filter(|_| self.failure.is_none())
    }
}

/// Zone and name of a NEG.
pub(crate) type Place = (String, String);

/// The contents of each NEG, without empty ones.
pub(crate) type Contents = BTreeMap<Place, BTreeSet<Endpoint>>;

pub(crate) struct Compute(Simulation);

impl Compute {
    /// With operations that take this long, and further arguments of the command.
    pub(crate) fn start(operation_ms: u64, args: &[&str]) -> Self {
        let operation_ms = operation_ms.to_string();
        let args = [&["--operation-ms", operation_ms.as_str()], args].concat();
        Self(Simulation::start("compute", &args))
    }

    pub(crate) fn url(&self) -> &str {
        self.0.url()
    }

    /// All operations, in the order of their requests.
    pub(crate) fn operations(&self) -> Vec<Operation> {
        serde_json::from_value(self.0.get("/operations")).unwrap()
    }

    /// The same, without those that create NEGs.
    pub(crate) fn changes(&self) -> Vec<Operation> {
        let mut operations = self.operations();
        operations.retain(|operation| operation.does != Does::Insert);
        operations
    }

    pub(crate) fn detachments(&self) -> Vec<Operation> {
        let mut operations = self.operations();
        operations.retain(|operation| operation.does == Does::Detach);
        operations
    }

    /// The present contents of the NEGs; `None` while operations are in flight.
    pub(crate) fn at_rest(&self) -> Option<Contents> {
        let mut overview = self.0.get("/negs");
        (overview["operations_pending"] == 0).then(|| contents(overview["negs"].take()))
    }

    /// The number of requests so far.
    pub(crate) fn requests(&self) -> u64 {
        let requests: BTreeMap<String, u64> =
            serde_json::from_value(self.0.get("/requests")["requests"].take()).unwrap();
        requests.values().sum()
    }

    /// Injects a fault.
    pub(crate) fn fault(&self, fault: &Value) {
        self.0.post("/faults", fault);
    }

    /// Whether all faults have happened.
    pub(crate) fn is_faultless(&self) -> bool {
        self.0.get("/faults") == json!([])
    }

    pub(crate) fn clear_faults(&self) {
        self.0.delete("/faults");
    }

    /// Sets the time of later operations.
    pub(crate) fn operations_take(&self, ms: u64) {
        self.set(&json!({"operation_ms": ms}));
    }

    /// Ends all operations in flight now. Only while no request comes.
    pub(crate) fn end_operations(&self) {
        let now_ms = now_ms();
        let mut state = self.state();
        let pending: Vec<u64> = state["pending"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pending| pending[1].as_u64().unwrap())
            .collect();
        for id in &pending {
            state["operations"][id.to_string()]["due_ms"] = now_ms.into();
        }
        state["pending"] = pending.iter().map(|id| json!([now_ms, id])).collect();
        self.put_state(&state);
    }

    /// All that it holds.
    pub(crate) fn state(&self) -> Value {
        self.0.get("/state")
    }

    /// Replaces all that it holds. Only while no request comes.
    pub(crate) fn put_state(&self, state: &Value) {
        self.0.put("/state", state);
    }

    /// Changes its settings.
    pub(crate) fn set(&self, settings: &Value) {
        self.0.patch("/settings", settings);
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since_1970.as_millis()).unwrap()
}

fn contents(negs: Value) -> Contents {
    #[derive(Deserialize)]
    struct Neg {
        endpoints: BTreeSet<Endpoint>,
    }
    let negs: BTreeMap<String, Neg> = serde_json::from_value(negs).unwrap();
    let place = |path: &str| {
        let parts: Vec<&str> = path.split('/').collect();
        match parts[..] {
            ["projects", _, "zones", zone, "networkEndpointGroups", name] => (zone.to_owned(), name.to_owned()),
            _ => panic!("`{path}` is no NEG's path"),
        }
    };
    negs.into_iter()
        .filter(|(_, neg)| !neg.endpoints.is_empty())
        .map(|(path, neg)| (place(&path), neg.endpoints))
        .collect()
}

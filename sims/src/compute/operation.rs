//! Operations: what each does, when it takes effect, and how it ended.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::endpoint::Endpoint;
use super::json::{timestamp, without_nulls};
use super::neg::NegSpec;
use super::target::{URL_PREFIX, Zone};

/// The user in every operation.
const USER: &str = "simulated@trueup.example";

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) http_status: u16,
    pub(super) code: String,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(http_status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            http_status,
            code: code.to_owned(),
            message: message.into(),
        }
    }

    /// A failure by a fault.
    pub(super) fn by_fault(code: Option<String>, message: Option<String>) -> Self {
        let message = message.as_deref().unwrap_or("Internal error. Please try again.");
        Self::new(500, code.as_deref().unwrap_or("INTERNAL_ERROR"), message)
    }
}

/// The effect of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Work {
    Insert(NegSpec),
    Attach(Vec<Endpoint>),
    Detach(Vec<Endpoint>),
}

impl Work {
    /// The value of `operationType`.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Insert(_) => "insert",
            Self::Attach(_) => "attachNetworkEndpoints",
            Self::Detach(_) => "detachNetworkEndpoints",
        }
    }
}

/// One operation on one NEG.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Operation {
    pub(super) id: u64,
    #[serde(flatten)]
    pub(super) zone: Zone,
    /// The NEG's name.
    pub(super) neg: String,
    /// The NEG's number.
    pub(super) target_id: u64,
    pub(super) request_id: Option<String>,
    /// How often the same call was repeated.
    pub(super) repeats: u64,
    pub(super) work: Work,
    /// When its request arrived, in milliseconds since 1970.
    pub(super) received_ms: u64,
    /// When it starts to run.
    pub(super) start_ms: u64,
    /// When it takes effect.
    pub(super) due_ms: u64,
    /// Whether it took effect or failed.
    pub(super) is_done: bool,
    /// The failure that a fault planned.
    pub(super) planned: Option<Failure>,
    /// The failure, once it is done.
    pub(super) failure: Option<Failure>,
    /// Whether the API has forgotten it.
    pub(super) is_forgotten: bool,
}

impl Operation {
    pub(super) fn name(&self) -> String {
        format!("operation-{}", self.id)
    }

    /// The operation in answers. What is due must have taken effect.
    pub(super) fn json(&self, now_ms: u64) -> Value {
        match (self.is_done, now_ms >= self.start_ms) {
            (true, _) => self.json_as("DONE", 100),
            (false, true) => self.json_as("RUNNING", 50),
            (false, false) => self.json_as("PENDING", 0),
        }
    }

    pub(super) fn json_as(&self, status: &str, progress: u8) -> Value {
        let zone = &self.zone;
        let url = |path: String| format!("{URL_PREFIX}{path}");
        let failure = self.failure.as_ref();
        let errors = |failure: &Failure| json!({"errors": [{"code": failure.code, "message": failure.message}]});
        let reason = |failure: &Failure| {
            let status = StatusCode::from_u16(failure.http_status).ok();
            let reason = status.and_then(|status| status.canonical_reason());
            reason.unwrap_or("error").to_uppercase()
        };
        without_nulls(json!({
            "kind": "compute#operation",
            "id": self.id.to_string(),
            "name": self.name(),
            "zone": url(zone.path()),
            "operationType": self.work.name(),
            "targetLink": url(zone.neg_path(&self.neg)),
            "targetId": self.target_id.to_string(),
            "status": status,
            "progress": progress,
            "insertTime": timestamp(self.received_ms),
            "user": USER,
            "selfLink": url(zone.operation_path(&self.name())),
            "clientOperationId": self.request_id,
            "startTime": (status != "PENDING").then(|| timestamp(self.start_ms)),
            "endTime": (status == "DONE").then(|| timestamp(self.due_ms)),
            "error": failure.map(errors),
            "httpErrorStatusCode": failure.map(|failure| failure.http_status),
            "httpErrorMessage": failure.map(reason),
        }))
    }

    /// The whole operation for tests, even if the API has forgotten it.
    pub(super) fn ledger(&self) -> Value {
        let endpoints: &[Endpoint] = match &self.work {
            Work::Insert(_) => &[],
            Work::Attach(endpoints) | Work::Detach(endpoints) => endpoints,
        };
        let endpoints: Vec<_> = endpoints.iter().map(|endpoint| endpoint.json(false)).collect();
        let shown = |failure: &Failure| format!("{}: {}", failure.code, failure.message);
        let failure = self.failure.as_ref().map(shown);
        json!({
            "id": self.id,
            "type": self.work.name(),
            "project": self.zone.project,
            "zone": self.zone.zone,
            "neg": self.neg,
            "request_id": self.request_id,
            "repeats": self.repeats,
            "endpoints": endpoints,
            "received_ms": self.received_ms,
            "start_ms": self.start_ms,
            "done_ms": self.is_done.then_some(self.due_ms),
            "failure": failure,
            "forgotten": self.is_forgotten,
        })
    }
}

//! The shipped guest, and an API whose whole state is visible to the test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};

use serde_json::json;
use trueup_base::clock::VirtualClock;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::meter::Limits;
use trueup_capabilities::neg::{Api, Endpoint, Error, NegRef, RequestId};
use trueup_capabilities::{Backends, async_trait};
use trueup_instance::{Instances, Program};
use trueup_journal::{Files, Options};

use crate::versions::{ENGINE, only, program};

pub(crate) const KEY: &str = "shop/web/80";

pub(crate) static GUEST: LazyLock<Vec<u8>> = LazyLock::new(|| only("neg"));

static PROGRAM: LazyLock<Arc<Program>> = LazyLock::new(|| program(&GUEST));

/// Instances of one NEG name in two zones, recorded under `state_dir`.
pub(crate) fn instances(state_dir: &Path) -> Instances {
    Instances {
        name: "neg",
        engine: ENGINE.clone(),
        program: Arc::clone(&PROGRAM),
        recorded: Arc::new(|_| None),
        settings: json!({ "neg_names": { "s": "web" }, "zones": ["a", "b"], "migration_wait_ms": 1_000 }),
        afresh: false,
        grants: Grants::everything(),
        limits: Limits::default(),
        initial: json!({
            "version": 1, "paused": false, "wait_ends_ms": null, "previous_detachment_ms": null,
            "migration_started_ms": null, "ensured": [], "known": [], "operations": [], "migration_failure": null,
            "in_error_state": false, "sync_retry": { "count": 0, "due_ms": null },
            "operation_retry": { "count": 0, "due_ms": null },
        })
        .to_string(),
        state_dir: state_dir.to_owned(),
        record: true,
        journal: Options::default(),
        files: Files::default(),
    }
}

/// A change: the request and its content.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) request: RequestId,
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    Ensure(NegRef),
    Attach(NegRef, Vec<Endpoint>),
    Detach(NegRef, Vec<Endpoint>),
}

/// NEGs that change only when a test ends an operation. A repeated request has no further effect.
#[derive(Debug, Default)]
pub(crate) struct World {
    negs: Mutex<BTreeMap<NegRef, BTreeSet<Endpoint>>>,
    changes: Mutex<Vec<Change>>,
}

impl World {
    /// A world with these NEGs in which `changes` have already happened.
    pub(crate) fn after(negs: BTreeMap<NegRef, BTreeSet<Endpoint>>, changes: &[Change]) -> Arc<Self> {
        Arc::new(Self {
            negs: Mutex::new(negs),
            changes: Mutex::new(changes.to_vec()),
        })
    }

    pub(crate) fn changes(&self) -> Vec<Change> {
        self.changes.lock().unwrap().clone()
    }

    pub(crate) fn backends(self: &Arc<Self>, now_ms: u64) -> Backends {
        Backends {
            clock: Arc::new(VirtualClock::new(now_ms)),
            neg: Some(Arc::<Self>::clone(self)),
            ..Backends::default()
        }
    }

    /// The index of the change: an operation's number.
    fn noted(&self, request: RequestId, what: What) -> (u64, bool) {
        let mut changes = self.changes.lock().unwrap();
        let before = changes.iter().position(|change| change.request == request);
        if let Some(before) = before {
            assert_eq!(changes[before].what, what, "another thing under the same name");
            return (before as u64 + 1, false);
        }
        changes.push(Change { request, what });
        (changes.len() as u64, true)
    }
}

#[async_trait]
impl Api for World {
    async fn ensure(&self, neg: &NegRef, _: &str, request: RequestId) -> Result<bool, Error> {
        let (_, is_new) = self.noted(request, What::Ensure(neg.clone()));
        Ok(is_new)
    }

    async fn list_endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error> {
        let listed = self.negs.lock().unwrap().get(neg).cloned().unwrap_or_default();
        Ok(listed.into_iter().collect())
    }

    async fn change(&self, attaches: bool, neg: &NegRef, endpoints: &[Endpoint], id: RequestId) -> Result<u64, Error> {
        let what = if attaches { What::Attach } else { What::Detach };
        let (number, _) = self.noted(id, what(neg.clone(), endpoints.to_vec()));
        Ok(number)
    }
}

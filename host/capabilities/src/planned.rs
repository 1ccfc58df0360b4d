//! The backends of a plan: each shows what is really there, and keeps what is written to itself.

use std::sync::Arc;

use serde::Serialize;
use trueup_base::clock::VirtualClock;

use crate::log::NoLog;
use crate::{Backends, etcd, lbaas, nftables};

/// An object that exists without the mark of its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Orphan {
    /// `backend`, `frontend`, `bind` or `server`.
    pub kind: &'static str,
    /// Its identifier.
    pub identifier: String,
    /// Its name.
    pub name: String,
    /// The UID of the Service whose tag it carries. `None` if it carries no Service's tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_uid: Option<String>,
}

impl From<lbaas::Object> for Orphan {
    fn from(object: lbaas::Object) -> Self {
        Self {
            kind: object.spec.kind().name(),
            name: object.spec.name().to_owned(),
            identifier: object.identifier,
            service_uid: None,
        }
    }
}

/// The backends of one instance in a plan.
pub struct Planned {
    /// Nothing in them changes anything real.
    pub backends: Backends,
    lbaas: Option<Arc<lbaas::planned::Planned>>,
}

impl Planned {
    /// The backends of a plan in place of the `real` ones. Sleeping takes no time. A packet filter accepts
    /// everything. A backend that has no form for plans is missing.
    pub fn new(real: Backends) -> Self {
        let clock = Arc::new(VirtualClock::new(real.clock.now_ms()));
        let lbaas = real.lbaas.map(|api| {
            let reads = lbaas::planned::Reads::of(api);
            Arc::new(lbaas::planned::Planned::new(reads, Arc::clone(&clock)))
        });
        let etcd = real.etcd.and_then(|api| etcd::planned::Planned::new(api).ok());
        let backends = Backends {
            clock,
            log: Arc::new(NoLog),
            metrics: Arc::default(),
            lbaas: lbaas.clone().map(|api| api as _),
            etcd: etcd.map(|api| Arc::new(api) as _),
            nftables: real.nftables.map(|_| Arc::new(nftables::Simulated) as _),
            // It can only be read.
            sandboxes: real.sandboxes,
            checkpoint: None,
            neg: None,
            renderers: None,
            audit: None,
            // No `..real`: each new backend has to say what it is in a plan.
            random: real.random,
            quotas: real.quotas,
            usage: real.usage,
            pace: real.pace,
            faults: real.faults,
        };
        Self { backends, lbaas }
    }

    /// Objects that a killed host created and did not mark. A run first marks them.
    pub fn unmarked(&self) -> Vec<Orphan> {
        let found = self.lbaas.as_ref().map(|api| api.leftovers());
        found.unwrap_or_default().into_iter().map(Orphan::from).collect()
    }
}

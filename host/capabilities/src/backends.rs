//! The backends that answer the requests of one guest instance.

use std::sync::Arc;

use trueup_base::clock::{Clock, SystemClock};

use crate::audit::Audit;
use crate::faults::Faults;
use crate::log::{Log, TracingLog};
use crate::meter::Usage;
use crate::metrics::Registry;
use crate::pace::Pace;
use crate::quota::Quotas;
use crate::random::{Random, Seeded};
use crate::{checkpoint, cri, etcd, lbaas, neg, nftables, renderer};

/// The backends that answer a guest's requests.
#[derive(Clone)]
pub struct Backends {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
    /// Receives log lines.
    pub log: Arc<dyn Log>,
    /// Receives metrics.
    pub metrics: Arc<Registry>,
    /// The Engine. Without one in the configuration, every call returns `unavailable`.
    pub lbaas: Option<Arc<dyn lbaas::Api>>,
    /// This instance's own durable storage. If `None`, every call returns `unavailable`.
    pub checkpoint: Option<Arc<dyn checkpoint::Store>>,
    /// The container runtime. If `None`, every call returns an error.
    pub sandboxes: Option<Arc<dyn cri::Runtime>>,
    /// Network endpoint groups, for this instance alone: it receives the results of the operations that it starts.
    /// Without a configured backend, every call returns `unavailable`.
    pub neg: Option<Arc<dyn neg::Api>>,
    /// etcd, or a store in its place. Without one in the configuration, every call returns `unavailable`.
    pub etcd: Option<Arc<dyn etcd::Api>>,
    /// The kernel's packet filter. If `None`, every call returns an error.
    pub nftables: Option<Arc<dyn nftables::Api>>,
    /// The renderers for the output of a service processor. If `None`, every call returns an error.
    pub renderers: Option<Arc<dyn renderer::Renderers>>,
    /// Counts the guest's requests, shared by all instances and versions of one configured guest.
    pub quotas: Arc<Quotas>,
    /// The audit log for refusals. If `None`, the host only counts and logs them.
    pub audit: Option<Arc<Audit>>,
    /// The combined resources of the instances that share this.
    pub usage: Arc<Usage>,
    /// Decides when a long computation continues. If `None`, it continues at once.
    pub pace: Option<Arc<dyn Pace>>,
    /// The faults of a scenario, which answer before the backends.
    pub faults: Option<Arc<Faults>>,
}

impl Default for Backends {
    /// The machine's clock, randomness from seed 0, the process's log, and no other backend.
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            random: Arc::new(Seeded::new(0, 0)),
            log: Arc::new(TracingLog),
            metrics: Arc::default(),
            lbaas: None,
            checkpoint: None,
            sandboxes: None,
            neg: None,
            etcd: None,
            nftables: None,
            renderers: None,
            quotas: Arc::default(),
            audit: None,
            usage: Arc::default(),
            pace: None,
            faults: None,
        }
    }
}

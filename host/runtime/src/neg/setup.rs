//! What a run of NEGs needs before it begins: the guest, and Compute Engine or what stands for it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use trueup_capabilities::audit::Audit;
use trueup_capabilities::faults::Faults;
use trueup_capabilities::grants::{Access, NEG};
use trueup_capabilities::metrics::Registry as Metrics;
use trueup_capabilities::neg::simulated::Simulated;
use trueup_capabilities::neg::{Api, Endpoint, Error, NegRef, RequestId};
use trueup_capabilities::quota::Quotas;
use trueup_capabilities::random::Seeded;
use trueup_capabilities::{Answer, Backends};

use super::operations::{Ended, Operations};
use crate::board::Board;
use crate::config::{Config, Neg, NegBackend};
use crate::guests::neg;
use crate::run::active::Active;
use crate::run::setup::{Version, stream_of};
use crate::run::{Ground, SetupError};
use crate::swap::Revisions;

/// So many ends wait to be taken in by the loop, which takes them at once.
const ENDS_WAITING_MAX: usize = 1_024;

/// Everything that a run of NEGs works with.
pub(crate) struct NegSetup {
    /// The version of the guest that decides.
    pub(crate) active: Arc<Active>,
    /// Those that did.
    pub(crate) revisions: Revisions,
    /// What the configuration wishes for was refused: why.
    pub(crate) problem: Option<String>,
    /// Who starts operations.
    pub(super) operations: Arc<dyn Operations>,
    /// All metrics of this process.
    pub(super) metrics: Arc<Metrics>,
    pub(super) board: Arc<Board>,
    quotas: Arc<Quotas>,
    audit: Option<Arc<Audit>>,
}

impl NegSetup {
    /// Loads the guest, has it accept its settings, and connects to Compute Engine, which is started where it is simulated.
    /// With it comes where ends of operations are told, for the one loop that takes them.
    ///
    /// # Errors
    /// One line: what can't be used.
    pub(crate) async fn new(
        config: &Config,
        neg: &Neg,
        ground: &Ground,
    ) -> Result<(Self, mpsc::Receiver<Ended>), SetupError> {
        warn_of_missing_grants(neg);
        let Version {
            instances,
            revisions,
            problem,
        } = ground.version(config, neg::NAME, neg::WORLD, &neg.guest).await?;
        let (ended, ends) = mpsc::channel(ENDS_WAITING_MAX);
        let operations = connect(neg, ended)?;
        let setup = Self {
            active: Active::new(Arc::new(instances)),
            revisions,
            problem,
            operations,
            metrics: Arc::clone(&ground.metrics),
            board: Arc::clone(&ground.board),
            quotas: Arc::default(),
            audit: ground.audit.clone(),
        };
        Ok((setup, ends))
    }

    /// Whether it could be made, beside one that runs: the guest is to be had and passes, the backend's settings fit.
    ///
    /// # Errors
    /// One line: what can't be used.
    pub(crate) async fn check(config: &Config, neg: &Neg, ground: &Ground) -> Result<(), SetupError> {
        let version = ground.version(config, neg::NAME, neg::WORLD, &neg.guest).await?;
        version.check_wish()
    }

    /// Ends what was started for this run.
    pub(crate) async fn stop(self) {}

    /// What answers the instance of `key`, but for the API itself.
    pub(super) fn backends(&self, seed: u64, key: &str) -> Backends {
        Backends {
            random: Arc::new(Seeded::new(seed, stream_of(key))),
            metrics: Arc::clone(&self.metrics),
            quotas: Arc::clone(&self.quotas),
            audit: self.audit.clone(),
            usage: Arc::clone(&self.active.usage),
            ..Backends::default()
        }
    }
}

/// A guest without any grant for NEGs fails at each call: said once, at the start.
fn warn_of_missing_grants(neg: &Neg) {
    let grant = neg.guest.grants.grant(NEG);
    let scopes = |access| {
        grant.is_some_and(|grant| match access {
            Access::Read => !grant.read.is_empty(),
            Access::Write => !grant.write.is_empty(),
        })
    };
    for access in [Access::Read, Access::Write] {
        if !scopes(access) {
            tracing::warn!(
                "[guests.neg] has no grant to {access} any NEG (`neg = {{ {access} = [\"NAME@ZONE\"] }}`): its calls will be refused"
            );
        }
    }
}

fn connect(neg: &Neg, ended: mpsc::Sender<Ended>) -> Result<Arc<dyn Operations>, SetupError> {
    match &neg.backend {
        NegBackend::Compute(_) => Err(SetupError::Misused("compute".to_owned())),
        NegBackend::Simulated => Ok(Arc::new(InProcess::new(ended))),
    }
}

/// NEGs in this process, empty at every start, whose operations end as soon as they are started.
struct InProcess {
    negs: Arc<Simulated>,
    /// Those whose end was not told: instance and number.
    untold: Arc<Mutex<BTreeSet<(String, u64)>>>,
    ended: mpsc::Sender<Ended>,
}

impl InProcess {
    fn new(ended: mpsc::Sender<Ended>) -> Self {
        Self {
            negs: Arc::new(Simulated::new(Arc::new(Faults::default()))),
            untold: Arc::default(),
            ended,
        }
    }

    fn untold(&self) -> MutexGuard<'_, BTreeSet<(String, u64)>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Operations for InProcess {
    fn api(&self, instance: &str) -> Arc<dyn Api> {
        Arc::new(OfInstance {
            instance: instance.to_owned(),
            negs: Arc::clone(&self.negs),
            untold: Arc::clone(&self.untold),
            ended: self.ended.clone(),
        })
    }

    fn is_pending(&self, instance: &str, operation: u64) -> bool {
        self.untold().contains(&(instance.to_owned(), operation))
    }

    fn told<'a>(&'a self, instance: &'a str, operation: u64) -> Answer<'a, ()> {
        self.untold().remove(&(instance.to_owned(), operation));
        Box::pin(std::future::ready(()))
    }
}

/// The same, as one instance asks it.
struct OfInstance {
    instance: String,
    negs: Arc<Simulated>,
    untold: Arc<Mutex<BTreeSet<(String, u64)>>>,
    ended: mpsc::Sender<Ended>,
}

impl OfInstance {
    async fn end(&self, started: Result<u64, Error>) -> Result<u64, Error> {
        let operation = started?;
        self.untold
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((self.instance.clone(), operation));
        self.negs.end(operation, true);
        // A loop that is gone is told nothing, and nothing of this outlives it.
        let ended = Ended {
            instance: self.instance.clone(),
            operation,
            failure: None,
        };
        let _ = self.ended.send(ended).await;
        Ok(operation)
    }
}

impl Api for OfInstance {
    fn ensure<'a>(&'a self, neg: &'a NegRef, subnet: &'a str, request: RequestId) -> Answer<'a, Result<bool, Error>> {
        self.negs.ensure(neg, subnet, request)
    }

    fn list_endpoints<'a>(&'a self, neg: &'a NegRef) -> Answer<'a, Result<Vec<Endpoint>, Error>> {
        self.negs.list_endpoints(neg)
    }

    fn attach<'a>(
        &'a self,
        neg: &'a NegRef,
        endpoints: &'a [Endpoint],
        request: RequestId,
    ) -> Answer<'a, Result<u64, Error>> {
        Box::pin(async move { self.end(self.negs.attach(neg, endpoints, request).await).await })
    }

    fn detach<'a>(
        &'a self,
        neg: &'a NegRef,
        endpoints: &'a [Endpoint],
        request: RequestId,
    ) -> Answer<'a, Result<u64, Error>> {
        Box::pin(async move { self.end(self.negs.detach(neg, endpoints, request).await).await })
    }
}

//! What a run of NEGs needs before it begins: the guest, and Compute Engine or its simulation.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use trueup_base::fence::Fence;
use trueup_capabilities::audit::Audit;
use trueup_capabilities::grants::{Access, NEG};
use trueup_capabilities::metrics::Registry as Metrics;
use trueup_capabilities::neg::compute::{self, Compute, Credentials};
use trueup_capabilities::neg::simulated::Simulated;
use trueup_capabilities::neg::{Api, Endpoint, Error, NegRef, Reads, RequestId};
use trueup_capabilities::quota::Quotas;
use trueup_capabilities::random::Seeded;
use trueup_capabilities::{Answer, Backends};
use trueup_config::{
    Backend as _, ComputeBackend, ComputeSim, Config, CredentialsAt, Neg, NegBackend, SIM_TOKEN, TokenAt,
};
use trueup_sims::Server;
use trueup_work::board::Board;
use trueup_work::ground::{Ground, Version, stream_of};
use trueup_work::instances::Instances;
use trueup_work::lifecycle::active::Active;
use trueup_work::needs::NoGrant;
use trueup_work::setup::{SetupError, read_token};

use super::operations::{Ended, Operations};
use crate::neg::guest;

/// The file in the state folder's `neg` with the operations of whose end the guest does not know yet.
const OPERATIONS_FILE: &str = "operations.redb";

/// The maximum number of ends that wait for the loop, which takes them at once.
const ENDS_WAITING_MAX: usize = 1_024;

/// Everything that a run of NEGs needs.
pub(crate) struct NegSetup {
    /// The version of the guest that decides.
    pub(crate) active: Arc<Active>,
    /// The same, until it is connected with its manager.
    pub(crate) version: Option<Version>,
    /// Starts operations.
    pub(super) operations: Arc<dyn Operations>,
    /// Their ends, until the one loop has them that takes them.
    pub(super) ends: Option<mpsc::Receiver<Ended>>,
    /// The simulated Compute Engine that was started for this run.
    simulated: Option<Server>,
    /// All metrics of this process.
    pub(super) metrics: Arc<Metrics>,
    pub(super) board: Arc<Board>,
    audit: Option<Arc<Audit>>,
}

impl NegSetup {
    /// Loads the guest, has it accept its settings, and connects to Compute Engine. Starts a simulated one first.
    ///
    /// # Errors
    /// One line: what can't be used.
    pub(crate) async fn new(config: &Config, neg: &Neg, ground: &Ground, fence: Fence) -> Result<Self, SetupError> {
        no_grants(neg).iter().for_each(|missing| tracing::warn!("{missing}"));
        let version = ground.version(config, guest::NAME, guest::WORLDS, &neg.guest).await?;
        let simulated = match &neg.sim {
            Some(sim) => Some(start_simulated(sim, ground.plans()).await?),
            None => None,
        };
        if let Some(server) = &simulated {
            ground.note_server(config, NegBackend::SIM, server.local_addr())?;
        }
        let (operations, ends) = connect(config, neg, simulated.as_ref(), fence)?;
        Ok(Self {
            active: Arc::clone(&version.active),
            version: Some(version),
            operations,
            ends: Some(ends),
            simulated,
            metrics: Arc::clone(&ground.metrics),
            board: Arc::clone(&ground.board),
            audit: ground.audit.clone(),
        })
    }

    /// Stops what was started for this run.
    pub(crate) async fn stop(self) {
        // Dropping the backend ends its polling of operations.
        drop(self.operations);
        if let Some(simulated) = self.simulated {
            simulated.stop().await;
        }
    }

    /// The backends of the instance of `key`, without the API itself.
    pub(super) fn backends(&self, seed: u64, key: &str) -> Backends {
        Backends {
            random: Arc::new(Seeded::new(seed, stream_of(key))),
            metrics: Arc::clone(&self.metrics),
            quotas: Arc::clone(&self.active.quotas),
            audit: self.audit.clone(),
            ..Backends::default()
        }
    }
}

/// Everything that a plan of NEGs needs: the guest, and read access to Compute Engine.
pub(super) struct Looking {
    /// The version of the guest that decides.
    pub(super) instances: Arc<Instances>,
    /// Reads the NEGs as they are.
    pub(super) reads: Arc<dyn Reads>,
    pub(super) quotas: Arc<Quotas>,
    simulated: Option<Server>,
}

impl Looking {
    /// Loads the guest, has it accept its settings, and connects to Compute Engine. Starts a simulated one first.
    /// Does not touch the operations of a running host.
    ///
    /// # Errors
    /// One line: what can't be used.
    pub(super) async fn new(config: &Config, neg: &Neg, ground: &Ground) -> Result<Self, SetupError> {
        no_grants(neg).iter().for_each(|missing| tracing::warn!("{missing}"));
        let version = ground.version(config, guest::NAME, guest::WORLDS, &neg.guest).await?;
        let simulated = match &neg.sim {
            Some(sim) => Some(start_simulated(sim, ground.plans()).await?),
            None => None,
        };
        let reads: Arc<dyn Reads> = match &neg.backend {
            NegBackend::Compute(backend) => reads(backend, simulated.as_ref().map(Server::local_addr))?,
            NegBackend::Simulated => Arc::new(Simulated::default()),
        };
        Ok(Self {
            instances: version.active.instances(),
            reads,
            quotas: Arc::default(),
            simulated,
        })
    }

    /// Stops what was started for this plan.
    pub(super) async fn stop(self) {
        if let Some(simulated) = self.simulated {
            simulated.stop().await;
        }
    }
}

/// A guest without any grant for NEGs fails at each call.
pub(super) fn no_grants(neg: &Neg) -> Vec<NoGrant> {
    let grant = neg.guest.grants.grant(NEG);
    let has = |access| {
        grant.is_some_and(|grant| match access {
            Access::Read => !grant.read.is_empty(),
            Access::Write => !grant.write.is_empty(),
        })
    };
    let missing = [Access::Read, Access::Write].into_iter().filter(|access| !has(*access));
    missing
        .map(|access| NoGrant::new(guest::NAME, access, "any NEG", (NEG, "\"NAME@ZONE\"")))
        .collect()
}

/// Compute Engine for a caller that changes nothing. `simulated`: where the host's own one listens.
pub(super) fn reads(backend: &ComputeBackend, simulated: Option<SocketAddr>) -> Result<Arc<dyn Reads>, SetupError> {
    let credentials = credentials(&backend.credentials)?;
    let store = Arc::new(compute::Operations::in_memory().map_err(SetupError::failed)?);
    let connected = Compute::new(backend.settings(simulated), credentials, store, Fence::open());
    // It starts no operation, so none ends.
    let (compute, _) = connected.map_err(SetupError::misused)?;
    Ok(compute.reads())
}

/// What starts operations, and the receiver of their ends. Sends nothing to Compute Engine while `fence` lets nothing
/// through.
fn connect(
    config: &Config,
    neg: &Neg,
    simulated: Option<&Server>,
    fence: Fence,
) -> Result<(Arc<dyn Operations>, mpsc::Receiver<Ended>), SetupError> {
    match &neg.backend {
        NegBackend::Compute(backend) => {
            let settings = backend.settings(simulated.map(Server::local_addr));
            let credentials = credentials(&backend.credentials)?;
            let file = config.state_dir.join(guest::NAME).join(OPERATIONS_FILE);
            let store = Arc::new(compute::Operations::open(&file).map_err(SetupError::failed)?);
            let (compute, ends) = Compute::new(settings, credentials, store, fence).map_err(SetupError::misused)?;
            Ok((Arc::new(compute), ends))
        }
        NegBackend::Simulated => {
            let (ended, ends) = mpsc::channel(ENDS_WAITING_MAX);
            Ok((Arc::new(InProcess::new(ended)), ends))
        }
    }
}

fn credentials(at: &CredentialsAt) -> Result<Credentials, SetupError> {
    match at {
        CredentialsAt::Token(TokenAt::File(file)) => Ok(Credentials::token_file(file)),
        CredentialsAt::Token(at @ TokenAt::Variable(_)) => {
            let token = read_token(at, "the token of [backend.neg]")?;
            Credentials::fixed(token.trim()).map_err(SetupError::misused)
        }
        CredentialsAt::KeyFile(file) => Credentials::credentials_file(file).map_err(SetupError::misused),
        CredentialsAt::ApplicationDefault => Credentials::application_default().map_err(SetupError::misused),
        CredentialsAt::Simulated => Credentials::fixed(SIM_TOKEN).map_err(SetupError::misused),
    }
}

async fn start_simulated(sim: &ComputeSim, is_trial: bool) -> Result<Server, SetupError> {
    let token = match &sim.token {
        Some(at) => Some(
            read_token(at, "the simulated Compute Engine's token")?
                .trim()
                .to_owned(),
        ),
        None => None,
    };
    let mut config = sim.server(token);
    config.is_trial = is_trial;
    let server = trueup_sims::compute::start(config, sim.listen)
        .await
        .map_err(SetupError::failed)?;
    tracing::info!("simulated Compute Engine listens on http://{}", server.local_addr());
    Ok(server)
}

impl Operations for Compute {
    fn api(&self, instance: &str) -> Arc<dyn Api> {
        self.of_this_epoch().of(instance)
    }

    fn is_pending(&self, instance: &str, operation: u64) -> bool {
        let mut under_way = self.under_way().into_iter();
        under_way.any(|(of, number)| of == instance && number == operation)
    }

    fn told<'a>(&'a self, instance: &'a str, operation: u64) -> Answer<'a, ()> {
        Box::pin(async move {
            if let Err(error) = self.acknowledge(instance, operation).await {
                tracing::warn!(
                    instance,
                    operation,
                    "its end is told again after the next start: {error}"
                );
            }
        })
    }
}

/// NEGs in this process. They are empty at every start, and their operations end as soon as they are started.
struct InProcess {
    negs: Arc<Simulated>,
    /// Operations of whose end the guest does not know yet: instance and number.
    untold: Arc<Mutex<BTreeSet<(String, u64)>>>,
    ended: mpsc::Sender<Ended>,
}

impl InProcess {
    fn new(ended: mpsc::Sender<Ended>) -> Self {
        Self {
            negs: Arc::new(Simulated::default()),
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

/// The same API, for one instance.
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
        // Ignore the error: if the loop is gone, nothing of this outlives it.
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

    fn change<'a>(
        &'a self,
        attaches: bool,
        neg: &'a NegRef,
        endpoints: &'a [Endpoint],
        request: RequestId,
    ) -> Answer<'a, Result<u64, Error>> {
        Box::pin(async move {
            let started = self.negs.change(attaches, neg, endpoints, request).await;
            self.end(started).await
        })
    }
}

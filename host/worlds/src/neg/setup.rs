//! What a run of NEGs needs before it begins: the guest, and Compute Engine or its simulation.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use trueup_base::fence::Fence;
use trueup_capabilities::async_trait;
use trueup_capabilities::grants::{Access, NEG};
use trueup_capabilities::neg::compute::{self, Compute, Credentials};
use trueup_capabilities::neg::simulated::Simulated;
use trueup_capabilities::neg::{Api, Reads};
use trueup_config::{
    Backend as _, ComputeBackend, ComputeSim, Config, CredentialsAt, Neg, NegBackend, SIM_TOKEN, TokenAt,
};
use trueup_sims::Server;
use trueup_work::host_context::HostContext;
use trueup_work::keyed::KeyedSetup;
use trueup_work::needs::NoGrant;
use trueup_work::setup::{SetupError, read_token};

use super::operations::{Ended, Operations};
use crate::neg::guest;

/// The file in the state folder's `neg` with the operations of whose end the guest does not know yet.
const OPERATIONS_FILE: &str = "operations.redb";

/// The maximum number of ends that wait for the loop, which takes them at once.
const ENDS_WAITING_MAX: usize = 1_024;

/// Everything that a run or a plan of NEGs needs.
pub(crate) struct NegSetup<'c> {
    pub(super) keyed: KeyedSetup<'c>,
    pub(super) neg: &'c Neg,
    /// Starts operations. A plan starts none.
    pub(super) operations: Arc<dyn Operations>,
    /// Their ends, until the one loop has them that takes them.
    pub(super) ends: Option<mpsc::Receiver<Ended>>,
    /// The simulated Compute Engine that was started for this run.
    pub(super) simulated: Option<Server>,
}

impl<'c> NegSetup<'c> {
    /// Loads the guest, has it accept its settings, and connects to Compute Engine. Starts a simulated one first. A
    /// plan does not touch the operations of a running host. `None` if the configuration does not name NEGs.
    ///
    /// # Errors
    /// One line: what can't be used.
    pub(super) async fn new(
        config: &'c Config,
        host_context: &'c HostContext,
        fence: Fence,
    ) -> Result<Option<Self>, SetupError> {
        let Some(neg) = config.world::<Neg>() else {
            return Ok(None);
        };
        no_grants(neg).iter().for_each(|missing| tracing::warn!("{missing}"));
        let (guest, section) = ((guest::NAME, guest::WORLDS), (&neg.guest, &neg.source));
        let keyed = KeyedSetup::new((config, host_context), guest, section).await?;
        let simulated = match &neg.sim {
            Some(sim) => Some(start_simulated(sim, host_context.plans()).await?),
            None => None,
        };
        if let Some(server) = &simulated {
            host_context.note_server(config, NegBackend::SIM, server.local_addr())?;
        }
        let (operations, ends) = match &neg.backend {
            NegBackend::Compute(backend) if !host_context.plans() => {
                connect(config, backend, simulated.as_ref(), fence)?
            }
            NegBackend::Compute(_) | NegBackend::Simulated => InProcess::start(),
        };
        Ok(Some(Self {
            keyed,
            neg,
            operations,
            ends: Some(ends),
            simulated,
        }))
    }

    /// Reads the NEGs as they are, for a plan.
    pub(super) fn reads(&self) -> Result<Arc<dyn Reads>, SetupError> {
        match &self.neg.backend {
            NegBackend::Compute(backend) => reads(backend, self.simulated.as_ref().map(Server::local_addr)),
            NegBackend::Simulated => Ok(Arc::new(Simulated::default())),
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

/// What starts operations, and the receiver of their ends.
type Connected = (Arc<dyn Operations>, mpsc::Receiver<Ended>);

/// Sends nothing to Compute Engine while `fence` lets nothing through.
fn connect(
    config: &Config,
    backend: &ComputeBackend,
    simulated: Option<&Server>,
    fence: Fence,
) -> Result<Connected, SetupError> {
    let settings = backend.settings(simulated.map(Server::local_addr));
    let credentials = credentials(&backend.credentials)?;
    let file = config.state_dir.join(guest::NAME).join(OPERATIONS_FILE);
    let store = Arc::new(compute::Operations::open(&file).map_err(SetupError::failed)?);
    let (compute, ends) = Compute::new(settings, credentials, store, fence).map_err(SetupError::misused)?;
    Ok((Arc::new(compute), ends))
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

#[async_trait]
impl Operations for Compute {
    fn api(&self, instance: &str) -> Arc<dyn Api> {
        self.of_this_epoch().of(instance)
    }

    fn is_pending(&self, instance: &str, operation: u64) -> bool {
        let mut under_way = self.under_way().into_iter();
        under_way.any(|(of, number)| of == instance && number == operation)
    }

    async fn acknowledged(&self, instance: &str, operation: u64) {
        if let Err(error) = self.acknowledge(instance, operation).await {
            tracing::warn!(
                instance,
                operation,
                "the guest gets its end again after the next start: {error}"
            );
        }
    }
}

/// NEGs in this process. They are empty at every start, and their operations end as soon as they are started.
struct InProcess {
    negs: Arc<Simulated>,
    /// Operations of whose end the guest does not know yet: instance and number.
    pending: Mutex<BTreeSet<(String, u64)>>,
    ended: mpsc::Sender<Ended>,
}

impl InProcess {
    fn start() -> Connected {
        let (ended, ends) = mpsc::channel(ENDS_WAITING_MAX);
        let this = Self {
            negs: Arc::new(Simulated::default()),
            pending: Mutex::default(),
            ended,
        };
        (Arc::new(this), ends)
    }
}

#[async_trait]
impl Operations for InProcess {
    fn api(&self, _instance: &str) -> Arc<dyn Api> {
        Arc::<Simulated>::clone(&self.negs)
    }

    async fn started(&self, instance: &str, operation: u64) {
        self.pending.lock().insert((instance.to_owned(), operation));
        self.negs.end(operation, true);
        let ended = Ended {
            instance: instance.to_owned(),
            operation,
            failure: None,
        };
        // Ignore the error: if the loop is gone, nothing of this outlives it.
        let _ = self.ended.send(ended).await;
    }

    fn is_pending(&self, instance: &str, operation: u64) -> bool {
        self.pending.lock().contains(&(instance.to_owned(), operation))
    }

    async fn acknowledged(&self, instance: &str, operation: u64) {
        self.pending.lock().remove(&(instance.to_owned(), operation));
    }
}

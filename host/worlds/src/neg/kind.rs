//! NEGs as a kind of work: what they need before a run, what a run sets up (the guest, and Compute Engine or its
//! simulation), and how it begins and ends.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use trueup_base::fence::Fence;
use trueup_capabilities::async_trait;
use trueup_capabilities::grants::{Access, NEG};
use trueup_capabilities::neg::compute::{self, Compute, Credentials};
use trueup_capabilities::neg::simulated::Simulated;
use trueup_capabilities::neg::{Api, Error, NegRef, Reads};
use trueup_config::{
    self as config, AdminAt, Backend as _, ComputeBackend, Config, CredentialsAt, Neg, NegBackend, SIM_TOKEN, TokenAt,
};
use trueup_sims::Server;
use trueup_work::keyed::KeyedSetup;
use trueup_work::kind::{self, Begin, Fallible, Kind, Loop, On, Planning, Ready};
use trueup_work::needs::{Needs, NoGrant, Probe, Problem};
use trueup_work::plan::Plan;
use trueup_work::setup::{SetupError, read_token};

use super::Negs;
use super::operations::{Ended, Operations};
use crate::neg::guest;

/// The maximum number of requested error states that wait. An operator sends them one by one.
const ERROR_STATES_MAX: usize = 16;

/// Network endpoint groups.
pub(crate) struct OfNegs;

impl Kind for OfNegs {
    about!(name: "negs", worlds: guest::WORLDS, sections: config::NEG, keyed_guest: Some(guest::NAME));

    fn needs<'a>(&self, config: &'a Config) -> Needs<'a> {
        config.world().map(needs).unwrap_or_default()
    }

    fn check_state(&self, config: &Config) -> Result<(), SetupError> {
        super::open_state(&config.state_dir, true).map(drop)
    }

    fn example(&self) -> &'static [(&'static str, &'static str)] {
        example!("neg": "trueup.toml", "manifests/nodes.yaml", "manifests/web.yaml")
    }

    fn set_up<'a>(&'a self, (config, host_context, _, fence): On<'a>) -> Fallible<'a, Option<Box<dyn Ready + 'a>>> {
        Box::pin(async move {
            let Some(neg) = config.world() else { return Ok(None) };
            no_grants(neg).iter().for_each(|missing| tracing::warn!("{missing}"));
            let guest = (guest::NAME, guest::WORLDS);
            let section = (&neg.guest, &neg.source);
            let keyed = KeyedSetup::new((config, host_context), guest, section).await?;
            let simulated = match &neg.sim {
                Some(sim) => {
                    let read = |at| read_token(at, "the simulated Compute Engine's token");
                    let token = sim.token.as_ref().map(read).transpose()?;
                    let mut server = sim.server(token.map(|token| token.trim().to_owned()));
                    server.is_trial = host_context.plans();
                    let server = trueup_sims::compute::start(server, sim.listen).await;
                    let on = (config, host_context);
                    Some(crate::started(server, "Compute Engine", NegBackend::SIM, on)?)
                }
                None => None,
            };
            let (operations, ends) = match &neg.backend {
                NegBackend::Remote(backend) if !host_context.plans() => {
                    connect(config, backend, simulated.as_ref(), fence)?
                }
                // A plan does not touch the operations of a running host.
                NegBackend::Remote(_) | NegBackend::Simulated => {
                    let (ended, ends) = mpsc::channel(ENDS_WAITING_MAX);
                    let (negs, pending) = (Arc::default(), Mutex::default());
                    (Arc::new(InProcess { negs, pending, ended }) as _, ends)
                }
            };
            Ok(Some(Box::new(NegSetup {
                keyed,
                neg,
                operations,
                ends: Some(ends),
                simulated,
            }) as _))
        })
    }
}

impl Ready for NegSetup<'_> {
    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError> {
        let Some(ends) = self.ends.take() else {
            return Ok(kind::nothing());
        };
        let (set_error_state, error_states) = mpsc::channel(ERROR_STATES_MAX);
        with.error_states = Some(set_error_state);
        let (setup, once): (&Self, _) = (self, with.context.is_once());
        with.keyed(&setup.keyed, |quarantine, _| {
            Negs::new(setup, once, quarantine, (ends, error_states))
        })
    }

    fn plan<'a>(&'a mut self, of: Planning<'a>, plan: &'a mut Plan) -> Fallible<'a, ()> {
        Box::pin(super::plan::plan(self, of, plan))
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        // Dropping the backend ends its polling of operations.
        Box::pin(crate::stop(self.simulated))
    }
}

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
    ends: Option<mpsc::Receiver<Ended>>,
    /// The simulated Compute Engine that was started for this run.
    pub(super) simulated: Option<Server>,
}

/// A guest without any grant for NEGs fails at each call.
fn no_grants(neg: &Neg) -> Vec<NoGrant> {
    let mut missing = vec![Access::Read, Access::Write];
    missing.retain(|access| !neg.guest.grants.allow_some(NEG, *access));
    let no_grant = |access| NoGrant::new(guest::NAME, access, "any NEG", (NEG, "\"NAME@ZONE\""));
    missing.into_iter().map(no_grant).collect()
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
    backend: &ComputeBackend,
    simulated: Option<&Server>,
    fence: Fence,
) -> Result<(Arc<dyn Operations>, mpsc::Receiver<Ended>), SetupError> {
    let settings = backend.settings(simulated.map(Server::local_addr));
    let credentials = credentials(&backend.credentials)?;
    let file = config.state_dir.join(guest::NAME).join(OPERATIONS_FILE);
    let store = Arc::new(compute::Operations::open(&file).map_err(SetupError::failed)?);
    let (compute, ends) = Compute::new(settings, credentials, store, fence).map_err(SetupError::misused)?;
    Ok((Arc::new(compute), ends))
}

fn credentials(at: &CredentialsAt) -> Result<Credentials, SetupError> {
    let credentials = match at {
        CredentialsAt::Token(TokenAt::File(file)) => Ok(Credentials::token_file(file)),
        CredentialsAt::Token(at @ TokenAt::Variable(_)) => {
            Credentials::fixed(read_token(at, "the token of [backend.neg]")?.trim())
        }
        CredentialsAt::KeyFile(file) => Credentials::credentials_file(file),
        CredentialsAt::ApplicationDefault => Credentials::application_default(),
        CredentialsAt::Simulated => Credentials::fixed(SIM_TOKEN),
    };
    credentials.map_err(SetupError::misused)
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
            let again = "the guest gets its end again after the next start";
            tracing::warn!(instance, operation, "{again}: {error}");
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

/// What a check calls Compute Engine.
const COMPUTE: &str = "Compute Engine";

/// The NEG that a check asks for. It need not exist.
const ASKED_FOR: &str = "trueup-check";

/// The zone in which it asks if the configuration names none. Every project has it.
const ZONE: &str = "us-central1-a";

/// Why a simulated one is wrong for a cluster, and what to do.
const ON_CLUSTER: (&str, &str) = (
    "a run makes no NEG for it",
    "for the real one, give [backend.neg] `kind = \"compute\"`, and leave out [sim.compute]; else name a cluster for trials",
);

fn needs(neg: &Neg) -> Needs<'_> {
    let mut needs = Needs {
        guests: vec![(guest::NAME, guest::WORLDS, neg.guest.clone())],
        no_grants: Some(no_grants(neg)),
        ..Needs::default()
    };
    match backend(neg, &mut needs) {
        Ok(look) => needs.looks.push(look),
        Err(error) => needs.unusable = Some(error),
    }
    needs
}

/// How Compute Engine is asked. Adds where it is.
fn backend<'a>(neg: &'a Neg, needs: &mut Needs<'a>) -> Result<Probe<'a>, SetupError> {
    let sim = neg.sim.as_ref();
    if let Some(sim) = sim {
        needs.listens.push(("sim.compute.listen", AdminAt::Tcp(sim.listen)));
    }
    let NegBackend::Remote(backend) = &neg.backend else {
        return Ok(Probe::simulated(COMPUTE, "simulated, in memory", ON_CLUSTER));
    };
    let reads = reads(backend, sim.map(|sim| sim.listen))?;
    if sim.is_some() {
        return Ok(Probe::simulated(COMPUTE, "simulated: the host starts it", ON_CLUSTER));
    }
    let settings = backend.settings(None);
    needs.servers.push(settings.endpoint.clone());
    let zone = neg.adapter.zones.first().map_or(ZONE, String::as_str);
    Ok(Probe::new(COMPUTE, async move {
        let (name, zone) = (ASKED_FOR.to_owned(), zone.to_owned());
        let (project, endpoint) = (&settings.project, &settings.endpoint);
        let error = match reads.endpoints(&NegRef { name, zone }).await {
            Ok(_) | Err(Error::NotFound) => {
                return Ok(format!("{endpoint} takes the credentials, project {project}"));
            }
            Err(error) => error,
        };
        let network =
            format!("curl -sS {endpoint}: if that fails too, correct `url` of [backend.neg], a proxy or the network");
        let (what, next) = match error {
            Error::Unauthorized => (
                "refuses the credentials".to_owned(),
                "correct `credentials_file` or `token_file` of [backend.neg]".to_owned(),
            ),
            Error::Refused((status, text)) => (
                format!("refuses the request: {status} {text}"),
                format!(
                    "correct `project` of [backend.neg], or grant its account roles/compute.networkAdmin in {project}"
                ),
            ),
            Error::Unavailable(text) => (text, network),
            other => (format!("{other:?}"), network),
        };
        Err(Problem::new(format!("{endpoint}, project {project}: {what}"), next))
    }))
}

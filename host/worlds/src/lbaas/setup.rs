//! What a run and a plan of Services need before they begin: the guest, and the Engine.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use trueup_base::clock::SystemClock;
use trueup_base::fence::Fence;
use trueup_capabilities::faults::Faults;
use trueup_capabilities::grants::Access;
use trueup_capabilities::lbaas::anexia::{Anexia, Owned, RequestMetrics, token};
use trueup_capabilities::lbaas::simulated::Simulated;
use trueup_capabilities::lbaas::{Api, State};
use trueup_capabilities::metrics::{Line, Origin, Registry as Metrics};
use trueup_config::{Backend as _, Config, Lbaas, LbaasBackend, LbaasSim};
use trueup_sims::Server;
use trueup_sims::lbaas::ServerConfig;
use trueup_work::host_context::HostContext;
use trueup_work::keyed::KeyedSetup;
use trueup_work::needs::NoGrant;
use trueup_work::setup::{SetupError, read_token};

use crate::lbaas::guest;

/// The subfolder of the state folder that holds intents: what is about to be created, by guest name.
const INTENTS: &str = "intents";

/// Everything that a run or a plan of Services needs.
pub(crate) struct Setup<'c> {
    pub(super) keyed: KeyedSetup<'c>,
    pub(super) lbaas: &'c Lbaas,
    /// The Engine.
    api: Arc<dyn Api>,
    /// The same, if it is an Engine over HTTP, which can list orphans.
    pub(super) anexia: Option<Arc<Anexia>>,
    /// The simulated Engine that was started for this run.
    pub(super) simulated_engine: Option<Server>,
}

impl<'c> Setup<'c> {
    /// Loads the guest, has it accept its settings, and connects to the Engine. Starts a simulated Engine first.
    /// `fence` decides how long requests are let through. `None` if the configuration does not name Services.
    ///
    /// # Errors
    /// One line: what can't be used.
    pub(super) async fn new(
        config: &'c Config,
        host_context: &'c HostContext,
        fence: Fence,
    ) -> Result<Option<Self>, SetupError> {
        let Some(lbaas) = config.world::<Lbaas>() else {
            return Ok(None);
        };
        no_grants(lbaas).iter().for_each(|missing| tracing::warn!("{missing}"));
        let (guest, section) = ((guest::NAME, guest::WORLDS), (&lbaas.guest, &lbaas.source));
        let keyed = KeyedSetup::new((config, host_context), guest, section).await?;
        let simulated_engine = match &lbaas.sim {
            Some(sim) => Some(start_engine(sim, host_context.plans()).await?),
            None => None,
        };
        let address = simulated_engine.as_ref().map(Server::local_addr);
        if let Some(address) = address {
            host_context.note_server(config, LbaasBackend::SIM, address)?;
        }
        let intents = config.state_dir.join(INTENTS).join(guest::NAME);
        let (api, anexia) = connect(lbaas, address, &host_context.metrics, fence, Some(&intents))?;
        Ok(Some(Self {
            keyed,
            lbaas,
            api,
            anexia,
            simulated_engine,
        }))
    }

    /// The Engine for the turn of this Service. It accepts no more requests of the turn once another host may have
    /// acted.
    pub(super) fn api_of(&self, mut owned: Owned) -> Arc<dyn Api> {
        let grants = &self.keyed.active.instances().grants;
        owned
            .load_balancers
            .retain(|identifier| grants.allow(guest::NAME, Access::Write, identifier));
        match &self.anexia {
            Some(anexia) => Arc::new(anexia.of_this_epoch(owned)),
            None => Arc::clone(&self.api),
        }
    }
}

/// The setting that says how long a request to the Engine may take, and its value. `None` without an Engine over HTTP.
pub(crate) fn request_timeout(lbaas: &Lbaas) -> Option<(&'static str, Duration)> {
    let LbaasBackend::Anexia(engine) = &lbaas.backend else {
        return None;
    };
    let timeout = Duration::from_millis(engine.settings(None).request_timeout_ms);
    Some(("backend.lbaas.request_timeout_ms", timeout))
}

/// A guest without the grants it needs fails at each call.
pub(super) fn no_grants(lbaas: &Lbaas) -> Vec<NoGrant> {
    let all = lbaas.adapter.load_balancers.iter();
    let each = all.flat_map(|load_balancer| [Access::Read, Access::Write].map(|access| (load_balancer, access)));
    let missing = each.filter(|(load_balancer, access)| !lbaas.guest.grants.allow(guest::NAME, *access, load_balancer));
    missing
        .map(|(load_balancer, access)| {
            let what = format!("load balancer `{load_balancer}` of [adapter.lbaas]");
            let scope = format!("\"{load_balancer}\"");
            NoGrant::new(guest::NAME, access, what, (guest::NAME, &scope))
        })
        .collect()
}

/// The Engine, and the same again if it is one over HTTP.
pub(super) type Connected = (Arc<dyn Api>, Option<Arc<Anexia>>);

pub(super) fn connect(
    lbaas: &Lbaas,
    simulated: Option<SocketAddr>,
    metrics: &Arc<Metrics>,
    fence: Fence,
    intents: Option<&Path>,
) -> Result<Connected, SetupError> {
    match &lbaas.backend {
        LbaasBackend::Anexia(backend) => {
            let settings = backend.settings(simulated);
            let token = token::read(&settings.token).map_err(SetupError::misused)?;
            let metrics = EngineMetrics {
                metrics: Arc::clone(metrics),
                in_flight: AtomicI64::new(0),
            };
            let anexia =
                Anexia::new(settings, token, Arc::new(metrics), fence, intents).map_err(SetupError::misused)?;
            let anexia = Arc::new(anexia);
            Ok((Arc::<Anexia>::clone(&anexia), Some(anexia)))
        }
        LbaasBackend::Simulated => {
            let engine = Simulated::new(Arc::new(SystemClock), Arc::new(Faults::default()), 0);
            for identifier in &lbaas.adapter.load_balancers {
                engine.put_load_balancer(identifier.clone(), State::Ok);
            }
            Ok((Arc::new(engine), None))
        }
    }
}

/// The name of the simulated Engine's token in messages.
pub(super) const SIMULATED_ENGINES_TOKEN: &str = "the simulated Engine's token";

async fn start_engine(sim: &LbaasSim, is_trial: bool) -> Result<Server, SetupError> {
    let token = read_token(&sim.token, SIMULATED_ENGINES_TOKEN)?;
    let config = ServerConfig {
        is_trial,
        ..sim.server(token.trim())
    };
    let engine = trueup_sims::lbaas::start(config, sim.listen)
        .await
        .map_err(SetupError::failed)?;
    tracing::info!("simulated Engine listens on http://{}", engine.local_addr());
    Ok(engine)
}

/// Exports the backend's requests as metrics of the host.
struct EngineMetrics {
    metrics: Arc<Metrics>,
    in_flight: AtomicI64,
}

impl RequestMetrics for EngineMetrics {
    fn request(&self, resource: &str, method: &str, status: &str) {
        let labels = [("resource", resource), ("method", method), ("status", status)];
        self.metrics.count("trueup_engine_requests_total", &labels, 1);
    }

    fn in_flight(&self, delta: i64) {
        let now = self.in_flight.fetch_add(delta, Ordering::Relaxed) + delta;
        #[expect(clippy::cast_precision_loss, reason = "at most as many as may run at once")]
        let now = Line::GaugeSet(now as f64);
        self.metrics
            .take(Origin::Host, "trueup_engine_requests_in_flight", &[], now);
    }
}

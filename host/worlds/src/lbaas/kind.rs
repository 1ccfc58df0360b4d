//! Services as a kind of work: what they need before a run, what a run sets up (the guest, and the Engine or its
//! simulation), and how it begins and ends.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use trueup_base::clock::SystemClock;
use trueup_base::fence::Fence;
use trueup_capabilities::faults::Faults;
use trueup_capabilities::grants::Access;
use trueup_capabilities::lbaas::anexia::{Anexia, Owned, RequestMetrics, token};
use trueup_capabilities::lbaas::simulated::Simulated;
use trueup_capabilities::lbaas::{Api, Error, State};
use trueup_capabilities::metrics::{Line, Origin, Registry as Metrics};
use trueup_config::{self as config, AdminAt, Backend as _, Config, Lbaas, LbaasBackend};
use trueup_sims::Server;
use trueup_sims::lbaas::ServerConfig;
use trueup_sources::kubernetes::Right;
use trueup_work::keyed::{self, KeyedSetup};
use trueup_work::kind::{Begin, Fallible, Kind, Loop, On, Planning, Ready};
use trueup_work::lifecycle::quarantine::Quarantine;
use trueup_work::needs::{Needs, NoGrant, Probe, Problem};
use trueup_work::plan::{Orphan, Plan};
use trueup_work::setup::{SetupError, read_token};

use super::Services;
use super::publish::Publisher;
use super::turn::describe;
use crate::lbaas::guest;

/// Load balancers for Services.
pub(crate) struct OfServices;

impl Kind for OfServices {
    about!(name: "summary", worlds: guest::WORLDS, sections: config::LBAAS, keyed_guest: Some(guest::NAME));

    fn longest_request(&self, config: &Config) -> Option<(&'static str, Duration)> {
        let LbaasBackend::Remote(engine) = &config.world::<Lbaas>()?.backend else {
            return None;
        };
        let timeout = Duration::from_millis(engine.settings(None).request_timeout_ms);
        Some(("backend.lbaas.request_timeout_ms", timeout))
    }

    fn needs<'a>(&self, config: &'a Config) -> Needs<'a> {
        config.world().map(needs).unwrap_or_default()
    }

    fn check_state(&self, config: &Config) -> Result<(), SetupError> {
        let Some(lbaas) = config.world() else { return Ok(()) };
        super::open_state(lbaas, &config.state_dir, true).map(drop)
    }

    fn example(&self) -> &'static [(&'static str, &'static str)] {
        example!("quickstart": "trueup.toml", "token", "manifests/nodes.yaml", "manifests/web.yaml")
    }

    fn set_up<'a>(&'a self, (config, host_context, _, fence): On<'a>) -> Fallible<'a, Option<Box<dyn Ready + 'a>>> {
        Box::pin(async move {
            let Some(lbaas) = config.world() else { return Ok(None) };
            no_grants(lbaas).iter().for_each(|missing| tracing::warn!("{missing}"));
            let guest = (guest::NAME, guest::WORLDS);
            let section = (&lbaas.guest, &lbaas.source);
            let keyed = KeyedSetup::new((config, host_context), guest, section).await?;
            let simulated_engine = match &lbaas.sim {
                Some(sim) => {
                    let token = read_token(&sim.token, SIMULATED_ENGINES_TOKEN)?;
                    let engine = ServerConfig {
                        is_trial: host_context.plans(),
                        ..sim.server(token.trim())
                    };
                    let engine = trueup_sims::lbaas::start(engine, sim.listen).await;
                    let on = (config, host_context);
                    Some(crate::started(engine, "Engine", LbaasBackend::SIM, on)?)
                }
                None => None,
            };
            let address = simulated_engine.as_ref().map(Server::local_addr);
            let intents = config.state_dir.join(INTENTS).join(guest::NAME);
            let (api, anexia) = connect(lbaas, address, &host_context.metrics, fence, Some(&intents))?;
            Ok(Some(Box::new(Setup {
                keyed,
                lbaas,
                api,
                anexia,
                simulated_engine,
            }) as _))
        })
    }
}

impl Ready for Setup<'_> {
    fn plan<'a>(&'a mut self, of: Planning<'a>, plan: &'a mut Plan) -> Fallible<'a, ()> {
        Box::pin(async move {
            let setup: &Self = self;
            let quarantine = Arc::new(Quarantine::load(&setup.keyed.config.state_dir, guest::NAME));
            let mut services = Services::new(setup, quarantine, Publisher::default())?;
            keyed::plan::plan(&mut services, of.name, &setup.keyed, of.all, plan).await?;
            if let Some(anexia) = setup.anexia.as_ref().filter(|_| of.orphans) {
                let load_balancers = &setup.lbaas.adapter.load_balancers;
                let found = anexia.orphans(load_balancers, services.uids()).await;
                let found = found.map_err(|error| {
                    let words = describe(&guest::Error::Api(error));
                    SetupError::Failed(format!("listing orphans: {words}"))
                })?;
                let orphans = found.into_iter().map(|(object, service_uid)| Orphan {
                    service_uid,
                    ..Orphan::from(object)
                });
                plan.orphans.extend(orphans);
            }
            Ok(())
        })
    }

    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError> {
        let setup: &Self = self;
        let fence = with.leadership.fence().clone();
        with.keyed(&setup.keyed, |quarantine, input| {
            let publisher = Publisher::new(input, setup.keyed.config.state_dir.join("status"), &fence);
            Services::new(setup, quarantine, publisher)
        })
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        Box::pin(crate::stop(self.simulated_engine))
    }
}

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
    simulated_engine: Option<Server>,
}

impl Setup<'_> {
    /// The Engine for the turn of this Service. It accepts no more requests of the turn once another host may have
    /// acted.
    pub(super) fn api_of(&self, mut owned: Owned) -> Arc<dyn Api> {
        let grants = &self.keyed.active.instances().grants;
        let may_write = |identifier: &String| grants.allow(guest::NAME, Access::Write, identifier);
        owned.load_balancers.retain(may_write);
        match &self.anexia {
            Some(anexia) => Arc::new(anexia.of_this_epoch(owned)),
            None => Arc::clone(&self.api),
        }
    }
}

/// A guest without the grants it needs fails at each call.
fn no_grants(lbaas: &Lbaas) -> Vec<NoGrant> {
    let mut missing = Vec::new();
    for load_balancer in &lbaas.adapter.load_balancers {
        for access in [Access::Read, Access::Write] {
            if !lbaas.guest.grants.allow(guest::NAME, access, load_balancer) {
                let what = format!("load balancer `{load_balancer}` of [adapter.lbaas]");
                let scope = format!("\"{load_balancer}\"");
                missing.push(NoGrant::new(guest::NAME, access, what, (guest::NAME, &scope)));
            }
        }
    }
    missing
}

/// The Engine, and the same again if it is one over HTTP.
type Connected = (Arc<dyn Api>, Option<Arc<Anexia>>);

fn connect(
    lbaas: &Lbaas,
    simulated: Option<SocketAddr>,
    metrics: &Arc<Metrics>,
    fence: Fence,
    intents: Option<&Path>,
) -> Result<Connected, SetupError> {
    match &lbaas.backend {
        LbaasBackend::Remote(backend) => {
            let settings = backend.settings(simulated);
            let token = token::read(&settings.token).map_err(SetupError::misused)?;
            let metrics = EngineMetrics {
                metrics: Arc::clone(metrics),
                in_flight: AtomicI64::new(0),
            };
            let anexia = Anexia::new(settings, token, Arc::new(metrics), fence, intents);
            let anexia = Arc::new(anexia.map_err(SetupError::misused)?);
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
const SIMULATED_ENGINES_TOKEN: &str = "the simulated Engine's token";

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
        let name = "trueup_engine_requests_in_flight";
        self.metrics.take(Origin::Host, name, &[], now);
    }
}

/// What a check calls the Engine.
const ENGINE: &str = "Engine";

/// What a host writes of a cluster's Services: the finalizer, the addresses in service, events.
const RIGHTS: &[Right] = &[
    Right::new("get", "", "services"),
    Right::new("patch", "", "services"),
    Right::new("patch", "", "services/status"),
    Right::new("create", "events.k8s.io", "events"),
    Right::new("patch", "events.k8s.io", "events"),
];

fn needs(lbaas: &Lbaas) -> Needs<'_> {
    let mut needs = Needs {
        guests: vec![(guest::NAME, guest::WORLDS, lbaas.guest.clone())],
        no_grants: Some(no_grants(lbaas)),
        rights: RIGHTS,
        ..Needs::default()
    };
    match backend(lbaas, &mut needs) {
        Ok(look) => needs.looks.push(look),
        Err(error) => needs.unusable = Some(error),
    }
    needs
}

/// How the Engine is asked. Adds where it is.
fn backend<'a>(lbaas: &'a Lbaas, needs: &mut Needs<'a>) -> Result<Probe<'a>, SetupError> {
    let sim = lbaas.sim.as_ref();
    if let Some(sim) = sim {
        read_token(&sim.token, SIMULATED_ENGINES_TOKEN)?;
        needs.listens.push(("sim.lbaas.listen", AdminAt::Tcp(sim.listen)));
    }
    let listen = sim.map(|sim| sim.listen);
    let (_, anexia) = connect(lbaas, listen, &Arc::default(), Fence::open(), None)?;
    let (LbaasBackend::Remote(engine), Some(anexia), None) = (&lbaas.backend, anexia, sim) else {
        let what = "simulated: the host starts it";
        let harm = "a run writes simulated addresses to its Services";
        let next =
            "for the real one, leave out `url` of [backend.lbaas] and [sim.lbaas]; else name a cluster for trials";
        return Ok(Probe::simulated(ENGINE, what, (harm, next)));
    };
    let url = engine.settings(None).url;
    needs.servers.push(url.clone());
    let load_balancers = &lbaas.adapter.load_balancers;
    Ok(Probe::new(ENGINE, async move {
        for load_balancer in load_balancers {
            let Err(error) = anexia.load_balancer(load_balancer).await else {
                continue;
            };
            let next = match &error {
                Error::Unauthorized => {
                    "write a valid token into the file that `token_file` of [backend.lbaas] names: a host that runs reads \
                     it again; or into its variable, and start the host again"
                        .to_owned()
                }
                Error::NotFound => format!("correct `{load_balancer}` in `load_balancers` of [adapter.lbaas]"),
                _ => format!("curl -sS {url}: if that fails too, correct `url` of [backend.lbaas], a proxy or the network"),
            };
            let why = describe(&guest::Error::Api(error));
            return Err(Problem::new(format!("load balancer `{load_balancer}`: {why}"), next));
        }
        Ok(format!("{url} takes the token, and has {}", load_balancers.join(", ")))
    }))
}

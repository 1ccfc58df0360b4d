//! What Services need before a run: the guest with its grants, and an Engine that knows the load balancers.

use std::sync::Arc;

use trueup_base::fence::Fence;
use trueup_capabilities::lbaas::{Api as _, Error};
use trueup_config::{AdminAt, Lbaas, LbaasBackend};
use trueup_sources::kubernetes::Right;
use trueup_work::needs::{Needs, Probe, Problem};
use trueup_work::setup::{SetupError, read_token};

use super::setup::{SIMULATED_ENGINES_TOKEN, connect, no_grants};
use super::turn::describe;
use crate::lbaas::guest;

/// What a check calls the Engine.
const ENGINE: &str = "Engine";

/// A first configuration.
pub(super) const EXAMPLE: &[(&str, &str)] = &[
    (
        "trueup.toml",
        include_str!("../../../../examples/quickstart/trueup.toml"),
    ),
    ("token", include_str!("../../../../examples/quickstart/token")),
    (
        "manifests/nodes.yaml",
        include_str!("../../../../examples/quickstart/manifests/nodes.yaml"),
    ),
    (
        "manifests/web.yaml",
        include_str!("../../../../examples/quickstart/manifests/web.yaml"),
    ),
];

/// What a host writes of a cluster's Services: the finalizer, the addresses in service, events.
const RIGHTS: &[Right] = &[
    Right::new("get", "", "services"),
    Right::new("patch", "", "services"),
    Right::new("patch", "", "services/status"),
    Right::new("create", "events.k8s.io", "events"),
    Right::new("patch", "events.k8s.io", "events"),
];

pub(super) fn needs(lbaas: &Lbaas) -> Needs<'_> {
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
    let (LbaasBackend::Anexia(engine), Some(anexia), None) = (&lbaas.backend, anexia, sim) else {
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
            if let Err(error) = anexia.load_balancer(load_balancer).await {
                return Err(trouble(error, load_balancer, &url));
            }
        }
        Ok(format!("{url} takes the token, and has {}", load_balancers.join(", ")))
    }))
}

/// Why a load balancer can't be read, and what to do.
fn trouble(error: Error, load_balancer: &str, url: &str) -> Problem {
    let next = match &error {
        Error::Unauthorized => {
            "write a valid token into the file that `token_file` of [backend.lbaas] names: a host that runs reads it again; \
             or into its variable, and start the host again"
                .to_owned()
        }
        Error::NotFound => format!("correct `{load_balancer}` in `load_balancers` of [adapter.lbaas]"),
        _ => format!("curl -sS {url}: if that fails too, correct `url` of [backend.lbaas], a proxy or the network"),
    };
    Problem::new(
        format!(
            "load balancer `{load_balancer}`: {}",
            describe(&guest::Error::Api(error))
        ),
        next,
    )
}

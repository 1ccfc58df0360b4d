//! What NEGs need before a run: the guest with its grants, and a Compute Engine that takes the credentials.

use trueup_capabilities::neg::{Error, NegRef};
use trueup_config::{AdminAt, Neg, NegBackend};
use trueup_work::needs::{Needs, Probe, Problem};
use trueup_work::setup::SetupError;

use super::setup::{no_grants, reads};
use crate::neg::guest;

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

/// A first configuration.
pub(super) const EXAMPLE: &[(&str, &str)] = &[
    ("trueup.toml", include_str!("../../../../examples/neg/trueup.toml")),
    (
        "manifests/nodes.yaml",
        include_str!("../../../../examples/neg/manifests/nodes.yaml"),
    ),
    (
        "manifests/web.yaml",
        include_str!("../../../../examples/neg/manifests/web.yaml"),
    ),
];

pub(super) fn needs(neg: &Neg) -> Needs<'_> {
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
    let NegBackend::Compute(backend) = &neg.backend else {
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
        let asked_for = NegRef {
            name: ASKED_FOR.to_owned(),
            zone: zone.to_owned(),
        };
        let (project, endpoint) = (&settings.project, &settings.endpoint);
        let error = match reads.endpoints(&asked_for).await {
            Ok(_) | Err(Error::NotFound) => {
                return Ok(format!("{endpoint} takes the credentials, project {project}"));
            }
            Err(error) => error,
        };
        let next = match &error {
            Error::Unauthorized => "correct `credentials_file` or `token_file` of [backend.neg]".to_owned(),
            Error::Refused(_) => {
                format!(
                    "correct `project` of [backend.neg], or grant its account roles/compute.networkAdmin in {project}"
                )
            }
            _ => format!(
                "curl -sS {endpoint}: if that fails too, correct `url` of [backend.neg], a proxy or the network"
            ),
        };
        Err(Problem::new(
            format!("{endpoint}, project {project}: {}", in_words(&error)),
            next,
        ))
    }))
}

fn in_words(error: &Error) -> String {
    match error {
        Error::Unauthorized => "refuses the credentials".to_owned(),
        Error::Refused((status, text)) => format!("refuses the request: {status} {text}"),
        Error::Unavailable(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

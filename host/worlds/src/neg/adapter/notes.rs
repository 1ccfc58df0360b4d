//! What an operator should know of Services, Nodes and slices.

use std::collections::BTreeSet;

use trueup_config::NegAdapter as Settings;
use trueup_work::objects::Id as ServiceName;

use super::annotation::{ANNOTATION, Asked};
use super::endpoints::{self, Flaw};
use super::index::{Index, Touched};
use super::node::Facts;
use super::node::ZONE_LABEL;

/// The subject of a note.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Node(String),
    Service(ServiceName),
}

/// The notes of the touched objects.
pub(super) fn of(
    touched: Touched,
    index: &Index,
    settings: &Settings,
) -> impl Iterator<Item = (Subject, BTreeSet<String>)> {
    let nodes = touched.nodes.into_iter().map(|node| {
        let note = of_node(&node, index, settings);
        (Subject::Node(node), note.into_iter().collect())
    });
    let services = touched.services.into_iter().map(|service| {
        let notes = of_service(&service, index);
        (Subject::Service(service), notes)
    });
    nodes.chain(services)
}

/// The note of a Node with endpoints that should be in a NEG.
fn of_node(node: &str, index: &Index, settings: &Settings) -> Option<String> {
    let is_exposed = |service: &ServiceName| matches!(index.asked(service), Some(Asked::Exposed(_)));
    index.services_on(node).find(|service| is_exposed(service))?;
    let (what, until) = match index.node(node) {
        None => ("is not known".to_owned(), "it is".to_owned()),
        Some(Facts { zone: None, .. }) => (format!("has no label `{ZONE_LABEL}`"), "it has".to_owned()),
        Some(Facts { subnet: None, .. }) => {
            let label = settings.subnet_label.as_deref().unwrap_or_default();
            let what = format!("has no label `{label}`");
            (what, "it has, or [adapter.neg] names a `subnet`".to_owned())
        }
        Some(_) => return None,
    };
    Some(format!(
        "node `{node}` {what}: endpoints on it are in no NEG until {until}"
    ))
}

fn of_service(service: &ServiceName, index: &Index) -> BTreeSet<String> {
    match index.asked(service) {
        None => BTreeSet::new(),
        // If it has a port, the error of that port already says so.
        Some(Asked::Broken(broken)) if broken.ports.is_empty() => [broken.text.clone()].into(),
        Some(Asked::Broken(_)) => BTreeSet::new(),
        Some(Asked::IngressAlone) => [format!(
            "service `{service}`: annotation `{ANNOTATION}` asks for NEGs of an Ingress, which are not made here: name \
             ports in `exposed_ports`"
        )]
        .into(),
        Some(Asked::Exposed(_)) => {
            let slices = index.named_slices(service);
            slices
                .flat_map(|(name, slice)| {
                    let flaws = endpoints::flaws(slice).into_iter();
                    flaws.map(move |(flaw, (first, count))| of_slice(service, name, flaw, first, count))
                })
                .collect()
        }
    }
}

fn of_slice(service: &ServiceName, slice: &str, flaw: Flaw, first: &str, count: usize) -> String {
    let why = match flaw {
        Flaw::NoNode => "no `nodeName`, so that it is not known in which zone: in no NEG until there is one",
        Flaw::NoAddress => "no address that a NEG takes, IPv4 or IPv6: in no NEG until there is one",
    };
    let who = match count {
        1 => format!("endpoint `{}` has", first.escape_debug()),
        _ => format!("endpoint `{}` and {} more have", first.escape_debug(), count - 1),
    };
    format!("service `{service}`: EndpointSlice `{slice}`: {who} {why}")
}

//! New notes for the operator about Services, Nodes and slices.
//!
//! A note is reported when it begins to apply. When it no longer applies it is forgotten, so that it is reported again
//! if it returns.

use std::collections::{BTreeMap, BTreeSet};

use trueup_config::NegAdapter as Settings;
use trueup_work::objects::Id as ServiceName;

use super::annotation::{ANNOTATION, Asked};
use super::endpoints::{self, Flaw};
use super::index::{Index, Touched};
use super::node::Facts;
use super::node::ZONE_LABEL;

/// The subject of a note.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Node(String),
    Service(ServiceName),
}

/// The current notes by subject.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Notes(BTreeMap<Subject, BTreeSet<String>>);

impl Notes {
    /// Updates the notes of the touched objects. Returns the notes that are new.
    pub(super) fn look(&mut self, touched: Touched, index: &Index, settings: &Settings) -> Vec<String> {
        let nodes = touched.nodes.into_iter().map(|node| {
            let note = of_node(&node, index, settings);
            (Subject::Node(node), note.into_iter().collect())
        });
        let services = touched.services.into_iter().map(|service| {
            let notes = of_service(&service, index);
            (Subject::Service(service), notes)
        });
        let mut new = Vec::new();
        for (subject, now) in nodes.chain(services) {
            let now: BTreeSet<String> = now;
            let was = self.0.get(&subject);
            new.extend(
                now.iter()
                    .filter(|note| !was.is_some_and(|was| was.contains(*note)))
                    .cloned(),
            );
            if now.is_empty() {
                self.0.remove(&subject);
            } else {
                self.0.insert(subject, now);
            }
        }
        new
    }

    /// The current notes.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        self.0.values().flatten().map(String::as_str)
    }
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

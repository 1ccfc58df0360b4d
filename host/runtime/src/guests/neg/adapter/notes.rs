//! What an operator should know of Services, Nodes and slices, and has not been told yet.
//!
//! A note is told when it begins to hold. Where it holds no more it is forgotten, so that it is told again when it comes
//! again.

use std::collections::{BTreeMap, BTreeSet};

use super::annotation::{ANNOTATION, Asked};
use super::endpoints::{self, Flaw};
use super::index::{Index, Touched};
use super::node::Facts;
use super::{ServiceName, Settings, ZONE_LABEL};

/// Whom a note is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Node(String),
    Service(ServiceName),
}

/// The notes that hold, by whom they are about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Notes(BTreeMap<Subject, BTreeSet<String>>);

impl Notes {
    /// Looks at those that something changed for; answers what holds now and did not before.
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

    /// Those that hold.
    pub(super) fn standing(&self) -> impl Iterator<Item = &str> {
        self.0.values().flatten().map(String::as_str)
    }
}

/// Of a Node that has endpoints which a NEG should have.
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
        // Where it has a port, it is told as the failure of that.
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

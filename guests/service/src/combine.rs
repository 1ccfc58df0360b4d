//! Combines a service with its endpoints into what a renderer needs.
//!
//! Pure.

use crate::bindings::trueup::service::types::{Backend, ContivService, PortBackends};
use crate::id::Id;
use crate::inputs::Subset;
use crate::redirects::Redirects;
use crate::wiring::{Location, Wiring};

/// The contiv-service, and the pods behind its addresses on this node, ascending, whether or not a port matches.
/// `service` has no backends yet.
pub(crate) fn combine(
    service: &ContivService,
    endpoints: &[Subset],
    redirects: &Redirects,
    wiring: &Wiring,
) -> (ContivService, Vec<Id>) {
    #[cfg(test)]
    crate::counting::count(&crate::counting::COMBINED);
    // The ports ascend by name.
    let mut found: Vec<Vec<(Location, u16)>> = vec![Vec::new(); service.ports.len()];
    let mut local_backends = Vec::new();
    for subset in endpoints {
        // Where the renderers reach each address.
        let located = subset.addresses.iter();
        let located = located.map(|(listed, _)| wiring.location(redirects.target(*listed)));
        let located: Vec<Location> = located.collect();
        let local = subset.addresses.iter().zip(&located).filter(|(_, at)| at.is_local);
        local_backends.extend(local.filter_map(|((_, pod), _)| pod.clone()));
        for (name, number) in &subset.ports {
            // Ignore protocols on purpose: names decide which port is meant.
            let index = service.ports.binary_search_by(|port| port.name.as_str().cmp(name));
            if let Some(found) = index.ok().and_then(|index| found.get_mut(index)) {
                found.extend(located.iter().map(|&at| (at, *number)));
            }
        }
    }
    local_backends.sort();
    local_backends.dedup();
    let names = service.ports.iter().map(|port| port.name.clone());
    let backends = names.zip(found).map(|(port_name, found)| PortBackends {
        port_name,
        backends: ordered(found),
    });
    let service = ContivService {
        backends: backends.collect(),
        ..service.clone()
    };
    (service, local_backends)
}

/// Each address and port once, in order.
fn ordered(mut found: Vec<(Location, u16)>) -> Vec<Backend> {
    let key = |(spot, port): &(Location, u16)| (spot.address, *port);
    found.sort_by_key(key);
    found.dedup_by_key(|backend| key(backend));
    let backend = |(spot, port): (Location, u16)| Backend {
        ip: spot.address.to_string(),
        port,
        local: spot.is_local,
        host_network: spot.is_host_network,
    };
    found.into_iter().map(backend).collect()
}

//! Combines a service with its endpoints into what a renderer needs.
//!
//! Pure.

use trueup_guest::address::Address;

use crate::bindings::trueup::service::types::{Backend, ContivService, PortBackends};
use crate::id::Id;
use crate::inputs::Subset;
use crate::redirects::Redirects;
use crate::wiring::{Location, Wiring};

/// An endpoint's address as the renderers reach it.
#[derive(Clone, Copy)]
struct Located {
    address: Address,
    location: Location,
}

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
    let mut found: Vec<Vec<(Located, u16)>> = vec![Vec::new(); service.ports.len()];
    let mut local_backends = Vec::new();
    for subset in endpoints {
        let located = subset.addresses.iter().map(|(listed, _)| {
            let address = redirects.target(*listed);
            let location = wiring.location(address);
            Located { address, location }
        });
        let located: Vec<Located> = located.collect();
        let local = subset
            .addresses
            .iter()
            .zip(&located)
            .filter(|(_, at)| at.location.is_local);
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
fn ordered(mut found: Vec<(Located, u16)>) -> Vec<Backend> {
    let key = |(spot, port): &(Located, u16)| (spot.address, *port);
    found.sort_by_key(key);
    found.dedup_by_key(|backend| key(backend));
    let backend = |(spot, port): (Located, u16)| Backend {
        ip: spot.address.to_string(),
        port,
        local: spot.location.is_local,
        host_network: spot.location.is_host_network,
    };
    found.into_iter().map(backend).collect()
}

//! Translates a Service: fills in defaults, with one cluster IP and numeric ports.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service, ServicePort, ServiceSpec};
use trueup_work::objects::Id;

use super::unhonoured;
use crate::node::guests::service::{ObjectId, Protocol, Service as Input, ServicePort as InputPort};
use crate::notes::Remarks;
use crate::source_ranges::SourceRanges;

/// The name of an object, as the guest gets it.
pub(super) fn object_id(id: &Id) -> ObjectId {
    ObjectId {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
    }
}

/// The types of a Service.
const TYPES: [&str; 4] = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];

/// The default affinity timeout in s, as in Kubernetes.
pub(super) const AFFINITY_TIMEOUT_S_DEFAULT: u32 = 10_800;

/// The range that Kubernetes permits, in s.
const AFFINITY_TIMEOUT_S: RangeInclusive<i32> = 1..=86_400;

/// The input for a Service, and notes about what is left out.
///
/// # Errors
/// Why the Service is invalid.
pub(super) fn translated(id: &Id, service: &Service) -> Result<(Input, Remarks), String> {
    let default = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&default);
    let service_type = or(spec.type_.as_deref(), "ClusterIP");
    if !TYPES.contains(&service_type.as_str()) {
        let given = service_type.escape_debug();
        let types = TYPES.join(" or ");
        return Err(format!("spec.type: was `{given}`, must be {types}"));
    }
    let mut notes = BTreeSet::from_iter(unhonoured::of_service(id, service));
    let mut ports = Vec::new();
    for (position, port) in spec.ports.iter().flatten().enumerate() {
        match translated_port(port).map_err(|cause| format!("spec.ports[{position}].{cause}"))? {
            Some(port) => ports.push(port),
            None => {
                let unknown = unknown_protocol(port.port, port.protocol.as_deref());
                notes.insert(format!("service `{id}`: {unknown}"));
            }
        }
    }
    let (lb_ingress_ips, problems) = lb_ingress_ips(id, service);
    let input = Input {
        id: object_id(id),
        service_type,
        // For a Service with two families, this is the primary one: the contract has only one.
        cluster_ip: spec.cluster_ip.clone().unwrap_or_default(),
        external_ips: spec.external_ips.clone().unwrap_or_default(),
        lb_ingress_ips,
        external_traffic_policy: or(spec.external_traffic_policy.as_deref(), "Cluster"),
        session_affinity: or(spec.session_affinity.as_deref(), "None"),
        session_affinity_timeout_s: affinity_timeout_s(spec)?,
        ports,
    };
    Ok((input, Remarks { notes, problems }))
}

fn or(given: Option<&str>, default: &str) -> String {
    given.filter(|text| !text.is_empty()).unwrap_or(default).to_owned()
}

/// `None` if its protocol is unknown here.
fn translated_port(port: &ServicePort) -> Result<Option<InputPort>, String> {
    let number = within(port.port, 1).map_err(|cause| format!("port: {cause}"))?;
    let node_port = within(port.node_port.unwrap_or_default(), 0).map_err(|cause| format!("nodePort: {cause}"))?;
    let protocol = protocol(port.protocol.as_deref());
    Ok(protocol.map(|protocol| InputPort {
        name: port.name.clone().unwrap_or_default(),
        protocol,
        port: number,
        node_port,
    }))
}

/// A port number from `min` to 65535.
pub(super) fn within(given: i32, min: u16) -> Result<u16, String> {
    let number = u16::try_from(given).ok().filter(|number| *number >= min);
    number.ok_or_else(|| format!("was {given}, must be a whole number from {min} to {}", u16::MAX))
}

pub(super) fn unknown_protocol(port: i32, protocol: Option<&str>) -> String {
    let protocol = protocol.unwrap_or_default().escape_debug();
    format!("port {port} speaks `{protocol}`, which is not TCP, UDP or SCTP: left out")
}

/// The addresses that a balancer leaves to the nodes. A balancer in mode `Proxy` keeps its addresses, so that all their
/// traffic passes through it. An address with restricted clients is left out and reported: no renderer restricts
/// clients.
fn lb_ingress_ips(id: &Id, service: &Service) -> (Vec<String>, BTreeSet<String>) {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
    let ip = |ingress: &LoadBalancerIngress| {
        let is_ours = ingress.ip_mode.as_deref() != Some("Proxy");
        ingress.ip.clone().filter(|ip| is_ours && !ip.is_empty())
    };
    let ips = ingress.iter().filter_map(ip);
    let Some(ranges) = SourceRanges::of(service) else {
        return (ips.collect(), BTreeSet::new());
    };
    let (open, restricted): (Vec<_>, Vec<_>) = ips.partition(|ip| ranges.let_all_in(ip));
    let line = || {
        format!(
            "service `{id}`: {ranges} is not honoured: its load balancer addresses {} are not given to the renderers, its \
             cluster IP and node ports are",
            restricted.join(", ")
        )
    };
    let kept_back = (!restricted.is_empty()).then(line);
    (open, kept_back.into_iter().collect())
}

/// The timeout that a Service sets, valid or not.
pub(super) fn client_ip_timeout_s(spec: &ServiceSpec) -> Option<i32> {
    let config = spec.session_affinity_config.as_ref()?;
    config.client_ip.as_ref()?.timeout_seconds
}

fn affinity_timeout_s(spec: &ServiceSpec) -> Result<u32, String> {
    match client_ip_timeout_s(spec) {
        None => Ok(AFFINITY_TIMEOUT_S_DEFAULT),
        Some(given) if AFFINITY_TIMEOUT_S.contains(&given) => Ok(given.unsigned_abs()),
        Some(given) => Err(format!(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds: was {given}, must be from {} to {}",
            AFFINITY_TIMEOUT_S.start(),
            AFFINITY_TIMEOUT_S.end()
        )),
    }
}

/// The protocol of a port. If it is missing, it is TCP: a rule of Kubernetes. `None` if it is unknown here.
pub(super) fn protocol(text: Option<&str>) -> Option<Protocol> {
    match text {
        None | Some("" | "TCP") => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        Some("SCTP") => Some(Protocol::Sctp),
        Some(_) => None,
    }
}

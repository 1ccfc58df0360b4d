//! What a Service requests but no renderer does: reported, so that an operator need not find it out from traffic.
//!
//! `tests/unhonoured.rs` has a decision about every field of a Service and an EndpointSlice: it is used, it does not
//! concern a renderer, or it is reported here.

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use trueup_work::objects::Id;

use super::service::{AFFINITY_TIMEOUT_S_DEFAULT, client_ip_timeout_s};

/// The Kubernetes label that assigns a Service to another proxy.
const PROXY_LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// One line for each field of a Service that is set but not honoured.
pub(super) fn of_service(id: &Id, service: &Service) -> Vec<String> {
    let default = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&default);
    // These Services are not rendered.
    if spec.type_.as_deref() == Some("ExternalName") || spec.cluster_ip.as_deref() == Some("None") {
        return Vec::new();
    }
    let mut all = Vec::new();
    let mut say = |field: &str, what: String| all.push(line(id, field, &what));
    if spec.internal_traffic_policy.as_deref() == Some("Local") {
        let what = "its cluster IP leads to endpoints on every node".to_owned();
        say("spec.internalTrafficPolicy: Local", what);
    }
    if let Some(port) = spec.health_check_node_port.filter(|port| *port != 0) {
        say("spec.healthCheckNodePort", format!("nothing answers on port {port}"));
    }
    if let Some(second) = spec.cluster_ips.iter().flatten().nth(1) {
        let what = format!("its second cluster IP {} is not rendered", second.escape_debug());
        say("spec.clusterIPs", what);
    }
    if let Some(wish) = spec.traffic_distribution.as_deref().filter(|wish| !wish.is_empty()) {
        let wish = wish.escape_debug();
        let what = format!("`{wish}` changes nothing, traffic goes to every endpoint");
        say("spec.trafficDistribution", what);
    }
    let timeout_s = client_ip_timeout_s(spec);
    if let Some(timeout_s) = timeout_s.filter(|given| given.unsigned_abs() != AFFINITY_TIMEOUT_S_DEFAULT) {
        let what = format!("`nftables` keeps a client with its endpoint for longer than {timeout_s} s");
        say("spec.sessionAffinityConfig.clientIP.timeoutSeconds", what);
    }
    let labels = service.metadata.labels.as_ref();
    if let Some(proxy) = labels.and_then(|labels| labels.get(PROXY_LABEL)) {
        let what = format!("it is rendered here as well as by `{}`", proxy.escape_debug());
        say(&format!("label {PROXY_LABEL}"), what);
    }
    all
}

/// The same for a slice of a Service. The Service reports it once for all its slices.
pub(super) fn of_slice(service: &Id, slice: &EndpointSlice) -> Option<String> {
    let mut hints = slice.endpoints.iter().filter_map(|endpoint| endpoint.hints.as_ref());
    let is_hinted = hints.any(|hints| hints.for_zones.is_some() || hints.for_nodes.is_some());
    is_hinted.then(|| line(service, "its topology hints", "traffic goes to endpoints in every zone"))
}

fn line(id: &Id, field: &str, what: &str) -> String {
    format!("service `{id}`: not honoured: {field}: {what}")
}

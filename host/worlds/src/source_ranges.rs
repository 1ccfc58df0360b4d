//! Which clients may reach the load balancer addresses of a Service.
//!
//! No guest interface has a field for this. So each translator of a Service calls this module and leaves out addresses
//! that it cannot restrict: an address that is not served is safer than one that is open to every client.

use std::fmt;

use k8s_openapi::api::core::v1::Service;

/// The deprecated form of the field: networks separated by commas.
const ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// The networks that may reach a Service of type LoadBalancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceRanges {
    ranges: Vec<String>,
    from: &'static str,
}

impl SourceRanges {
    /// `None` if every client may. The annotation applies if the field is empty, as in kube-proxy.
    pub(crate) fn of(service: &Service) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        if spec.type_.as_deref() != Some("LoadBalancer") {
            return None;
        }
        let field = spec.load_balancer_source_ranges.iter().flatten();
        let annotations = service.metadata.annotations.as_ref();
        let annotation = annotations.and_then(|all| all.get(ANNOTATION));
        let listed = annotation.into_iter().flat_map(|ranges| ranges.split(','));
        let given = |ranges: Vec<&str>| -> Vec<String> {
            let ranges = ranges.into_iter().map(str::trim);
            ranges.filter(|range| !range.is_empty()).map(str::to_owned).collect()
        };
        let (field, annotation) = (given(field.map(String::as_str).collect()), given(listed.collect()));
        let (ranges, from) = match field.is_empty() {
            true => (annotation, ANNOTATION),
            false => (field, "spec.loadBalancerSourceRanges"),
        };
        (!ranges.is_empty()).then_some(Self { ranges, from })
    }

    /// Whether every client of the address's family may reach it.
    pub(crate) fn let_all_in(&self, address: &str) -> bool {
        let everybody = if address.contains(':') { "::/0" } else { "0.0.0.0/0" };
        self.ranges.iter().any(|range| range == everybody)
    }
}

impl fmt::Display for SourceRanges {
    /// Where they are set: `spec.loadBalancerSourceRanges`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ranges(service_type: &str, field: &[&str], annotation: &str) -> Option<SourceRanges> {
        let service = json!({
            "metadata": {"annotations": {ANNOTATION: annotation}},
            "spec": {"type": service_type, "loadBalancerSourceRanges": field},
        });
        SourceRanges::of(&serde_json::from_value(service).unwrap())
    }

    #[test]
    fn the_field_comes_before_the_annotation_and_empty_ones_restrict_nothing() {
        assert_eq!(ranges("LoadBalancer", &[], " , "), None);
        assert_eq!(ranges("ClusterIP", &["192.0.2.0/24"], ""), None);
        let field = ranges("LoadBalancer", &["192.0.2.0/24"], "0.0.0.0/0").unwrap();
        assert_eq!(field.to_string(), "spec.loadBalancerSourceRanges");
        assert!(!field.let_all_in("203.0.113.9"));
        let annotation = ranges("LoadBalancer", &[], "192.0.2.0/24, 198.51.100.0/24").unwrap();
        assert_eq!(annotation.to_string(), ANNOTATION);
        assert!(!annotation.let_all_in("203.0.113.9"));
    }

    #[test]
    fn a_range_that_holds_every_address_restricts_no_address_of_its_family() {
        let v4 = ranges("LoadBalancer", &["192.0.2.0/24", "0.0.0.0/0"], "").unwrap();
        assert!(v4.let_all_in("203.0.113.9") && !v4.let_all_in("2001:db8::1"));
        let v6 = ranges("LoadBalancer", &["::/0"], "").unwrap();
        assert!(!v6.let_all_in("203.0.113.9") && v6.let_all_in("2001:db8::1"));
    }
}

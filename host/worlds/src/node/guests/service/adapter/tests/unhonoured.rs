//! What no renderer honours is reported, and every field of the API has a decision.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::*;

/// The decision about every field of a Service or an EndpointSlice. If this test fails after an update of k8s-openapi,
/// decide about each new field: translate it, report that it is not honoured (`unhonoured.rs`), or state here why it
/// does not concern a renderer.
const DECIDED: &[(&str, &[&str], &str)] = &[
    ("used", &["Service.metadata", "Service.spec", "Service.status"], ""),
    (
        "used",
        &[
            "ServiceSpec.clusterIP",
            "ServiceSpec.externalIPs",
            "ServiceSpec.externalTrafficPolicy",
        ],
        "",
    ),
    (
        "used",
        &["ServiceSpec.ports", "ServiceSpec.sessionAffinity", "ServiceSpec.type"],
        "",
    ),
    (
        "used",
        &[
            "ServicePort.name",
            "ServicePort.nodePort",
            "ServicePort.port",
            "ServicePort.protocol",
        ],
        "",
    ),
    (
        "used",
        &["ServiceStatus.loadBalancer", "LoadBalancerStatus.ingress"],
        "",
    ),
    ("used", &["LoadBalancerIngress.ip", "LoadBalancerIngress.ipMode"], ""),
    (
        "used",
        &["SessionAffinityConfig.clientIP", "ServiceSpec.sessionAffinityConfig"],
        "",
    ),
    (
        "noted",
        &[
            "ClientIPConfig.timeoutSeconds",
            "ServiceSpec.clusterIPs",
            "ServiceSpec.healthCheckNodePort",
        ],
        "",
    ),
    (
        "noted",
        &["ServiceSpec.internalTrafficPolicy", "ServiceSpec.trafficDistribution"],
        "",
    ),
    (
        "noted",
        &["ServiceSpec.loadBalancerSourceRanges"],
        "a problem, and addresses are kept back",
    ),
    (
        "noted",
        &["Endpoint.hints", "EndpointHints.forNodes", "EndpointHints.forZones"],
        "topology hints",
    ),
    ("other", &["ForNode.name", "ForZone.name"], "part of the hints"),
    ("other", &["Service.apiVersion", "Service.kind"], "what it is"),
    (
        "other",
        &["ServiceSpec.ipFamilies", "ServiceSpec.ipFamilyPolicy"],
        "clusterIPs says what came of it",
    ),
    (
        "other",
        &["ServiceSpec.allocateLoadBalancerNodePorts"],
        "the API server's: nodePort says what came of it",
    ),
    (
        "other",
        &["ServiceSpec.loadBalancerClass", "ServiceSpec.loadBalancerIP"],
        "for the provider of a load balancer",
    ),
    ("other", &["ServiceSpec.externalName"], "nothing is rendered for it"),
    (
        "other",
        &["ServiceSpec.selector", "ServiceSpec.publishNotReadyAddresses"],
        "the slices say what came of it",
    ),
    ("other", &["ServicePort.targetPort"], "the slices say what came of it"),
    (
        "other",
        &["ServicePort.appProtocol", "EndpointPort.appProtocol"],
        "a hint for proxies that read requests",
    ),
    (
        "other",
        &["LoadBalancerIngress.hostname"],
        "a name has no address to render",
    ),
    (
        "other",
        &["LoadBalancerIngress.ports", "ServiceStatus.conditions"],
        "reports of a controller",
    ),
    (
        "other",
        &["PortStatus.error", "PortStatus.port", "PortStatus.protocol"],
        "reports of a controller",
    ),
    (
        "other",
        &[
            "Condition.lastTransitionTime",
            "Condition.message",
            "Condition.observedGeneration",
        ],
        "a report",
    ),
    (
        "other",
        &["Condition.reason", "Condition.status", "Condition.type"],
        "a report",
    ),
    (
        "used",
        &[
            "EndpointSlice.metadata",
            "EndpointSlice.addressType",
            "EndpointSlice.endpoints",
        ],
        "",
    ),
    (
        "used",
        &[
            "EndpointSlice.ports",
            "EndpointPort.name",
            "EndpointPort.port",
            "EndpointPort.protocol",
        ],
        "",
    ),
    (
        "used",
        &[
            "Endpoint.addresses",
            "Endpoint.conditions",
            "Endpoint.nodeName",
            "Endpoint.targetRef",
        ],
        "",
    ),
    (
        "used",
        &[
            "EndpointConditions.ready",
            "EndpointConditions.serving",
            "EndpointConditions.terminating",
        ],
        "",
    ),
    (
        "used",
        &[
            "ObjectReference.kind",
            "ObjectReference.name",
            "ObjectReference.namespace",
        ],
        "",
    ),
    (
        "other",
        &["EndpointSlice.apiVersion", "EndpointSlice.kind"],
        "what it is",
    ),
    (
        "other",
        &["Endpoint.deprecatedTopology", "Endpoint.hostname", "Endpoint.zone"],
        "hints say what came of it",
    ),
    (
        "other",
        &["ObjectReference.apiVersion", "ObjectReference.fieldPath"],
        "kind and name tell a pod",
    ),
    (
        "other",
        &["ObjectReference.resourceVersion", "ObjectReference.uid"],
        "kind and name tell a pod",
    ),
];

/// Of metadata only the name, the namespace and labels matter, as for every object.
const METADATA: [&str; 3] = ["ObjectMeta", "ManagedFieldsEntry", "OwnerReference"];

#[test]
fn every_field_of_a_service_and_its_slices_is_decided_on() {
    let mut fields = BTreeSet::new();
    serde::Deserialize::deserialize(Recorder(&mut fields))
        .map(|_: Service| ())
        .unwrap();
    serde::Deserialize::deserialize(Recorder(&mut fields))
        .map(|_: EndpointSlice| ())
        .unwrap();
    let is_metadata = |field: &&String| METADATA.iter().any(|name| field.starts_with(&format!("{name}.")));
    let found: BTreeSet<&str> = fields
        .iter()
        .filter(|field| !is_metadata(field))
        .map(String::as_str)
        .collect();
    let decided: Vec<&str> = DECIDED
        .iter()
        .flat_map(|(_, fields, _)| fields.iter().copied())
        .collect();
    let known: BTreeSet<&str> = decided.iter().copied().collect();
    assert_eq!(known.len(), decided.len(), "each once");
    let undecided: Vec<_> = found.difference(&known).collect();
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(undecided.is_empty(), "decide about these: {undecided:?}");
    assert!(gone.is_empty(), "these are not in the API any more: {gone:?}");
    for (fate, fields, why) in DECIDED {
        assert!(
            matches!(*fate, "used" | "noted") || !why.is_empty(),
            "why not: {fields:?}"
        );
    }
}

/// Returns a value for any requested type, and records the fields of each struct.
struct Recorder<'f>(&'f mut BTreeSet<String>);

impl<'de> Deserializer<'de> for Recorder<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        // A time is the only text with a required format.
        visitor.visit_str("2026-01-01T00:00:00.000000Z")
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(true)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i32(1)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(1)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Once(Some(self.0)))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Fields(vec!["key"], self.0))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.extend(fields.iter().map(|field| format!("{name}.{field}")));
        // `apiVersion` and `kind` must be correct, and may be left out.
        let asked = fields.iter().copied();
        let asked = asked.filter(|field| !(fields.contains(&"metadata") && matches!(*field, "apiVersion" | "kind")));
        visitor.visit_map(Fields(asked.collect(), self.0))
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct enum
        identifier ignored_any
    }
}

struct Once<'f>(Option<&'f mut BTreeSet<String>>);

impl<'de> SeqAccess<'de> for Once<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0
            .take()
            .map(|fields| seed.deserialize(Recorder(fields)))
            .transpose()
    }
}

struct Fields<'f>(Vec<&'static str>, &'f mut BTreeSet<String>);

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let key = self.0.pop();
        key.map(|key| seed.deserialize(StrDeserializer::<Error>::new(key)))
            .transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(Recorder(self.1))
    }
}

#[test]
fn what_is_not_honoured_is_noted_once_for_each_service() {
    for (spec, note) in [
        (
            json!({"internalTrafficPolicy": "Local"}),
            "not honoured: spec.internalTrafficPolicy: Local: its",
        ),
        (
            json!({"healthCheckNodePort": 32000}),
            "not honoured: spec.healthCheckNodePort: nothing answers on port 32000",
        ),
        (
            json!({"clusterIPs": ["10.96.0.1", "fd00::1"]}),
            "its second cluster IP fd00::1 is not rendered",
        ),
        (
            json!({"trafficDistribution": "PreferClose"}),
            "not honoured: spec.trafficDistribution: `PreferClose`",
        ),
        (
            json!({"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}),
            "not honoured: spec.sessionAffinityConfig.clientIP.timeoutSeconds: ",
        ),
    ] {
        let mut all = cluster();
        let told = all.take_in(&look([is(service("web", spec.clone()))]));
        assert!(
            told.notes.len() == 1 && told.notes[0].contains(note),
            "{:?}",
            told.notes
        );
        assert_eq!(told.about.len(), 1);
        assert_eq!(all.problems().count(), 0, "all is well");
        let again = all.take_in(&look([is(service("web", spec))]));
        assert_eq!((again.notes, again.about), (vec![], vec![]));
    }
    let usual = json!({
        "internalTrafficPolicy": "Cluster", "healthCheckNodePort": 0, "clusterIPs": ["10.96.0.1"],
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
    });
    let headless = json!({"clusterIP": "None", "internalTrafficPolicy": "Local"});
    let all = with([service("web", usual), service("api", headless)]);
    assert_eq!(all.notes().count(), 0);

    let labels = json!({"service.kubernetes.io/service-proxy-name": "other"});
    let labelled = whole_service(json!({"metadata": {"name": "web", "namespace": "shop", "labels": labels}}));
    let all = with([labelled]);
    let note = "service `shop/web`: not honoured: label service.kubernetes.io/service-proxy-name: it is rendered here as well \
                as by `other`";
    assert_eq!(all.notes().collect::<Vec<_>>(), [note]);
}

#[test]
fn topology_hints_are_noted_once_for_all_slices_of_a_service() {
    let hinted = |name: &str, address: &str| {
        let mut endpoint = endpoint(address, "web-0", "ready");
        endpoint["hints"] = json!({"forZones": [{"name": "z1"}]});
        slice(name, http(8080), json!([endpoint]))
    };
    let mut all = with([hinted("a", "10.1.1.2"), node("node-a", "10.0.0.1")]);
    let note = "service `shop/web`: not honoured: its topology hints: traffic goes to endpoints in every zone";
    assert_eq!(all.notes().collect::<Vec<_>>(), [note]);
    assert_eq!(all.take_in(&look([is(hinted("b", "10.1.1.3"))])).notes, [""; 0]);
    all.take_in(&look([gone(&hinted("a", "10.1.1.2"))]));
    assert_eq!(all.notes().collect::<Vec<_>>(), [note], "slice b has them still");
    all.take_in(&look([gone(&hinted("b", "10.1.1.3"))]));
    assert_eq!(all.notes().count(), 0);
}

/// A Service of type LoadBalancer at 203.0.113.9 and 2001:db8::9, for clients of these networks.
fn restricted(ranges: Value, annotations: Value) -> Object {
    whole_service(json!({
        "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.1", "loadBalancerSourceRanges": ranges,
            "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}, {"ip": "2001:db8::9"}]}},
    }))
}

#[test]
fn load_balancer_addresses_with_source_ranges_are_kept_back() {
    let annotation = json!({"service.beta.kubernetes.io/load-balancer-source-ranges": "198.51.100.0/24"});
    for object in [
        restricted(json!(["198.51.100.0/24"]), json!({})),
        restricted(json!([]), annotation),
    ] {
        let mut all = cluster();
        let told = all.take_in(&look([is(object)]));
        let services = all.services();
        let [service] = services.as_slice() else { panic!() };
        assert_eq!(
            (&service.lb_ingress_ips, service.cluster_ip.as_str()),
            (&vec![], "10.96.0.1")
        );
        assert_eq!(service.ports[0].node_port, 30080);
        let problems: Vec<&str> = all.problems().collect();
        assert!(
            problems.len() == 1 && problems[0].contains("203.0.113.9, 2001:db8::9 are not given to the renderers"),
            "{problems:?}"
        );
        assert_eq!((told.notes, told.about.len()), (vec![problems[0].to_owned()], 1));
    }
    let mut all = with([restricted(json!(["0.0.0.0/0"]), json!({}))]);
    assert_eq!(
        all.services()[0].lb_ingress_ips,
        ["203.0.113.9"],
        "every client of IPv4 may"
    );
    let told = all.take_in(&look([is(restricted(json!([]), json!({})))]));
    assert_eq!(told.events.len(), 1);
    assert_eq!((all.services()[0].lb_ingress_ips.len(), all.problems().count()), (2, 0));
}

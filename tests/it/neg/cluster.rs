//! A cluster's objects: Nodes in three zones, and Services with pods that have one address or two.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use super::compute::{Contents, Endpoint};
use support::Site;

pub(crate) const ZONES: [&str; 3] = ["europe-west3-a", "europe-west3-b", "europe-west3-c"];

/// As many as Kubernetes puts into one.
const ENDPOINTS_PER_SLICE: usize = 100;

/// The port of the pods.
const TARGET_PORT: u16 = 8080;

/// The addresses of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stack {
    Single,
    Dual,
}

/// A Service with port 80, which names its NEGs.
#[derive(Debug, Clone)]
struct Service {
    /// The name of its NEGs.
    neg: String,
    /// Its number in its pods' addresses.
    number: u8,
    pods_per_zone: u8,
    stack: Stack,
    /// Additional fields of its `spec`.
    spec: Value,
}

/// A pod: its zone, and its number there.
#[derive(Debug, Clone, Copy)]
struct Pod {
    zone: u8,
    number: u8,
}

/// The contents of the folder of manifests for NEGs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cluster {
    services: BTreeMap<String, Service>,
}

impl Cluster {
    /// One Service, `web`, with this many pods in each zone.
    pub(crate) fn of(pods_per_zone: u8, stack: Stack) -> Self {
        let mut cluster = Self::default();
        cluster.add("web", pods_per_zone, stack);
        cluster
    }

    /// Another Service, whose NEGs have its name.
    pub(crate) fn add(&mut self, name: &str, pods_per_zone: u8, stack: Stack) {
        let is_free = |number: &u8| self.services.values().all(|service| service.number != *number);
        let service = Service {
            neg: name.to_owned(),
            number: (0..=u8::MAX).find(is_free).unwrap(),
            pods_per_zone,
            stack,
            spec: json!({}),
        };
        self.services.insert(name.to_owned(), service);
    }

    /// Adds fields to a Service's `spec`.
    pub(crate) fn set_spec(&mut self, name: &str, spec: Value) {
        self.services.get_mut(name).unwrap().spec = spec;
    }

    /// The Services' names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.services.keys().cloned().collect()
    }

    /// Gives a Service another name; it keeps its pods and its NEGs.
    pub(crate) fn rename(&mut self, name: &str, other: &str) {
        let service = self.services.remove(name).unwrap();
        assert!(self.services.insert(other.to_owned(), service).is_none(), "{other}");
    }

    /// Sets a Service's pods in each zone.
    pub(crate) fn resize(&mut self, name: &str, pods_per_zone: u8) {
        self.services.get_mut(name).unwrap().pods_per_zone = pods_per_zone;
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.services.remove(name).unwrap();
    }

    pub(crate) fn set_stack(&mut self, stack: Stack) {
        for service in self.services.values_mut() {
            service.stack = stack;
        }
    }

    /// Pods of all Services.
    pub(crate) fn pods(&self) -> usize {
        let pods = |service: &Service| ZONES.len() * usize::from(service.pods_per_zone);
        self.services.values().map(pods).sum()
    }

    /// All objects. The slices of one Service follow one another, by pods and then by family.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let mut objects: Vec<Value> = ZONES.iter().enumerate().map(|(zone, name)| node(zone, name)).collect();
        for (name, service) in &self.services {
            objects.push(service.object(name));
            objects.extend(service.slices(name));
        }
        objects
    }

    /// The same, as manifests.
    pub(crate) fn manifests(&self) -> String {
        let documents: Vec<String> = self.objects().iter().map(Value::to_string).collect();
        documents.join("\n---\n")
    }

    /// Writes them as manifests.
    pub(crate) fn write(&self, site: &Site) {
        site.put_manifest("negs.yaml", &self.manifests());
    }

    /// The desired contents of its Services' NEGs.
    pub(crate) fn contents(&self) -> Contents {
        let mut contents = Contents::new();
        for service in self.services.values() {
            for pod in service.pods() {
                let place = (ZONES[usize::from(pod.zone)].to_owned(), service.neg.clone());
                contents.entry(place).or_default().insert(service.endpoint(pod));
            }
        }
        contents
    }
}

fn node(zone: usize, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": format!("neg-node-{zone}"), "labels": {"topology.kubernetes.io/zone": name}},
        "spec": {"providerID": format!("gce://p1/{name}/vm-{zone}")},
        "status": {
            "addresses": [{"type": "InternalIP", "address": format!("192.0.2.{}", 100 + zone)}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

impl Service {
    fn pods(&self) -> impl Iterator<Item = Pod> {
        let zones = 0..u8::try_from(ZONES.len()).unwrap();
        let pods_per_zone = self.pods_per_zone;
        zones.flat_map(move |zone| (0..pods_per_zone).map(move |number| Pod { zone, number }))
    }

    fn v4(&self, pod: Pod) -> String {
        Ipv4Addr::new(10, self.number, pod.zone, pod.number).to_string()
    }

    fn v6(&self, pod: Pod) -> String {
        let [number, zone, pod] = [self.number, pod.zone, pod.number].map(u16::from);
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, number, zone, pod).to_string()
    }

    fn endpoint(&self, pod: Pod) -> Endpoint {
        Endpoint {
            instance: format!("vm-{}", pod.zone),
            ip_address: self.v4(pod),
            ipv6_address: match self.stack {
                Stack::Single => String::new(),
                Stack::Dual => self.v6(pod),
            },
            port: TARGET_PORT,
        }
    }

    fn object(&self, name: &str) -> Value {
        let annotation = json!({"exposed_ports": {"80": {"name": self.neg}}}).to_string();
        let mut spec = json!({"ports": [{"name": "http", "port": 80, "nodePort": 30_080, "targetPort": TARGET_PORT}]});
        spec.as_object_mut()
            .unwrap()
            .extend(self.spec.as_object().unwrap().clone());
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": format!("uid-{}", self.number),
                "annotations": {"cloud.google.com/neg": annotation},
            },
            "spec": spec,
        })
    }

    fn slices(&self, name: &str) -> Vec<Value> {
        let pods: Vec<Pod> = self.pods().collect();
        let mut slices = Vec::new();
        for (number, pods) in pods.chunks(ENDPOINTS_PER_SLICE).enumerate() {
            slices.push(self.slice(name, number, "IPv4", pods, Self::v4));
            if self.stack == Stack::Dual {
                slices.push(self.slice(name, number, "IPv6", pods, Self::v6));
            }
        }
        slices
    }

    fn slice(&self, name: &str, number: usize, family: &str, pods: &[Pod], address: fn(&Self, Pod) -> String) -> Value {
        let entry = |pod: &Pod| {
            let Pod { zone, number } = pod;
            json!({
                "addresses": [address(self, *pod)],
                "conditions": {"ready": true},
                "nodeName": format!("neg-node-{zone}"),
                "targetRef": {"kind": "Pod", "name": format!("{name}-{zone}-{number}"), "uid": format!("{name}-{zone}-{number}")},
            })
        };
        let entries: Vec<Value> = pods.iter().map(entry).collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{name}-{}-{number}", family.to_lowercase()),
                "namespace": "shop",
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": family,
            "ports": [{"name": "http", "port": TARGET_PORT, "protocol": "TCP"}],
            "endpoints": entries,
        })
    }
}

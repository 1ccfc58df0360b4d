//! Parses the API server's data into objects, without the parts that no adapter reads.
//!
//! Pure: bytes in, objects out. An unreadable object is reported by name and hides no other.
//!
//! ```text
//! list, line of a watch -> parts -> object (trimmed), or who it is and why it can't be read
//! ```

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, PodStatus, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use trueup_base::text;

use crate::object::{Kind, Object, ObjectRef};

/// The copy of its input that `kubectl apply` stores: as long as the object itself, and useless here.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// One page of a list.
#[derive(Debug, Deserialize)]
pub(super) struct Page<'a> {
    #[serde(default)]
    pub(super) metadata: Metadata,
    /// Kubernetes writes `null` for an empty list.
    #[serde(borrow, default)]
    pub(super) items: Option<Vec<&'a RawValue>>,
}

/// The version and the name of an object, even if the rest is invalid; or the position of a page.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    name: String,
    namespace: Option<String>,
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// One line of a watch.
#[derive(Debug, Deserialize)]
pub(super) struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The content of a line of a watch.
#[derive(Debug)]
pub(super) enum Received {
    /// The object is new or changed.
    Is(Read),
    /// The object is gone.
    Gone {
        reference: ObjectRef,
        version: Option<String>,
    },
    /// No change up to this version.
    Bookmark(String),
    /// The watch has failed.
    Error(Box<Status>),
}

/// An object in the form it was sent.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) reference: ObjectRef,
    /// Its resource version. `None` if even that is unreadable.
    pub(super) version: Option<String>,
    /// The object, or why it is unreadable.
    pub(super) object: Result<Object, String>,
}

#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

/// Reads a line of a watch of `kind`.
///
/// # Errors
/// If it is invalid, or does not identify its object: then the change is unknown.
pub(super) fn line(kind: Kind, line: &[u8]) -> Result<Received, String> {
    let Line { kind: type_, object } = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    match type_ {
        "ADDED" | "MODIFIED" => Ok(Received::Is(read(kind, object)?)),
        "DELETED" => {
            let metadata = named(object)?;
            Ok(Received::Gone {
                reference: metadata.reference(kind),
                version: metadata.version(),
            })
        }
        "BOOKMARK" => {
            let version = named(object)?.version();
            let version = version.ok_or_else(|| "a bookmark without resourceVersion".to_owned())?;
            Ok(Received::Bookmark(version))
        }
        "ERROR" => {
            let status = serde_json::from_str(object.get()).map_err(|error| error.to_string())?;
            Ok(Received::Error(status))
        }
        other => Err(format!("unknown type of event `{}`", text::line(other))),
    }
}

/// Reads one object of `kind`.
///
/// # Errors
/// If it does not identify itself.
pub(super) fn read(kind: Kind, raw: &RawValue) -> Result<Read, String> {
    let object = match kind {
        Kind::EndpointSlice => typed(raw, |_| {}).map(Object::EndpointSlice),
        Kind::Node => typed(raw, trim_node).map(Object::Node),
        Kind::Pod => typed(raw, trim_pod).map(Object::Pod),
        Kind::Service => typed(raw, |_| {}).map(Object::Service),
    };
    let (reference, version) = match &object {
        Ok(object) => (object.reference(), object.metadata().resource_version.clone()),
        Err(_) => {
            let metadata = named(raw)?;
            (metadata.reference(kind), metadata.resource_version)
        }
    };
    if reference.name.is_empty() {
        return Err(format!("a {} without metadata.name", kind.name()));
    }
    Ok(Read {
        reference,
        version: version.filter(|version| !version.is_empty()),
        object,
    })
}

/// A Service that was read separately, or returned by a write.
pub(super) fn trimmed(mut service: Service) -> Arc<Service> {
    trim_metadata(&mut service.metadata);
    Arc::new(service)
}

fn named(raw: &RawValue) -> Result<Metadata, String> {
    let named = serde_json::from_str(raw.get()).map(|named: Named| named.metadata);
    named.map_err(|error| format!("an object whose metadata can't be read: {error}"))
}

impl Metadata {
    /// `None` if it is missing or empty.
    pub(super) fn version(&self) -> Option<String> {
        self.resource_version.clone().filter(|version| !version.is_empty())
    }

    /// The start of the next page. `None` for the last page.
    pub(super) fn next(&self) -> Option<String> {
        self.next.clone().filter(|next| !next.is_empty())
    }

    fn reference(&self, kind: Kind) -> ObjectRef {
        let namespace = self.namespace.clone().filter(|_| kind.has_namespace());
        ObjectRef::new(kind, namespace.unwrap_or_default(), &*self.name)
    }
}

/// `trim`: what a kind leaves out beside a part of its metadata.
fn typed<T>(raw: &RawValue, trim: impl Fn(&mut T)) -> Result<Arc<T>, String>
where
    T: DeserializeOwned + k8s_openapi::Metadata<Ty = ObjectMeta>,
{
    let mut object: T = serde_json::from_str(raw.get()).map_err(|error| text::line(&error.to_string()))?;
    trim_metadata(object.metadata_mut());
    trim(&mut object);
    Ok(Arc::new(object))
}

fn trim_metadata(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    metadata.generate_name = None;
    metadata.self_link = None;
    metadata.owner_references = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

/// Removes the status that a Node reports every few seconds, so that an unchanged Node compares equal.
fn trim_node(node: &mut Node) {
    let Some(status) = &mut node.status else { return };
    status.images = None;
    status.volumes_attached = None;
    status.volumes_in_use = None;
    status.config = None;
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_heartbeat_time = None;
    }
}

/// Keeps the Node, the addresses, and whether it is ready or has ended: the inputs for endpoints and local pods.
fn trim_pod(pod: &mut Pod) {
    if let Some(spec) = pod.spec.take() {
        pod.spec = Some(PodSpec {
            node_name: spec.node_name,
            host_network: spec.host_network,
            hostname: spec.hostname,
            subdomain: spec.subdomain,
            readiness_gates: spec.readiness_gates,
            ..PodSpec::default()
        });
    }
    if let Some(mut status) = pod.status.take() {
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_probe_time = None;
        }
        pod.status = Some(PodStatus {
            phase: status.phase,
            pod_ip: status.pod_ip,
            pod_ips: status.pod_ips,
            host_ip: status.host_ip,
            host_ips: status.host_ips,
            conditions: status.conditions,
            ..PodStatus::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn said(kind: Kind, line_: &Value) -> Received {
        line(kind, line_.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn an_object_comes_without_what_is_never_read() {
        let pod = json!({"type": "ADDED", "object": {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "a", "namespace": "apps", "resourceVersion": "7", "labels": {"app": "a"},
                "annotations": {LAST_APPLIED: "{}", "kept": "yes"}, "managedFields": [{"manager": "kubectl"}],
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
            "status": {"podIP": "10.0.0.1", "containerStatuses": [], "conditions": [{"type": "Ready", "status": "True"}]},
        }});
        let Received::Is(read) = said(Kind::Pod, &pod) else {
            panic!()
        };
        assert_eq!(
            (read.reference.to_string(), read.version.as_deref()),
            ("Pod apps/a".to_owned(), Some("7"))
        );
        let Ok(Object::Pod(pod)) = read.object else { panic!() };
        assert_eq!(pod.metadata.managed_fields, None);
        assert_eq!(pod.metadata.annotations.as_ref().unwrap().len(), 1);
        let (spec, status) = (pod.spec.as_ref().unwrap(), pod.status.as_ref().unwrap());
        assert_eq!((spec.node_name.as_deref(), spec.containers.len()), (Some("n1"), 0));
        assert_eq!(
            (status.pod_ip.as_deref(), status.container_statuses.is_none()),
            (Some("10.0.0.1"), true)
        );
    }

    #[test]
    fn what_negs_are_made_from_is_kept() {
        let object = |kind, object: Value| {
            let Received::Is(read) = said(kind, &json!({"type": "ADDED", "object": object})) else {
                panic!()
            };
            read.object.unwrap()
        };
        let service = json!({
            "metadata": {"name": "web", "namespace": "shop", "annotations": {
                "cloud.google.com/neg": "{}", LAST_APPLIED: "{}",
            }},
            "spec": {"ipFamilies": ["IPv4", "IPv6"], "ports": [{"name": "http", "port": 80}]},
        });
        let Object::Service(service) = object(Kind::Service, service) else {
            panic!()
        };
        assert_eq!(
            service.metadata.annotations,
            Some([("cloud.google.com/neg".to_owned(), "{}".to_owned())].into())
        );
        let node = json!({
            "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z1"}},
            "spec": {"providerID": "gce://p/z1/vm-1"}, "status": {},
        });
        let Object::Node(node) = object(Kind::Node, node) else {
            panic!()
        };
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        assert_eq!(provider_id, Some("gce://p/z1/vm-1"));
        assert_eq!(node.metadata.labels.as_ref().map(|labels| labels.len()), Some(1));
        let slice = json!({
            "metadata": {
                "name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"},
                "generateName": "web-", "ownerReferences": [],
            },
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{
                "addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n1", "hostname": "h",
                "targetRef": {"kind": "Pod", "name": "web-a", "uid": "u1"},
            }],
        });
        let Object::EndpointSlice(slice) = object(Kind::EndpointSlice, slice.clone()) else {
            panic!()
        };
        assert_eq!(slice.metadata.generate_name, None);
        assert_eq!(slice.metadata.labels.as_ref().map(|labels| labels.len()), Some(1));
        let kept = serde_json::to_value(&*slice).unwrap();
        let endpoint = json!({
            "addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n1", "hostname": "h",
            "targetRef": {"kind": "Pod", "name": "web-a", "uid": "u1"},
        });
        assert_eq!(kept["endpoints"], json!([endpoint]));
        assert_eq!(
            kept["ports"],
            json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
        );
    }

    #[test]
    fn what_local_pods_are_made_from_is_kept() {
        let pod = json!({"type": "ADDED", "object": {
            "metadata": {"name": "a", "namespace": "shop", "uid": "u1"},
            "spec": {"nodeName": "n1", "hostNetwork": true, "containers": []},
            "status": {"podIP": "10.0.0.1", "phase": "Running", "startTime": "2026-01-02T03:04:05Z"},
        }});
        let Received::Is(read) = said(Kind::Pod, &pod) else {
            panic!()
        };
        let kept = match read.object.unwrap() {
            Object::Pod(pod) => serde_json::to_value(&*pod).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(kept["metadata"]["uid"], "u1");
        assert_eq!(
            kept["spec"],
            json!({"containers": [], "hostNetwork": true, "nodeName": "n1"})
        );
        assert_eq!(kept["status"], json!({"phase": "Running", "podIP": "10.0.0.1"}));
    }

    #[test]
    fn a_node_that_only_said_that_it_lives_is_the_same() {
        let node = |version: &str, heartbeat: &str| {
            let node = json!({"type": "MODIFIED", "object": {
                "metadata": {"name": "n1", "resourceVersion": version},
                "status": {
                    "images": [{"names": ["a"], "sizeBytes": 7}],
                    "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}],
                },
            }});
            let Received::Is(read) = said(Kind::Node, &node) else {
                panic!()
            };
            let Ok(Object::Node(node)) = read.object else { panic!() };
            (node.spec.clone(), node.status.clone())
        };
        assert_eq!(node("1", "2026-01-01T00:00:00Z"), node("2", "2026-01-01T00:00:10Z"));
    }

    #[test]
    fn an_object_that_cannot_be_read_is_known_by_name() {
        let service = json!({"type": "MODIFIED", "object": {
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "namespace": "default", "resourceVersion": "9"},
            "spec": {"ports": "none"},
        }});
        let Received::Is(read) = said(Kind::Service, &service) else {
            panic!()
        };
        assert_eq!(
            (read.reference.to_string(), read.version.as_deref()),
            ("Service default/web".to_owned(), Some("9"))
        );
        assert!(read.object.unwrap_err().contains("none"));
        let nameless = json!({"type": "ADDED", "object": {"metadata": {}}});
        assert!(line(Kind::Service, nameless.to_string().as_bytes()).is_err());
    }

    #[test]
    fn the_other_lines_of_a_watch_are_read_too() {
        let bookmark = json!({"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {"resourceVersion": "12"}}});
        assert!(matches!(said(Kind::Node, &bookmark), Received::Bookmark(version) if version == "12"));
        let gone = json!({"type": "DELETED", "object": {"metadata": {"name": "n1", "resourceVersion": "13"}}});
        assert!(matches!(said(Kind::Node, &gone), Received::Gone { reference, .. } if reference.name == "n1"));
        let error = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}});
        assert!(matches!(said(Kind::Node, &error), Received::Error(status) if status.code == 410));
        assert!(line(Kind::Node, br#"{"type":"ELSE","object":{}}"#).is_err());
        assert!(line(Kind::Node, b"{").is_err());
    }

    #[test]
    fn items_of_a_list_need_no_kind_of_their_own() {
        let list = json!({"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "3", "continue": "c"},
            "items": [{"metadata": {"name": "web", "namespace": "a"}}, {"metadata": {"name": "b", "namespace": "a"}, "kind": "Service", "apiVersion": "v1"}]});
        let text = list.to_string();
        let page: Page<'_> = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (page.metadata.resource_version.as_deref(), page.metadata.next.as_deref()),
            (Some("3"), Some("c"))
        );
        for item in page.items.unwrap() {
            read(Kind::Service, item).unwrap().object.unwrap();
        }
        let none: Page<'_> = serde_json::from_str(r#"{"metadata":{"resourceVersion":"1"},"items":null}"#).unwrap();
        assert!(none.items.is_none());
    }
}

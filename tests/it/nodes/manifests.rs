//! One folder of manifests for all hosts of a test: Nodes, and a Service with its endpoints.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// The folder; see the module.
pub(crate) struct Manifests {
    folder: TempDir,
}

impl Manifests {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a manifest atomically, like an editor. The host ignores files that begin with a dot.
    pub(crate) fn put(&self, name: &str, text: &str) {
        let draft = self.folder().join(".draft");
        fs::write(&draft, text).unwrap();
        fs::rename(draft, self.folder().join(name)).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.folder().join(name)).unwrap();
    }

    /// A Node with this management address.
    pub(crate) fn put_node(&self, name: &str, internal_ip: &str) {
        self.put(&format!("{name}.yaml"), &node(name, internal_ip));
    }

    /// A Service of this name with a cluster IP, `10.96.0.LAST`, and this node port; 0 means none.
    pub(crate) fn put_service(&self, name: &str, last: u8, node_port: u16) {
        self.put(&format!("service-{name}.yaml"), &service(name, last, node_port));
    }

    /// A Service's ready endpoints, all at port 8080.
    pub(crate) fn put_endpoints(&self, service: &str, addresses: &[&str]) {
        self.put(&format!("endpoints-{service}.yaml"), &endpoints(service, addresses));
    }
}

pub(crate) fn node(name: &str, internal_ip: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{ name: {name} }}\nstatus: {{ addresses: [{{ type: InternalIP, address: \
         {internal_ip} }}] }}\n"
    )
}

pub(crate) fn service(name: &str, last: u8, node_port: u16) -> String {
    let (kind, port) = match node_port {
        0 => ("ClusterIP", String::new()),
        _ => ("NodePort", format!(", nodePort: {node_port}")),
    };
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: shop, uid: uid-{name} }}\n\
         spec: {{ type: {kind}, clusterIP: 10.96.0.{last}, ports: [{{ name: http, port: 80{port} }}] }}\n"
    )
}

pub(crate) fn endpoints(service: &str, addresses: &[impl std::fmt::Display]) -> String {
    let entries: String = addresses
        .iter()
        .map(|address| format!("- {{ addresses: [{address}], conditions: {{ ready: true }} }}\n"))
        .collect();
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{ name: {service}-1, namespace: shop, uid: uid-{service}-1, labels: {{ kubernetes.io/service-name: {service} }} }}\n\
         addressType: IPv4\nports: [{{ name: http, port: 8080 }}]\nendpoints:\n{entries}"
    )
}

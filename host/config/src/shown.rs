//! The effective configuration as JSON, under the names of its keys, for `/v1/config`.
//!
//! It contains no token, only the location of each.

use serde_json::{Value, json};
use trueup_journal::{Keep, Sync};

use super::{
    AdminAt, CheckpointAt, Config, EnisFrom, EtcdBackend, Guest, InterfacesFrom, Ipam, Lbaas, LbaasBackend, Neg,
    NegBackend, NftablesBackend, OnFailure, OnService, Source, ThisNode,
};

impl Config {
    /// The effective configuration with every default filled in.
    pub fn shown(&self) -> Value {
        let mut shown = self.shown_in_general();
        for (section, key, value) in self.shown_below() {
            if let Some(all) = shown.as_object_mut() {
                let section = all.entry(section).or_insert_with(|| json!({}));
                if let Some(section) = section.as_object_mut() {
                    section.insert(key.to_owned(), value);
                }
            }
        }
        shown
    }

    /// The sections that every host has.
    fn shown_in_general(&self) -> Value {
        let options = &self.journal.options;
        let (sync, interval_ms) = match options.sync {
            Sync::Write => ("write", None),
            Sync::Fsync => ("fsync", None),
            Sync::Interval { ms } => ("interval", Some(ms)),
        };
        let keep_bytes = match options.keep {
            Keep::Bytes(bytes) => Some(bytes),
            _ => None,
        };
        json!({
            "file": self.file,
            "state_dir": self.state_dir,
            "seed": self.seed,
            "journal": {
                "record": self.journal.record,
                "sync": sync,
                "interval_ms": interval_ms,
                "segment_bytes": options.segment_bytes,
                "segment_entries": options.segment_entries,
                "keep_bytes": keep_bytes,
                "keep_total_bytes": self.journal.keep_total_bytes,
                "keep_gone_days": self.journal.keep_gone_days,
            },
            "audit": {
                "keep_bytes": self.audit.keep_bytes,
                "keep_days": self.audit.keep_days,
            },
            "run": {
                "workers": self.run.workers,
                "resync_ms": self.run.resync_ms,
                "backoff_initial_ms": self.run.backoff_initial_ms,
                "backoff_max_ms": self.run.backoff_max_ms,
            },
            "election": self.election.as_ref().map(|election| json!({
                "namespace": election.namespace,
                "name": election.name,
                "identity": election.identity,
                "lease_duration_ms": election.times.lease_duration.as_millis(),
                "renew_deadline_ms": election.times.renew_deadline.as_millis(),
                "retry_period_ms": election.times.retry_period.as_millis(),
            })),
            "admin": {
                "listen": self.admin.listen.as_ref().map(AdminAt::to_string),
                "metrics_listen": self.admin.metrics_listen,
            },
        })
    }

    /// The sections that it has by what it does, as `[SECTION.KEY]`.
    fn shown_below(&self) -> Vec<(&'static str, &'static str, Value)> {
        let mut all = Vec::new();
        if let Some(source) = self.source() {
            all.push(("source", source.kind(), from(source)));
        }
        if let Some(lbaas) = &self.lbaas {
            all.push(("guests", "lbaas", guest(&lbaas.guest)));
            all.push(("adapter", "lbaas", adapter(lbaas)));
            all.push(("backend", "lbaas", backend(lbaas)));
            if let Some(sim) = &lbaas.sim {
                let shown = json!({ "listen": sim.listen, "token": sim.token.to_string() });
                all.push(("sim", "lbaas", shown));
            }
        }
        if let Some(ipam) = &self.ipam {
            all.push(("guests", "ipam", guest(&ipam.guest)));
            all.push(("adapter", "ipam", pods(ipam)));
            all.push(("backend", "checkpoint", checkpoint(&ipam.checkpoint)));
            all.push(("backend", "cri", json!({ "socket": ipam.runtime_socket })));
        }
        if let Some(neg) = &self.neg {
            all.push(("guests", "neg", guest(&neg.guest)));
            all.push(("adapter", "neg", json!(neg.adapter)));
            all.push(("backend", "neg", compute(neg)));
            if let Some(sim) = &neg.sim {
                let token = sim.token.as_ref().map(ToString::to_string);
                all.push(("sim", "compute", json!({ "listen": sim.listen, "token": token })));
            }
        }
        if let Some(node) = &self.node {
            all.push(("adapter", "node", this_node(node)));
            if let Some(nodesync) = &node.nodesync {
                all.push(("guests", "nodesync", guest(nodesync)));
            }
            if let Some(service) = &node.service {
                all.push(("guests", "service", guest(&service.guest)));
                all.push(("adapter", "service", on_service(service)));
                let renderers = service.renderers.iter();
                all.extend(renderers.map(|(name, renderer)| ("guests", *name, guest(renderer))));
            }
            all.push(("backend", "etcd", etcd(&self.etcd)));
            all.push(("backend", "nftables", nftables(&self.nftables)));
        }
        all
    }
}

fn from(source: &Source) -> Value {
    match source {
        Source::Manifests(folder) => json!(folder),
        Source::Kubernetes(cluster) => json!({
            "kubeconfig": cluster.kubeconfig,
            "context": cluster.context,
            "namespaces": cluster.namespaces,
            "watch": cluster.watch.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
            "page_size": cluster.page_size,
            "request_timeout_ms": cluster.request_timeout_ms,
        }),
    }
}

fn guest(guest: &Guest) -> Value {
    let (on_failure, fall_back) = match &guest.failure.on_failure {
        OnFailure::Retry => ("retry", None),
        OnFailure::Hold => ("hold", None),
        OnFailure::FallBack(to) => ("fall-back", Some(to.to_string())),
    };
    json!({
        "use": guest.reference.to_string(),
        "verify": { "keys": guest.verify.keys },
        "settings": guest.settings,
        "grants": guest.grants,
        "limits": guest.limits,
        "gate": guest.proof.gate,
        "gate_calls": guest.proof.gate_calls,
        "accepted_differences": guest.proof.accepted_differences,
        "self_test": guest.proof.self_test,
        "on_failure": on_failure,
        "fall_back": fall_back,
        "quarantine_after": guest.failure.quarantine_after,
        "cycles_max": guest.failure.cycles_max,
        "approve_above": guest.approve_above.objects,
        "approve_above_percent": guest.approve_above.percent,
    })
}

fn adapter(lbaas: &Lbaas) -> Value {
    let settings = &lbaas.adapter;
    json!({
        "cluster": settings.cluster,
        "load_balancers": settings.load_balancers,
        "addresses": settings.addresses,
        "backoff_steps": settings.backoff_steps,
    })
}

fn backend(lbaas: &Lbaas) -> Value {
    match &lbaas.backend {
        LbaasBackend::Simulated => json!({ "kind": "simulated" }),
        LbaasBackend::Anexia(backend) => {
            let settings = backend.settings(lbaas.sim.as_ref().map(|sim| sim.listen));
            json!({
                "kind": "anexia",
                "url": settings.url,
                "allow_http": settings.allow_http,
                "token": backend.token().to_string(),
                "max_concurrent_requests": settings.max_concurrent_requests,
                "page_size": settings.page_size,
                "request_timeout_ms": settings.request_timeout_ms,
                "connect_timeout_ms": settings.connect_timeout_ms,
                "adopt_orphans": settings.adopt_orphans,
            })
        }
    }
}

fn compute(neg: &Neg) -> Value {
    match &neg.backend {
        NegBackend::Simulated => json!({ "kind": "simulated" }),
        NegBackend::Compute(backend) => {
            let settings = backend.settings(neg.sim.as_ref().map(|sim| sim.listen));
            json!({
                "kind": "compute",
                "project": settings.project,
                "network": settings.network,
                "network_project": settings.network_project,
                "url": settings.endpoint,
                "allow_http": settings.allow_http,
                "credentials": backend.credentials.to_string(),
                "operation_timeout_ms": settings.operation_timeout_ms,
                "poll_min_ms": settings.poll_min_ms,
                "poll_max_ms": settings.poll_max_ms,
                "requests_per_second": settings.requests_per_second,
                "concurrent": settings.max_concurrent_requests,
                "request_timeout_ms": settings.request_timeout_ms,
                "connect_timeout_ms": settings.connect_timeout_ms,
                "wait_timeout_ms": settings.wait_timeout_ms,
                "ensure_timeout_ms": settings.ensure_timeout_ms,
            })
        }
    }
}

fn pods(ipam: &Ipam) -> Value {
    let settings = &ipam.adapter;
    let (enis, enis_file) = match &ipam.enis {
        EnisFrom::Given(enis) => (Some(&enis.enis), None),
        EnisFrom::File(file) => (None, Some(file)),
    };
    json!({
        "instance": settings.instance,
        "socket": settings.socket,
        "spool_dir": settings.spool_dir,
        "released_file": settings.released_file,
        "warm_ip_target": settings.warm.map_or(0, |warm| warm.warm_ip_target),
        "minimum_ip_target": settings.warm.map_or(0, |warm| warm.minimum_ip_target),
        "enis": enis,
        "enis_file": enis_file,
    })
}

fn checkpoint(at: &CheckpointAt) -> Value {
    match at {
        CheckpointAt::File {
            path,
            shared_sync,
            keep_generations,
        } => json!({
            "kind": "file", "path": path, "shared_sync": shared_sync, "keep_generations": keep_generations,
        }),
        CheckpointAt::JsonFile { path, keep_generations } => {
            json!({ "kind": "json-file", "path": path, "keep_generations": keep_generations })
        }
        CheckpointAt::Simulated => json!({ "kind": "simulated" }),
    }
}

fn this_node(node: &ThisNode) -> Value {
    let context = &node.context;
    let addresses: Vec<&str> = node.addresses.iter().map(|address| address.text.as_str()).collect();
    json!({
        "name": node.name,
        "addresses": addresses,
        "node_ip": context.node_ip,
        "host_ips": context.host_ips,
        "pod_subnet_this_node": context.pod_subnet_this_node,
        "pod_subnet_all_nodes": context.pod_subnet_all_nodes,
        "main_interface": context.main_interface,
        "other_interfaces": context.other_interfaces,
        "vxlan_bvi_interface": context.vxlan_bvi_interface,
        "host_interconnect_interface": context.host_interconnect_interface,
    })
}

fn on_service(service: &OnService) -> Value {
    let renderers: Vec<&str> = service.renderers.iter().map(|(name, _)| *name).collect();
    let (pattern, file) = match &service.interfaces {
        InterfacesFrom::Nowhere => (None, None),
        InterfacesFrom::Pattern(pattern) => (Some(pattern.to_string()), None),
        InterfacesFrom::File(file) => (None, Some(file)),
    };
    json!({
        "renderers": renderers,
        "pod_interfaces": pattern,
        "pod_interfaces_file": file,
        "resync_ms": service.resync_ms,
    })
}

fn etcd(backend: &EtcdBackend) -> Value {
    match backend {
        EtcdBackend::Embedded(path) => json!({ "kind": "embedded", "path": path }),
        EtcdBackend::Simulated => json!({ "kind": "simulated" }),
        EtcdBackend::Etcd(cluster) => json!({
            "kind": "etcd",
            "endpoints": cluster.endpoints,
            "user": cluster.user.as_ref().map(|(user, _)| user),
            "password_file": cluster.user.as_ref().map(|(_, file)| file),
            "ca_file": cluster.ca_file,
            "cert_file": cluster.own.as_ref().map(|(certificate, _)| certificate),
            "key_file": cluster.own.as_ref().map(|(_, key)| key),
            "server_name": cluster.server_name,
            "request_timeout_ms": cluster.request_timeout.as_millis(),
        }),
    }
}

fn nftables(backend: &NftablesBackend) -> Value {
    match backend {
        NftablesBackend::Simulated => json!({ "kind": "simulated" }),
        NftablesBackend::Nft(program) => json!({
            "kind": "nft",
            "namespace": program.namespace,
            "nft": program.program,
            "timeout_ms": program.timeout.as_millis(),
        }),
    }
}

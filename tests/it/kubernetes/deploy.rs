//! `deploy/trueup.yaml` as it ships, and a part of the chart: every kubectl applies them, and hosts run with exactly
//! their configuration, arguments, variables and rights.
//!
//! Where a pod has something that tests lack (its volumes, its own address), a variable names the replacement.
//! `packages.rs` renders the chart; `source.rs` covers the host's other work with a cluster, `election.rs` the Lease.

use needs::needs;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::RUNTIME;
use super::kubectl::programs;
use super::source::node;
use support::api_server::{ADMIN, ApiServer, Fault};
use support::{Engine, Ran, Started, TOKEN, program, ran, trueup, wait_until};

/// The controller's user in the cluster.
const ACCOUNT: &str = "system:serviceaccount:trueup:trueup";

/// The user of a node's host.
const NODE_ACCOUNT: &str = "system:serviceaccount:trueup:trueup-node";

/// Anything slower counts as a hang: the host repeats an identical event once a minute, and does more meanwhile.
const PATIENCE: Duration = Duration::from_secs(240);

/// The pods behind a Service, as a real cluster has them. The host must neither use nor break them.
const SLICES: &str = r#"
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: web-x7k2p, namespace: default, labels: { kubernetes.io/service-name: web } }
addressType: IPv4
ports: [{ name: http, port: 8080, protocol: TCP }, { name: https, port: 8443, protocol: TCP }]
endpoints:
  - { addresses: [10.0.1.4], nodeName: node-1, conditions: { ready: true }, targetRef: { kind: Pod, name: web-1, namespace: default } }
  - { addresses: [10.0.2.4], nodeName: node-2, conditions: { ready: true }, targetRef: { kind: Pod, name: web-2, namespace: default } }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: dns-9c4mz, namespace: kube-system, labels: { kubernetes.io/service-name: dns } }
addressType: IPv4
ports: [{ name: dns-tcp, port: 53, protocol: TCP }]
endpoints: [{ addresses: [10.0.3.2], nodeName: node-3, conditions: { ready: true } }]
---
apiVersion: v1
kind: Pod
metadata: { name: web-1, namespace: default, labels: { app: web } }
spec: { nodeName: node-1, containers: [{ name: web, image: web }] }
"#;

/// An API server with manifests of a package applied, an Engine, and the environment of a pod.
struct Cluster {
    kubectl: PathBuf,
    server: ApiServer,
    engine: Engine,
    folder: TempDir,
}

impl Cluster {
    /// With `deploy/trueup.yaml`.
    fn deployed(kubectl: PathBuf) -> Self {
        let manifests = fs::read_to_string(shipped("deploy/trueup.yaml")).unwrap();
        Self::with(kubectl, &manifests, ACCOUNT)
    }

    /// With four Nodes, the StatefulSet's secret, and enforced roles.
    fn with(kubectl: PathBuf, manifests: &str, account: &str) -> Self {
        let cluster = Self {
            kubectl,
            server: ApiServer::start_with_tls(),
            engine: Engine::start(&["--settle-ms", "5"]),
            folder: tempfile::tempdir().unwrap(),
        };
        cluster.put("kubeconfig", &cluster.server.kubeconfig(ADMIN, "admin"));
        // In a pod the namespace is that of its service account.
        let account = cluster.server.kubeconfig(account, "its-token");
        assert!(account.contains("\"namespace\": \"default\""), "{account}");
        cluster.put(
            "account",
            &account.replace("\"namespace\": \"default\"", "\"namespace\": \"trueup\""),
        );
        cluster.server.refuse_unknown_tokens(true);
        cluster.server.enforce_rbac(true);
        for number in 1..=4 {
            cluster.server.apply(node(number)).unwrap();
        }
        cluster.kubectl(&["create", "namespace", "trueup"]).exits(0);
        cluster.put("manifests.yaml", manifests);
        cluster.kubectl(&["apply", "-f", "manifests.yaml"]).exits(0);
        cluster.put("token", TOKEN);
        cluster
            .kubectl(&[
                "-n",
                "trueup",
                "create",
                "secret",
                "generic",
                "trueup-engine-token",
                "--from-file=token",
            ])
            .exits(0);
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs kubectl to its end.
    fn kubectl(&self, args: &[&str]) -> Ran {
        let mut command = Command::new(&self.kubectl);
        command
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", self.path("kubeconfig"))
            .current_dir(self.folder.path())
            .args(args);
        ran(&mut command)
    }

    fn pod(&self) -> Value {
        self.server.get("statefulsets", "trueup", "trueup").unwrap()["spec"]["template"]["spec"].clone()
    }

    /// Mounts a pod's ConfigMap and Secret, and starts its container.
    fn start(&self, pod: &Value, name: &str, edit: impl FnOnce(String) -> String) -> Started {
        let config = &list(&pod["volumes"])[0];
        assert_eq!(config["name"], "config");
        let mut sources = list(&config["projected"]["sources"]);
        sources.push(config.clone());
        for source in sources {
            if let Some(name) = source["configMap"]["name"].as_str() {
                let config = self.server.get("configmaps", "trueup", name).unwrap();
                assert_eq!(config["data"].as_object().unwrap().len(), 1, "{config}");
                let text = text(&config["data"]["trueup.toml"]).to_owned();
                self.put("etc/trueup/trueup.toml", &text);
            }
            if let Some(name) = source["secret"]["name"].as_str() {
                let secret = self.server.get("secrets", "trueup", name).unwrap();
                for (file, data) in secret["data"].as_object().unwrap() {
                    let data = BASE64_STANDARD.decode(text(data)).unwrap();
                    self.put(&format!("etc/trueup/{file}"), std::str::from_utf8(&data).unwrap());
                }
            }
        }
        let config = self.path("etc/trueup/trueup.toml");
        fs::write(&config, edit(fs::read_to_string(&config).unwrap())).unwrap();

        let container = &pod["containers"][0];
        let mut command = program();
        for arg in list(&container["args"]) {
            let arg = text(&arg).to_owned();
            command.arg(match arg.strip_prefix('/') {
                Some(path) => self.path(path),
                None => arg.into(),
            });
        }
        for variable in list(&container["env"]) {
            let value = match text(&variable["valueFrom"]["fieldRef"]["fieldPath"]) {
                "metadata.name" | "spec.nodeName" => name,
                "status.hostIP" => "10.0.0.1",
                "" => text(&variable["value"]),
                other => panic!("tests have no {other}"),
            };
            command.env(text(&variable["name"]), value);
        }
        command
            .env("KUBECONFIG", self.path("account"))
            .env("TRUEUP_STATE_DIR", self.path(name))
            .env("TRUEUP_ADMIN_METRICS_LISTEN", "127.0.0.1:0");
        Started::of(&mut command)
    }

    /// Starts a container of the StatefulSet.
    fn start_controller(&self, name: &str) -> Started {
        let url = format!("kind = \"anexia\"\nurl = \"{}\"", self.engine.url());
        self.start(&self.pod(), name, |config| config.replace("kind = \"anexia\"", &url))
    }

    /// The hosts' requests to the API server: group, resource and verb.
    fn asked(&self, account: &str) -> BTreeSet<[String; 3]> {
        let requests = self.server.requests().into_iter().map(|request| request.asked);
        let ours = requests.filter(|asked| asked.user == account && !asked.resource.is_empty());
        ours.map(|asked| {
            let resource = match asked.subresource.as_str() {
                "" => asked.resource,
                subresource => format!("{}/{subresource}", asked.resource),
            };
            [asked.group, resource, asked.verb]
        })
        .collect()
    }

    /// The rights that these roles give.
    fn allowed(&self, roles: &[(&str, &str, &str)]) -> BTreeSet<[String; 3]> {
        let mut allowed = BTreeSet::new();
        for (plural, namespace, name) in roles {
            let role = self.server.get(plural, namespace, name).unwrap();
            for rule in list(&role["rules"]) {
                for group in list(&rule["apiGroups"]) {
                    for resource in list(&rule["resources"]) {
                        for verb in list(&rule["verbs"]) {
                            allowed.insert([&group, &resource, &verb].map(|word| text(word).to_owned()));
                        }
                    }
                }
            }
        }
        allowed
    }

    /// Requests that the server refused.
    fn refused(&self) -> Vec<support::api_server::Logged> {
        let all = self.server.requests().into_iter();
        all.filter(|request| matches!(request.status, 401 | 403)).collect()
    }
}

/// A file or folder of the project.
fn shipped(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder)
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Checks repeatedly until it holds, for longer than `wait_until` does.
#[track_caller]
fn until(what: &str, host: &Started, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        let log = host.stderr();
        assert!(began.elapsed() < PATIENCE, "{what} does not come about:\n{log}");
        thread::sleep(Duration::from_millis(200));
    }
}

/// The address of health and metrics that a host printed.
fn metrics_address(host: &mut Started) -> String {
    let said = |host: &Started| {
        let log = host.stderr();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .collect::<Vec<_>>();
        let messages = lines.iter().map(|line| text(&line["message"]).to_owned());
        let mut addresses = messages.filter_map(|said| said.split_once("http://").map(|(_, rest)| rest.to_owned()));
        addresses.next()
    };
    host.wait_for_warning("admin address");
    format!("http://{}", said(host).unwrap().trim())
}

/// The answer to a `GET`: status and body.
fn get(url: &str) -> (u16, String) {
    RUNTIME.block_on(async {
        // Ignore the error: another test of this process may have been first.
        _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client.get(url).timeout(PATIENCE).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    })
}

#[needs(kubectl, openssl)]
#[test]
fn what_ships_is_applied_by_every_kubectl_and_its_parts_fit() {
    for kubectl in programs() {
        let cluster = Cluster::deployed(kubectl);
        let names = |plural: &str| -> BTreeSet<String> {
            let found = cluster.server.list(plural);
            let ours = found.iter().map(|object| text(&object["metadata"]["name"]).to_owned());
            ours.filter(|name| name.starts_with("trueup")).collect()
        };
        for plural in [
            "namespaces",
            "serviceaccounts",
            "configmaps",
            "clusterroles",
            "clusterrolebindings",
            "services",
            "statefulsets",
            "poddisruptionbudgets",
            "networkpolicies",
        ] {
            assert_eq!(names(plural), ["trueup".to_owned()].into(), "{plural}");
        }
        for plural in ["roles", "rolebindings"] {
            assert_eq!(names(plural), ["trueup-election".to_owned()].into(), "{plural}");
        }
        let shown = cluster
            .kubectl(&["-n", "trueup", "get", "statefulsets,poddisruptionbudgets"])
            .exits(0);
        assert!(shown.stdout.contains("statefulset.apps/trueup"), "{shown}");
        let again = cluster.kubectl(&["apply", "-f", "manifests.yaml"]).exits(0);
        assert!(!again.stdout.contains("created"), "{again}");

        // Probes and Prometheus ask at the address that the configuration sets.
        let pod = cluster.pod();
        let container = &pod["containers"][0];
        let config = cluster.server.get("configmaps", "trueup", "trueup").unwrap();
        let config = text(&config["data"]["trueup.toml"]);
        let port = container["ports"][0]["containerPort"].clone();
        assert_eq!(container["ports"][0]["name"], "metrics");
        assert!(
            config.contains(&format!("metrics_listen = \"0.0.0.0:{port}\"")),
            "{config}"
        );
        let template = cluster.server.get("statefulsets", "trueup", "trueup").unwrap()["spec"]["template"].clone();
        let annotations = &template["metadata"]["annotations"];
        assert_eq!(annotations["prometheus.io/port"], json!(port.to_string()));
        // A host that is asked to end waits at most 20 s for the Engine, reports what is left, and gives the lease
        // back.
        assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() >= 40, "{pod}");
        // The configuration's files are mounted.
        for mount in list(&container["volumeMounts"]) {
            let path = text(&mount["mountPath"]);
            let is_named = config.contains(path) || list(&container["args"]).contains(&json!(path));
            assert!(is_named, "no part reads {path}");
        }
    }
}

#[needs(kubectl, openssl)]
#[test]
fn two_hosts_need_exactly_the_rights_that_they_are_given() {
    let kubectl = programs().swap_remove(0);
    let cluster = Cluster::deployed(kubectl);
    // Another client writes first, once, so the host reads the Service again.
    let conflict = Fault::Refused {
        code: 409,
        retry_after_s: None,
    };
    let finalizer = |asked: &support::api_server::Asked| asked.is("patch", "services") && asked.subresource.is_empty();
    cluster.server.fault(finalizer, conflict, Some(1));

    let mut first = cluster.start_controller("trueup-1");
    wait_until("the first to lead", || {
        let lease = cluster.server.get("leases", "trueup", "trueup");
        lease.is_some_and(|lease| lease["spec"]["holderIdentity"] == "trueup-1")
    });
    let mut second = cluster.start_controller("trueup-2");
    let pod = cluster.pod();
    let probe = |name: &str| text(&pod["containers"][0][name]["httpGet"]["path"]).to_owned();
    for (host, leads) in [(&mut first, "1"), (&mut second, "0")] {
        let address = metrics_address(host);
        for path in [probe("livenessProbe"), probe("readinessProbe")] {
            let mut answer = get(&format!("{address}{path}"));
            until(&path, host, || {
                answer = get(&format!("{address}{path}"));
                answer.0 == 200
            });
        }
        let line = format!("trueup_leader {leads}");
        until(&line, host, || {
            let (status, metrics) = get(&format!("{address}/metrics"));
            assert_eq!(status, 200);
            metrics.lines().any(|one| one == line)
        });
        for path in ["/", "/v1/status", "/v1/keys", "/ui", "/ui/"] {
            assert_eq!(
                get(&format!("{address}{path}")).0,
                404,
                "{path} is for this machine alone"
            );
        }
    }

    cluster.put("slices.yaml", SLICES);
    let manifests = shipped("examples/quickstart/manifests");
    let applied = cluster
        .kubectl(&["apply", "-f", manifests.to_str().unwrap(), "-f", "slices.yaml"])
        .exits(0);
    assert!(
        applied
            .stdout
            .contains("endpointslice.discovery.k8s.io/web-x7k2p created"),
        "{applied}"
    );
    let addresses = ["203.0.113.10", "203.0.113.20,2001:db8::20", "203.0.113.30"];
    until("addresses in kubectl get svc", &first, || {
        let shown = cluster.kubectl(&["get", "svc", "-A"]).exits(0).stdout;
        addresses.iter().all(|address| shown.contains(address))
    });
    until("an event in kubectl describe svc", &first, || {
        let described = cluster.kubectl(&["describe", "svc", "web"]).exits(0).stdout;
        described.contains("EnsuredLoadBalancer") && described.contains("trueup.dev/trueup")
    });
    let leases = cluster.kubectl(&["-n", "trueup", "get", "lease"]).exits(0).stdout;
    assert!(leases.contains("trueup-1"), "{leases}");

    // After a minute, an identical event increments the count of the first one.
    let web = |node_port: u32| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"type": "LoadBalancer", "ports": [
                {"name": "http", "port": 80, "nodePort": node_port}, {"name": "https", "port": 443, "nodePort": 30443},
            ]},
        })
    };
    let mut node_port = 30_080;
    until("an event to be counted up", &first, || {
        node_port = if node_port == 30_080 { 30_081 } else { 30_080 };
        // One change at a time: what a job did that another change cut is in the next event, whose text then differs.
        let lines = || first.stdout().matches("default/web ").count();
        let before = lines();
        cluster.server.apply(web(node_port)).unwrap();
        wait_until("the host to report the change", || lines() > before);
        let counted = |event: &Value| event["series"]["count"].as_u64().is_some_and(|count| count >= 2);
        cluster.server.list("events").iter().any(counted)
    });

    // A rollout: the first host goes, the second does the rest.
    first.terminate().0.exits(0);
    until("the second to lead", &second, || {
        let shown = cluster.kubectl(&["-n", "trueup", "get", "lease"]).exits(0).stdout;
        shown.contains("trueup-2")
    });
    for (name, namespace) in [("web", "default"), ("api", "default"), ("dns", "kube-system")] {
        cluster
            .kubectl(&["-n", namespace, "delete", "svc", name, "--wait=false"])
            .exits(0);
    }
    // Together they are more than half of all objects.
    let approve = || {
        trueup([
            "approve".into(),
            "--state-dir".into(),
            cluster.path("trueup-2").into_os_string(),
        ])
    };
    until("an approval", &second, || approve().code == Some(0));
    until("that of the chart alone to be left", &second, || {
        approve();
        let services = cluster.server.list("services");
        let left = services.iter().map(|service| text(&service["metadata"]["name"]));
        left.eq(["trueup"])
    });
    assert_eq!(cluster.engine.objects(), []);
    second.terminate().0.exits(0);

    assert!(cluster.refused().is_empty(), "{:?}", cluster.refused());
    let roles = [("clusterroles", "", "trueup"), ("roles", "trueup", "trueup-election")];
    assert_eq!(
        cluster.asked(ACCOUNT),
        cluster.allowed(&roles),
        "what was asked (left) is what deploy/trueup.yaml gives (right)"
    );
    // The host writes only to the state folder: the rest of a pod's disk is read-only.
    assert_eq!(support::files_under(&cluster.path("etc/trueup")).len(), 2);
}

#[needs(kubectl, openssl, pypi)]
#[test]
fn a_nodes_host_needs_only_the_rights_of_its_part() {
    let chart = crate::packages::rendered(&json!({"controller": {"enabled": false}, "node": {"enabled": true}}));
    let cluster = Cluster::with(programs().swap_remove(0), &chart.text, NODE_ACCOUNT);
    cluster.put("slices.yaml", SLICES);
    let manifests = shipped("examples/quickstart/manifests");
    cluster
        .kubectl(&["apply", "-f", manifests.to_str().unwrap(), "-f", "slices.yaml"])
        .exits(0);
    let not_honoured = json!({"spec": {"internalTrafficPolicy": "Local"}}).to_string();
    cluster.kubectl(&["patch", "svc", "web", "-p", &not_honoured]).exits(0);

    let set = cluster.server.get("daemonsets", "trueup", "trueup-node").unwrap();
    let pod = &set["spec"]["template"]["spec"];
    let mut host = cluster.start(pod, "node-1", |config| {
        let store = "kind = \"etcd\"\nendpoints = [\"http://127.0.0.1:2379\"]";
        assert!(config.contains(store), "{config}");
        config.replace(store, "kind = \"simulated\"") + "\n[backend.nftables]\nkind = \"simulated\"\n"
    });
    host.wait_for("node-1                   true     2 services rendered by nftables/node-1");
    until("an event", &host, || {
        let events = cluster.server.list("events");
        events.iter().any(|event| event["reason"] == "NotHonoured")
    });
    host.terminate().0.exits(0);
    assert!(cluster.refused().is_empty(), "{:?}", cluster.refused());
    let mut allowed = cluster.allowed(&[("clusterroles", "", "trueup-node")]);
    // After a minute, an event is counted up; the controller's test waits for it.
    assert!(allowed.remove(&["events.k8s.io", "events", "patch"].map(str::to_owned)));
    assert_eq!(cluster.asked(NODE_ACCOUNT), allowed);
}

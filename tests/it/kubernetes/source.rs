//! trueup with a cluster as its source: the real binary, the tests' API server, and an Engine in its own process.
//!
//! Other files here cover the API server itself; `scenarios/` covers the guest's decisions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use support::api_server::{ADMIN, ApiServer, Fault};
use support::{Engine, Ran, Site, Started, ran, wait_until};

/// trueup's finalizer, on each Service that has objects.
const FINALIZER: &str = "trueup.dev/lbaas";

/// A plausible outage of an API server during its upgrade.
const AWAY: Duration = Duration::from_secs(20);

/// Anything slower counts as a hang: it allows for half a minute's pause and all of the work, on a machine with other
/// work.
const PATIENCE: Duration = Duration::from_secs(180);

/// An API server, an Engine, and a configuration with both.
struct Cluster {
    server: ApiServer,
    engine: Engine,
    site: Site,
}

impl Cluster {
    /// With only four Nodes.
    fn new() -> Self {
        let server = ApiServer::start();
        let engine = Engine::start(&["--settle-ms", "5"]);
        let site = Site::against(&engine);
        site.edit(
            "trueup.toml",
            "manifests = \"manifests\"",
            "kubernetes = { kubeconfig = \"kubeconfig\" }",
        );
        // These tests delete more than half of the objects.
        site.edit(
            "trueup.toml",
            "\n[guests.lbaas]\n",
            "\n[guests.lbaas]\napprove_above_percent = 100\n",
        );
        fs::write(site.path("kubeconfig"), server.kubeconfig(ADMIN, "admin")).unwrap();
        for number in 1..=4 {
            server.apply(node(number)).unwrap();
        }
        Self { server, engine, site }
    }

    fn start(&self) -> Started {
        self.site.start("run", &[])
    }

    /// Runs kubectl to its end.
    fn kubectl(&self, args: &[&str]) -> Ran {
        let mut command = Command::new("kubectl");
        command
            .env("HOME", self.site.folder())
            .env("KUBECONFIG", self.site.path("kubeconfig"))
            .current_dir(self.site.folder())
            .args(args);
        ran(&mut command)
    }

    fn service(&self, name: &str) -> Option<Value> {
        self.server.get("services", "default", name)
    }

    fn finalizers(&self, name: &str) -> Vec<String> {
        self.service(name)
            .map(|service| texts(&service["metadata"]["finalizers"]))
            .unwrap_or_default()
    }

    /// The addresses in a Service's status.
    fn addresses(&self, name: &str) -> Vec<String> {
        let service = self.service(name).unwrap_or_default();
        let ingress = service["status"]["loadBalancer"]["ingress"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        ingress
            .iter()
            .map(|entry| entry["ip"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// The names of the Services with objects at the Engine.
    fn served(&self) -> BTreeSet<String> {
        let objects = self.engine.objects();
        let of = |name: String| name.rsplit('.').nth(2).map(str::to_owned);
        objects.iter().filter_map(|object| of(object.name())).collect()
    }

    fn wait_for_addresses(&self, names: &[&str]) {
        for name in names {
            wait_until(&format!("addresses of {name}"), || !self.addresses(name).is_empty());
        }
    }

    /// Waits until a plan finds nothing to do.
    #[track_caller]
    fn wait_until_true(&self) {
        let mut last = None;
        wait_until("nothing to be left to do", || {
            let plan = self.site.plan();
            let done = plan.code == Some(0);
            last = Some(plan);
            done
        });
        assert!(
            last.unwrap()
                .last_line()
                .contains(" 0 to create, 0 to destroy, 0 failed")
        );
    }

    /// The writes through the API server: verbs and resources.
    fn writes(&self) -> BTreeSet<String> {
        let requests = self.server.requests();
        let asked = requests.iter().map(|request| &request.asked);
        let writes = asked.filter(|asked| !matches!(asked.verb.as_str(), "get" | "list" | "watch"));
        writes
            .map(|asked| format!("{} {}/{}", asked.verb, asked.resource, asked.subresource))
            .collect()
    }
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().cloned().unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

pub(super) fn node(number: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number}")},
        "status": {
            "addresses": [{"type": "InternalIP", "address": format!("192.0.2.{}", 10 + number)}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// A Service with one port; each number gives another address.
fn service(name: &str, number: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": name, "namespace": "default",
            "annotations": {"trueup.dev/addresses": format!("203.0.113.{number}")},
        },
        "spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80, "nodePort": 30000 + node_port(name)}]},
    })
}

/// Each Service has a node port of its own.
fn node_port(name: &str) -> u32 {
    name.bytes().fold(7, |sum, byte| (sum * 31 + u32::from(byte)) % 2_700)
}

#[test]
fn what_kubectl_applies_is_served_and_what_it_deletes_is_gone_first() {
    let cluster = Cluster::new();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/trueup.yaml");
    cluster.kubectl(&["create", "namespace", "trueup"]).exits(0);
    cluster.kubectl(&["apply", "-f", shipped.to_str().unwrap()]).exits(0);
    // With exactly the rights of the manifests.
    let account = cluster
        .server
        .kubeconfig("system:serviceaccount:trueup:trueup", "its-token");
    fs::write(cluster.site.path("account"), account).unwrap();
    cluster
        .site
        .edit("trueup.toml", "kubeconfig = \"kubeconfig\"", "kubeconfig = \"account\"");
    // The Lease to which deploy/trueup.yaml gives the right.
    cluster.site.edit(
        "trueup.toml",
        "\n[guests.lbaas]\n",
        "\n[election]\nnamespace = \"trueup\"\n\n[guests.lbaas]\n",
    );
    cluster.server.enforce_rbac(true);
    let admin = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "kubectl"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "everything"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}],
    });
    let everything = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "everything"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}],
    });
    cluster.server.apply(everything).unwrap();
    cluster.server.apply(admin).unwrap();

    let mut host = cluster.start();
    cluster.kubectl(&["apply", "-f", "manifests"]).exits(0);
    for key in ["default/api", "default/web", "kube-system/dns"] {
        host.wait_for(&format!("{key:<24} true "));
    }
    wait_until("addresses in kubectl get svc", || {
        let shown = cluster.kubectl(&["get", "svc", "-A"]).exits(0).stdout;
        ["203.0.113.20,2001:db8::20", "203.0.113.10", "203.0.113.30"]
            .iter()
            .all(|address| shown.contains(address))
    });
    let web = cluster.service("web").unwrap();
    assert_eq!(texts(&web["metadata"]["finalizers"]), [FINALIZER]);
    let ports = &web["status"]["loadBalancer"]["ingress"][0]["ports"];
    assert_eq!((&ports[0]["port"], &ports[1]["port"]), (&json!(80), &json!(443)));
    assert!(cluster.site.state_dir().join("status/default/web.json").is_file());
    wait_until("an event", || {
        let events = cluster.server.list("events");
        events
            .iter()
            .any(|event| event["reason"] == "EnsuredLoadBalancer" && event["involvedObject"]["name"] == "web")
    });

    cluster.kubectl(&["delete", "svc", "web", "--timeout=60s"]).exits(0);
    assert_eq!(cluster.service("web"), None);
    assert_eq!(cluster.engine.objects_of("web.default"), []);
    assert!(!cluster.engine.objects_of("api.default").is_empty());
    assert!(!cluster.site.state_dir().join("status/default/web.json").exists());

    // The requests match the roles: none was refused.
    let refused: Vec<_> = cluster
        .server
        .requests()
        .into_iter()
        .filter(|request| request.status == 403)
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
    host.terminate().0.exits(0);
}

#[test]
fn a_service_that_is_no_load_balancer_any_more_is_let_go() {
    let cluster = Cluster::new();
    let mut web = service("web", 1);
    web["metadata"]["finalizers"] = json!(["example.com/other"]);
    cluster.server.apply(web).unwrap();
    let host = cluster.start();
    cluster.wait_for_addresses(&["web"]);
    assert_eq!(cluster.finalizers("web"), ["example.com/other", FINALIZER]);

    let plain = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"}, "spec": {"type": "ClusterIP"}});
    cluster.server.apply(plain).unwrap();
    wait_until("our finalizer to go", || {
        cluster.finalizers("web") == ["example.com/other"]
    });
    assert_eq!((cluster.engine.objects(), cluster.addresses("web")), (vec![], vec![]));

    // And back: the host serves it like a new one.
    cluster.server.apply(service("web", 1)).unwrap();
    cluster.wait_for_addresses(&["web"]);
    assert!(!cluster.server.delete("services", "default", "web").unwrap());
    wait_until("our finalizer to go", || {
        cluster.finalizers("web") == ["example.com/other"]
    });
    assert_eq!(cluster.engine.objects(), []);
    assert!(
        cluster.service("web").is_some(),
        "the other finalizer is not ours to take"
    );
    host.terminate().0.exits(0);
}

#[test]
fn a_host_that_never_saw_a_service_cleans_it_up_by_its_finalizer() {
    let cluster = Cluster::new();
    for (name, number) in [("deleted", 1), ("plain", 2), ("stays", 3)] {
        cluster.server.apply(service(name, number)).unwrap();
    }
    cluster
        .site
        .converges("3 services: 3 true, 0 failed; 21 created, 0 destroyed");
    fs::remove_dir_all(cluster.site.state_dir()).unwrap();
    assert!(!cluster.server.delete("services", "default", "deleted").unwrap());
    let plain = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "plain", "namespace": "default"}, "spec": {"type": "ClusterIP"}});
    cluster.server.apply(plain).unwrap();

    let plan = cluster.site.plan().exits(3);
    assert_eq!(plan.last_line(), "3 services: 0 to create, 14 to destroy, 0 failed");
    cluster
        .site
        .converges("3 services: 3 true, 0 failed; 0 created, 14 destroyed");
    assert_eq!(cluster.service("deleted"), None);
    assert_eq!(cluster.finalizers("plain"), Vec::<String>::new());
    assert_eq!(cluster.finalizers("stays"), [FINALIZER]);
    assert_eq!(cluster.served(), ["stays".to_owned()].into());
}

#[test]
fn a_service_whose_finalizer_was_forced_away_is_cleaned_up_all_the_same() {
    let cluster = Cluster::new();
    for (name, number) in [("forced", 1), ("stays", 2)] {
        cluster.server.apply(service(name, number)).unwrap();
    }
    let host = cluster.start();
    cluster.wait_for_addresses(&["forced", "stays"]);
    host.terminate().0.exits(0);
    force_away(&cluster, "forced");

    let host = cluster.start();
    wait_until("its objects to go", || cluster.served() == ["stays".to_owned()].into());
    // Also during a watch.
    force_away(&cluster, "stays");
    wait_until("its objects to go", || cluster.served().is_empty());
    host.terminate().0.exits(0);
}

/// Waits for the desired state, however long the pauses have become by then; on failure, prints the present state.
#[track_caller]
fn until(cluster: &Cluster, host: &Started, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        let (out, log) = (host.stdout(), host.stderr());
        let services = cluster.server.list("services");
        let served = cluster.served();
        assert!(
            began.elapsed() < PATIENCE,
            "served: {served:?}\nservices: {services:#?}\n{out}\n{log}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn force_away(cluster: &Cluster, name: &str) {
    // A host that runs may write the finalizer again in between. Once the Service is gone, both requests fail.
    wait_until("the Service to go", || {
        let bare = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default", "finalizers": []}});
        _ = cluster.server.apply(bare);
        _ = cluster.server.delete("services", "default", name);
        cluster.server.get("services", "default", name).is_none()
    });
}

#[test]
fn watches_that_are_cut_and_versions_that_expire_lose_nothing() {
    let cluster = Cluster::new();
    let names: Vec<String> = (0..8).map(|number| format!("svc-{number}")).collect();
    for name in &names {
        cluster.server.apply(service(name, 1)).unwrap();
    }
    let host = cluster.start();
    cluster.wait_for_addresses(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for round in 0..50_u32 {
        // Skip deleted ones: a change would create them again.
        let left = &names[round as usize / 10..];
        let name = &left[round as usize % left.len()];
        cluster.server.apply(service(name, 2 + round)).unwrap();
        if round % 10 == 9 {
            // A deletion that no watch reports.
            let gone = format!("svc-{}", round / 10);
            cluster.server.delete("services", "default", &gone).unwrap();
            cluster.server.expire();
        }
        cluster.server.cut_watches();
        if round % 10 == 4 {
            cluster
                .server
                .apply(service(&format!("late-{round}"), 100 + round))
                .unwrap();
        }
        wait_until("watches again", || cluster.server.watches() > 0);
    }
    let expected: BTreeSet<String> = [
        "svc-5", "svc-6", "svc-7", "late-4", "late-14", "late-24", "late-34", "late-44",
    ]
    .map(str::to_owned)
    .into();
    until(&cluster, &host, || {
        cluster.served() == expected && (0..5).all(|number| cluster.service(&format!("svc-{number}")).is_none())
    });
    for name in &expected {
        let wanted = cluster.service(name).unwrap()["metadata"]["annotations"]["trueup.dev/addresses"].clone();
        wait_until(name, || cluster.addresses(name) == [wanted.as_str().unwrap()]);
    }
    cluster.wait_until_true();
    host.terminate().0.exits(0);
}

#[test]
fn the_host_waits_for_the_api_server_and_finds_missed_changes() {
    let cluster = Cluster::new();
    for (name, number) in [("deleted", 1), ("forced", 2), ("changed", 3), ("stays", 4)] {
        cluster.server.apply(service(name, number)).unwrap();
    }
    let mut host = cluster.start();
    cluster.wait_for_addresses(&["deleted", "forced", "changed", "stays"]);
    cluster.wait_until_true();
    let before = cluster.engine.objects();

    cluster.server.go_away();
    cluster.server.delete("services", "default", "deleted").unwrap();
    force_away(&cluster, "forced");
    cluster.server.apply(service("changed", 33)).unwrap();
    cluster.server.apply(service("new", 5)).unwrap();
    cluster.server.delete("nodes", "", "node-4").unwrap();
    // No watch can continue from its version.
    cluster.server.expire();
    host.wait_for_warning("what is known stands, trying again");
    std::thread::sleep(AWAY);
    assert_eq!(cluster.engine.objects(), before, "nothing is known of any change");

    cluster.server.come_back();
    let expected: BTreeSet<String> = ["changed", "new", "stays"].map(str::to_owned).into();
    until(&cluster, &host, || {
        cluster.served() == expected && cluster.service("deleted").is_none()
    });
    wait_until("the other address", || cluster.addresses("changed") == ["203.0.113.33"]);
    wait_until("servers without the Node", || {
        let objects = cluster.engine.objects();
        !objects
            .iter()
            .any(|object| object.kind == "server" && object.field("ip") == "192.0.2.14")
    });
    cluster.wait_until_true();
    host.terminate().0.exits(0);
}

#[test]
fn other_writers_are_not_fought_and_what_they_spoil_is_mended() {
    let cluster = Cluster::new();
    // The first tries lose against another client, three times each.
    let conflict = || Fault::Refused {
        code: 409,
        retry_after_s: None,
    };
    cluster.server.fault(
        |asked| asked.is("patch", "services") && asked.subresource.is_empty(),
        conflict(),
        Some(3),
    );
    cluster.server.fault(
        |asked| asked.is("patch", "services") && asked.subresource == "status",
        conflict(),
        Some(3),
    );
    cluster.server.apply(service("web", 1)).unwrap();
    let host = cluster.start();
    cluster.wait_for_addresses(&["web"]);
    assert_eq!(cluster.finalizers("web"), [FINALIZER]);

    let status = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "status": {
            "loadBalancer": {"ingress": [{"ip": "198.51.100.9"}]},
            "conditions": [{"type": "Other", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    });
    cluster.server.apply(status).unwrap();
    wait_until("our address again", || cluster.addresses("web") == ["203.0.113.1"]);
    assert_eq!(
        cluster.service("web").unwrap()["status"]["conditions"][0]["type"],
        "Other"
    );

    let bare = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default", "finalizers": ["example.com/other"]}});
    cluster.server.apply(bare).unwrap();
    wait_until("our finalizer again", || {
        cluster.finalizers("web") == ["example.com/other", FINALIZER]
    });

    // Ignored events: the host's own writes come back, and are no reason to write again.
    cluster.wait_until_true();
    cluster.server.clear_requests();
    let requests = cluster.engine.requests();
    let label = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster.server.apply(label).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let mut writes = cluster.writes();
    writes.remove("update leases/");
    assert_eq!(writes, BTreeSet::new());
    assert_eq!(
        cluster.engine.requests(),
        requests,
        "no Pod made the host ask the Engine"
    );
    host.terminate().0.exits(0);
}

#[test]
fn once_and_plan_list_and_a_plan_writes_nothing() {
    let cluster = Cluster::new();
    cluster.server.apply(service("web", 1)).unwrap();
    let plan = cluster.site.plan().exits(3);
    assert_eq!(plan.last_line(), "1 service: 7 to create, 0 to destroy, 0 failed");
    assert_eq!(cluster.writes(), BTreeSet::new());
    assert!(
        !cluster
            .server
            .requests()
            .iter()
            .any(|request| request.asked.verb == "watch")
    );

    let ran = cluster
        .site
        .converges("1 service: 1 true, 0 failed; 7 created, 0 destroyed");
    assert_eq!(cluster.addresses("web"), ["203.0.113.1"]);
    let expected = [
        "create events/",
        "create leases/",
        "patch services/",
        "patch services/status",
        "update leases/",
    ];
    assert_eq!(cluster.writes(), expected.map(str::to_owned).into(), "{ran}");

    cluster.server.clear_requests();
    assert_eq!(
        cluster.site.plan().exits(0).last_line(),
        "1 service: 0 to create, 0 to destroy, 0 failed"
    );
    assert_eq!(cluster.writes(), BTreeSet::new(), "a plan takes no Lease either");
    cluster
        .site
        .converges("1 service: 1 true, 0 failed; 0 created, 0 destroyed");
    let lease = ["update leases/".to_owned()];
    assert_eq!(cluster.writes(), lease.into(), "what is true is not written again");
}

#[test]
fn what_is_wrong_with_a_cluster_is_one_line() {
    let cluster = Cluster::new();
    let refused = |says: &str| {
        let ran = cluster.site.run_once().exits(1);
        let line = ran.stderr.lines().last().unwrap_or_default();
        assert!(line.starts_with("error: ") && line.contains(says), "`{says}` in {ran}");
    };
    cluster.server.enforce_rbac(true);
    let unknown = cluster.server.kubeconfig("unknown", "a-token");
    fs::write(cluster.site.path("kubeconfig"), unknown).unwrap();
    refused("not allowed (403): give this account `list` on `endpointslices` in a role, as in deploy/trueup.yaml");
    cluster.server.refuse_unknown_tokens(true);
    cluster.site.edit("kubeconfig", "a-token", "another-token");
    refused("it does not take our credentials (401)");
    cluster.server.go_away();
    refused("Connection refused");

    cluster.site.edit(
        "trueup.toml",
        "kubeconfig = \"kubeconfig\"",
        "kubeconfig = \"kubeconfig\", context = \"prod\"",
    );
    let ran = cluster.site.run_once().exits(2);
    assert_eq!(
        ran.said("no context `prod` in it: check `context` under [source.kubernetes] (contexts: tests)")
            .len(),
        1,
        "{ran}"
    );
}

#[test]
fn a_look_at_fewer_namespaces_takes_nothing_away() {
    let cluster = Cluster::new();
    let mut other = service("other", 2);
    other["metadata"]["namespace"] = json!("kube-public");
    cluster.server.apply(other).unwrap();
    cluster.server.apply(service("web", 1)).unwrap();
    cluster.site.run_once().exits(0);
    cluster.site.edit(
        "trueup.toml",
        "kubeconfig = \"kubeconfig\"",
        "kubeconfig = \"kubeconfig\", namespaces = [\"default\"]",
    );
    cluster.site.plan().exits(0);
    let ran = cluster
        .site
        .converges("1 service: 1 true, 0 failed; 0 created, 0 destroyed");
    assert_eq!(ran.said("in namespaces that are not looked at").len(), 1, "{ran}");
    assert_eq!(cluster.served(), ["other".to_owned(), "web".to_owned()].into());
}

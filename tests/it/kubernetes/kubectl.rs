//! The tests' API server with every available kubectl: common commands work as on a real cluster.
//!
//! `TRUEUP_KUBECTL` names one more than those found in `PATH`.

use needs::needs;
use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use support::api_server::{ADMIN, ApiServer};

/// Anything slower counts as a hang. A process may take long on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(90);

/// A Service with two ports.
const WEB: &str = r#"{
    "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "labels": { "app": "web", "tier": "front" } },
    "spec": { "type": "LoadBalancer", "selector": { "app": "web" }, "ports": [
        { "name": "http", "port": 80, "targetPort": 8080 }, { "name": "https", "port": 443 }
    ] }
}"#;

/// A server, and a kubectl for it.
struct Site {
    program: PathBuf,
    server: ApiServer,
    /// Its home, with the kubeconfig file.
    home: TempDir,
}

/// The output of a kubectl.
#[derive(Debug)]
struct Ran {
    ok: bool,
    stdout: String,
    stderr: String,
}

impl Ran {
    #[track_caller]
    fn expect(self, said: &str) -> Self {
        assert!(self.ok && self.stdout.contains(said), "`{said}` in {self:#?}");
        self
    }

    #[track_caller]
    fn refused(self, said: &str) {
        assert!(!self.ok && self.stderr.contains(said), "`{said}` in {self:#?}");
    }
}

impl Site {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // A home of its own: kubectl stores there what it learnt of servers, by their address.
        command
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("config"));
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    /// Runs kubectl to its end, with this on stdin.
    fn run_with(&self, args: &[&str], input: &str) -> Ran {
        let mut child = self.command(args).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        ended(child)
    }

    fn service(&self) -> Value {
        self.server.get("services", "default", "web").unwrap()
    }
}

fn ended(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran {
        ok: output.status.success(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Every available kubectl.
pub(super) fn programs() -> Vec<PathBuf> {
    let in_path = env::var_os("PATH").and_then(|path| {
        let mut found = env::split_paths(&path).map(|folder| folder.join("kubectl"));
        found.find(|program| program.is_file())
    });
    let named = env::var_os("TRUEUP_KUBECTL").map(PathBuf::from);
    let found: Vec<PathBuf> = named.into_iter().chain(in_path).collect();
    assert!(!found.is_empty(), "no kubectl in PATH");
    found
}

/// Runs the test with every kubectl, each with its own server.
fn with_each(test: impl Fn(&Site)) {
    with_each_and(ApiServer::start, test);
}

fn with_each_and(start: fn() -> ApiServer, test: impl Fn(&Site)) {
    for program in programs() {
        let site = Site {
            program,
            server: start(),
            home: TempDir::new().unwrap(),
        };
        std::fs::write(
            site.home.path().join("config"),
            site.server.kubeconfig(ADMIN, "a-token"),
        )
        .unwrap();
        test(&site);
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what} does not come about");
        thread::sleep(Duration::from_millis(20));
    }
}

#[needs(kubectl)]
#[test]
fn a_service_is_applied_shown_changed_and_deleted() {
    with_each(|site| {
        site.run_with(&["apply", "-f", "-"], WEB).expect("service/web created");
        let table = site.run(&["get", "svc"]).expect("NAME").stdout;
        let columns: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().take(4).collect();
        assert_eq!(columns, ["web", "LoadBalancer", "10.96.0.11", "<pending>"], "{table}");
        site.run(&["get", "svc", "-o", "wide"]).expect("app=web");
        site.run_with(&["apply", "-f", "-"], WEB)
            .expect("service/web unchanged");

        // The second port differs, one label is gone: what only the first manifest had goes, what the server chose
        // stays.
        let before = site.service();
        let changed = WEB
            .replace(r#", "tier": "front""#, "")
            .replace(r#""https", "port": 443"#, r#""alt", "port": 81"#);
        site.run_with(&["apply", "-f", "-"], &changed)
            .expect("service/web configured");
        let after = site.service();
        assert_eq!(after["metadata"]["labels"], json!({ "app": "web" }));
        let ports: Vec<_> = after["spec"]["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| port["port"].clone())
            .collect();
        assert_eq!(ports, [json!(80), json!(81)]);
        assert_eq!(after["spec"]["clusterIP"], before["spec"]["clusterIP"]);
        assert_eq!(
            after["spec"]["ports"][0]["nodePort"],
            before["spec"]["ports"][0]["nodePort"]
        );

        let status = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } });
        let with_address =
            json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" }, "status": status });
        site.server.apply(with_address).unwrap();
        site.run(&["get", "svc", "web"]).expect("192.0.2.7");
        site.run(&["get", "svc", "web", "-o", "yaml"]).expect("- ip: 192.0.2.7");
        site.run(&["get", "svc", "-l", "app in (web),!tier", "-o", "name"])
            .expect("service/web");

        site.run(&["delete", "svc", "web"]).expect("\"web\" deleted");
        site.run(&["get", "svc", "web"]).refused(r#"services "web" not found"#);
    });
}

#[needs(kubectl)]
#[test]
fn a_watch_shows_each_change_as_it_comes() {
    with_each(|site| {
        let mut child = site
            .command(&[
                "get",
                "svc",
                "--watch",
                "-o",
                "custom-columns=N:.metadata.name,T:.spec.type",
            ])
            .spawn()
            .unwrap();
        let (lines, seen) = mpsc::channel();
        let stdout = child.stdout.take().unwrap();
        let reader = thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
                if lines.send(words.join(" ")).is_err() {
                    return;
                }
            }
        });
        wait_until("the watch", || site.server.watches() == 1);
        let web: Value = serde_json::from_str(WEB).unwrap();
        site.server.apply(web).unwrap();
        let until = |wanted: &str| while seen.recv_timeout(PATIENCE).unwrap() != wanted {};
        until("web LoadBalancer");
        let changed = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" }, "spec": { "type": "ClusterIP" },
        });
        site.server.apply(changed).unwrap();
        until("web ClusterIP");
        child.kill().unwrap();
        child.wait().unwrap();
        reader.join().unwrap();
    });
}

#[needs(kubectl)]
#[test]
fn a_deletion_waits_for_the_finalizers() {
    with_each(|site| {
        site.run_with(&["apply", "-f", "-"], WEB).expect("created");
        let finalizer = r#"[{ "op": "add", "path": "/metadata/finalizers", "value": ["trueup.dev/objects"] }]"#;
        site.run(&["patch", "svc", "web", "--type", "json", "-p", finalizer])
            .expect("patched");
        let deletion = site.command(&["delete", "svc", "web"]).spawn().unwrap();
        wait_until("the deletion", || {
            !site.service()["metadata"]["deletionTimestamp"].is_null()
        });
        let more = r#"{ "metadata": { "finalizers": ["another.dev/one", "trueup.dev/objects"] } }"#;
        site.run(&["patch", "svc", "web", "--type", "merge", "-p", more])
            .refused("no new finalizers can be added if the object is being deleted");
        let none = r#"{ "metadata": { "finalizers": null } }"#;
        site.run(&["patch", "svc", "web", "--type", "merge", "-p", none])
            .expect("patched");
        ended(deletion).expect("\"web\" deleted");
        assert_eq!(site.server.get("services", "default", "web"), None);
    });
}

#[needs(kubectl)]
#[test]
fn a_wait_ends_when_what_it_waits_for_is_so() {
    with_each(|site| {
        site.server.apply(serde_json::from_str(WEB).unwrap()).unwrap();
        let waiting = site
            .command(&["wait", "--for=delete", "svc/web", "--timeout=90s"])
            .spawn()
            .unwrap();
        wait_until("the watch", || site.server.watches() == 1);
        assert!(site.server.delete("services", "default", "web").unwrap());
        ended(waiting).expect("service/web condition met");

        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-1" } });
        site.server.apply(node.clone()).unwrap();
        let waiting = site
            .command(&["wait", "--for=condition=Ready", "node/node-1", "--timeout=90s"])
            .spawn()
            .unwrap();
        wait_until("the watch", || site.server.watches() == 1);
        let mut ready = node;
        ready["status"] = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
        site.server.apply(ready).unwrap();
        ended(waiting).expect("node/node-1 condition met");
        site.run(&["get", "nodes"]).expect("Ready");
    });
}

#[needs(kubectl)]
#[test]
fn who_writes_second_is_told_of_the_conflict() {
    with_each(|site| {
        site.run_with(&["apply", "-f", "-"], WEB).expect("created");
        let read = site.run(&["get", "svc", "web", "-o", "json"]).expect("web").stdout;
        site.run(&["label", "svc", "web", "by=another"]).expect("labeled");
        let mine = read.replace(r#""tier": "front""#, r#""tier": "back""#);
        site.run_with(&["replace", "-f", "-"], &mine).refused(
            "Operation cannot be fulfilled on services \"web\": the object has been modified; please apply your \
             changes to the latest version and try again",
        );
        let read = site.run(&["get", "svc", "web", "-o", "json"]).expect("another").stdout;
        let mine = read.replace(r#""tier": "front""#, r#""tier": "back""#);
        site.run_with(&["replace", "-f", "-"], &mine)
            .expect("service/web replaced");
        assert_eq!(
            site.service()["metadata"]["labels"],
            json!({ "app": "web", "by": "another", "tier": "back" })
        );
        site.run_with(&["create", "-f", "-"], WEB)
            .refused(r#"services "web" already exists"#);
    });
}

#[needs(kubectl)]
#[test]
fn patches_of_each_kind_change_what_they_name() {
    with_each(|site| {
        site.run_with(&["apply", "-f", "-"], WEB).expect("created");
        let patch = |kind: &str, patch: &str| site.run(&["patch", "svc", "web", "--type", kind, "-p", patch]);
        patch(
            "strategic",
            r#"{ "spec": { "ports": [{ "port": 443, "targetPort": 8443 }] } }"#,
        )
        .expect("patched");
        let ports = site.service()["spec"]["ports"].clone();
        assert_eq!(
            (&ports[0]["targetPort"], &ports[1]["targetPort"]),
            (&json!(8080), &json!(8443))
        );
        patch(
            "strategic",
            r#"{ "spec": { "ports": [{ "port": 80, "$patch": "delete" }] } }"#,
        )
        .expect("patched");
        assert_eq!(site.service()["spec"]["ports"].as_array().unwrap().len(), 1);
        patch("merge", r#"{ "metadata": { "annotations": { "a": "1", "b": "2" } } }"#).expect("patched");
        patch("json", r#"[{ "op": "remove", "path": "/metadata/annotations/a" }]"#).expect("patched");
        patch("json", r#"[{ "op": "remove", "path": "/metadata/annotations/a" }]"#).refused("");
        site.run(&["annotate", "svc", "web", "c=3"]).expect("annotated");
        let annotations = site.service()["metadata"]["annotations"].clone();
        assert_eq!(
            (&annotations["a"], &annotations["b"], &annotations["c"]),
            (&Value::Null, &json!("2"), &json!("3"))
        );
        patch("merge", r#"{ "spec": { "ports": [{ "port": 70000 }] } }"#)
            .refused("spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive");
        patch(
            "merge",
            r#"{ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } } }"#,
        )
        .expect("no change");
    });
}

#[needs(kubectl)]
#[test]
fn a_server_side_apply_gives_up_what_it_no_longer_names() {
    with_each(|site| {
        site.run_with(&["apply", "--server-side", "-f", "-"], WEB)
            .expect("serverside-applied");
        let without = WEB
            .replace(r#", "tier": "front""#, "")
            .replace(r#", { "name": "https", "port": 443 }"#, "");
        site.server.apply(json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "labels": { "mine": "1" } } })).unwrap();
        site.run_with(&["apply", "--server-side", "-f", "-"], &without)
            .expect("serverside-applied");
        let service = site.service();
        assert_eq!(service["metadata"]["labels"], json!({ "app": "web", "mine": "1" }));
        assert_eq!(service["spec"]["ports"].as_array().unwrap().len(), 1);
    });
}

#[needs(kubectl)]
#[test]
fn describe_shows_the_events_of_an_object() {
    with_each(|site| {
        let service = site.server.apply(serde_json::from_str(WEB).unwrap()).unwrap();
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "generateName": "web." },
            "eventTime": "2026-05-10T12:00:00.000000Z", "type": "Warning", "reason": "NoAddress", "action": "Sync",
            "reportingController": "trueup.dev/host", "reportingInstance": "host-1", "note": "no address is left",
            "regarding": {
                "apiVersion": "v1", "kind": "Service", "namespace": "default", "name": "web",
                "uid": service["metadata"]["uid"],
            },
        });
        site.server.create(event).unwrap();
        let described = site.run(&["describe", "svc", "web"]).expect("LoadBalancer");
        described.expect("NoAddress").expect("no address is left");
        site.run(&["get", "events"]).expect("service/web");
        site.run(&["get", "events.events.k8s.io", "-o", "yaml"])
            .expect("note: no address is left");
    });
}

#[needs(kubectl)]
#[test]
fn a_namespace_goes_with_all_that_is_in_it() {
    with_each(|site| {
        let namespace = r#"{ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }"#;
        site.run_with(&["apply", "-n", "shop", "-f", "-"], WEB)
            .refused(r#"namespaces "shop" not found"#);
        site.run_with(&["create", "-f", "-"], namespace)
            .expect("namespace/shop created");
        site.run_with(&["apply", "-n", "shop", "-f", "-"], WEB)
            .expect("created");
        site.run(&["get", "all", "--all-namespaces"]).expect("service/web");
        site.run(&["delete", "namespace", "shop"]).expect("\"shop\" deleted");
        assert_eq!(site.server.list("services"), Vec::<Value>::new());
        site.run(&["api-resources", "-o", "wide"]).expect("endpointslices");
    });
}

#[needs(kubectl)]
#[test]
fn what_kubectl_makes_up_itself_is_understood() {
    with_each(|site| {
        site.run(&["create", "namespace", "shop"])
            .expect("namespace/shop created");
        site.run(&["create", "configmap", "c", "--from-literal=a=1"])
            .expect("configmap/c created");
        site.run(&[
            "create",
            "service",
            "loadbalancer",
            "web",
            "--tcp=80:http",
            "--tcp=81:8081",
        ])
        .expect("created");
        let ports = site.service()["spec"]["ports"].clone();
        assert_eq!(
            (&ports[0]["targetPort"], &ports[1]["targetPort"]),
            (&json!("http"), &json!(8081))
        );
        site.run(&["create", "secret", "generic", "s", "--from-literal=a=1"])
            .expect("secret/s created");
        assert_eq!(
            site.server.get("secrets", "default", "s").unwrap()["data"],
            json!({ "a": "MQ==" })
        );
        site.run(&[
            "create",
            "role",
            "r",
            "--verb=get",
            "--verb=list",
            "--resource=services",
        ])
        .expect("created");
        let rules = site.server.get("roles", "default", "r").unwrap()["rules"].clone();
        assert_eq!(
            rules,
            json!([{ "apiGroups": [""], "resources": ["services"], "verbs": ["get", "list"] }])
        );
        site.run(&["create", "rolebinding", "b", "--role=r", "--serviceaccount=default:x"])
            .expect("created");
        let subjects = site.server.get("rolebindings", "default", "b").unwrap()["subjects"].clone();
        assert_eq!(
            subjects,
            json!([{ "kind": "ServiceAccount", "name": "x", "namespace": "default" }])
        );
        site.run(&["auth", "can-i", "get", "services"]).expect("yes");
        site.server.enforce_rbac(true);
        site.run(&["auth", "can-i", "get", "services"]).refused("");
    });
}

#[needs(kubectl, openssl)]
#[test]
fn with_tls_kubectl_knows_the_authority_and_is_known_by_its_token() {
    with_each_and(ApiServer::start_with_tls, |site| {
        site.server.enforce_rbac(true);
        site.server.refuse_unknown_tokens(true);
        site.run_with(&["apply", "-f", "-"], WEB).expect("created");
        site.run(&["get", "svc"]).expect("web");
        assert!(site.server.requests().iter().all(|request| request.asked.user == ADMIN));

        let other = site.home.path().join("other");
        std::fs::write(&other, site.server.kubeconfig("a-reader", "another-token")).unwrap();
        let run = |args: &[&str]| ended(site.command(args).env("KUBECONFIG", &other).spawn().unwrap());
        run(&["get", "svc"]).refused(
            "services is forbidden: User \"a-reader\" cannot list resource \"services\" in API group \"\" in the \
             namespace \"default\"",
        );
        let rules = json!([{ "apiGroups": [""], "resources": ["services"], "verbs": ["get", "list"] }]);
        let api_version = "rbac.authorization.k8s.io/v1";
        let metadata = json!({ "name": "reader", "namespace": "default" });
        let role = json!({ "apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": rules });
        site.server.create(role).unwrap();
        site.server
            .create(json!({
                "apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata,
                "roleRef": { "kind": "Role", "name": "reader" }, "subjects": [{ "kind": "User", "name": "a-reader" }],
            }))
            .unwrap();
        run(&["get", "svc"]).expect("web");
        run(&["delete", "svc", "web"]).refused("cannot delete resource \"services\"");
    });
}

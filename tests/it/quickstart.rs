//! The quickstart and an operator's changes to it, with the real binary: manifests that come, go and break, and an
//! Engine over HTTP.
//!
//! `scenarios/` covers the guest's decisions; this file covers their effects.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use support::{Engine, Object, SETTLE, Site, TOKEN, files_under, ran, trueup, wait_until};

/// The output of a run that reconciles the quickstart from nothing.
const FROM_NOTHING: &str = "3 services: 3 true, 0 failed; 29 created, 0 destroyed";

/// The output of a run that finds it in sync.
const NOTHING_DONE: &str = "3 services: 3 true, 0 failed; 0 created, 0 destroyed";

/// A Service of type LoadBalancer with one port.
pub(crate) fn service(name: &str, node_port: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: default\nspec:\n  type: LoadBalancer\n  \
         ports:\n    - name: tcp\n      port: 6379\n{node_port}"
    )
}

/// A site in sync, its Engine, and the existing objects.
pub(crate) fn converged() -> (Engine, Site, Vec<Object>) {
    let engine = Engine::start(&SETTLE);
    let site = Site::against(&engine);
    assert_eq!(site.run_once().exits(0).last_line(), FROM_NOTHING);
    let objects = engine.objects();
    (engine, site, objects)
}

/// The objects without those of one Service: `web.default`.
pub(crate) fn without(objects: &[Object], service: &str) -> Vec<Object> {
    let suffix = format!(".{service}.quickstart");
    objects
        .iter()
        .filter(|object| !object.name().ends_with(&suffix))
        .cloned()
        .collect()
}

#[test]
fn as_it_ships_it_converges_and_then_there_is_nothing_to_do() {
    let site = Site::quickstart();
    let plan = site.plan().exits(3);
    assert_eq!(plan.last_line(), "3 services: 29 to create, 0 to destroy, 0 failed");
    assert_eq!(site.run_once().exits(0).last_line(), FROM_NOTHING);

    let again = site.run_once().exits(0);
    assert_eq!(again.last_line(), NOTHING_DONE);
    assert!(
        again.stdout.contains("nothing changed: everything was true already"),
        "{again}"
    );
    let plan = site.plan().exits(0);
    assert_eq!(plan.last_line(), "3 services: 0 to create, 0 to destroy, 0 failed");
}

#[test]
fn plan_announces_exactly_what_the_run_then_creates() {
    let engine = Engine::start(&SETTLE);
    let site = Site::against(&engine);
    let plan = site.plan().exits(3);
    let planned = ran(&mut site.command("plan", &["--output", "json"])).exits(3).json();
    assert_eq!(engine.writes(), BTreeMap::new(), "a plan writes nothing");
    assert_eq!(engine.objects(), []);
    assert_eq!(site.state(), BTreeMap::new(), "a plan is no run");

    let ran = site.run_once().exits(0);
    let created = engine.objects();
    assert_eq!(
        ran.last_line(),
        format!("3 services: 3 true, 0 failed; {} created, 0 destroyed", created.len())
    );

    let mut announced = Vec::new();
    for key in planned["keys"].as_array().unwrap() {
        assert_eq!(key["error"], Value::Null);
        for write in key["writes"].as_array().unwrap() {
            assert_eq!(write["action"], "create");
            let text = |field: &str| write[field].as_str().unwrap().to_owned();
            announced.push([text("kind"), text("name"), text("details")]);
        }
    }
    let mut found: Vec<[String; 3]> = created.iter().map(|object| announcement(object, &created)).collect();
    announced.sort();
    found.sort();
    assert_eq!(announced, found);
    for [kind, name, details] in &announced {
        let line = format!("  + {kind:<8} {name}  {details}\n");
        assert_eq!(plan.stdout.matches(&line).count(), 1, "`{line}` must be in\n{plan}");
    }
}

/// A plan's announcement of an object that was then created.
fn announcement(object: &Object, all: &[Object]) -> [String; 3] {
    let new = |field: &str| {
        let parent = all
            .iter()
            .find(|parent| parent.identifier == object.field(field))
            .unwrap();
        format!("(new {} {})", parent.kind, parent.name())
    };
    let at = |address: &str| {
        let address = object.field(address);
        let address = if address.contains(':') {
            format!("[{address}]")
        } else {
            address
        };
        format!("{address}:{}", object.field("port"))
    };
    let details = match object.kind.as_str() {
        "backend" => format!("on {}", object.field("load_balancer")),
        "frontend" => format!("on {}, to {}", object.field("load_balancer"), new("default_backend")),
        "bind" => format!("{} of {}", at("address"), new("frontend")),
        "server" => format!("{} in {}", at("ip"), new("backend")),
        other => panic!("an object of kind {other}"),
    };
    [object.kind.clone(), object.name(), details]
}

#[test]
fn a_service_whose_manifest_goes_takes_its_objects_and_no_other() {
    let (engine, site, before) = converged();
    site.remove_manifest("web.yaml");
    let plan = site.plan().exits(3);
    assert!(plan.stdout.contains("default/web (gone)  -14\n"), "{plan}");
    assert_eq!(plan.last_line(), "3 services: 0 to create, 14 to destroy, 0 failed");

    site.converges("3 services: 3 true, 0 failed; 0 created, 14 destroyed");
    assert_eq!(engine.objects(), without(&before, "web.default"));
    assert!(!site.path(".trueup/status/default/web.json").exists());

    let ran = site.run_once().exits(0);
    assert_eq!(
        ran.last_line(),
        "2 services: 2 true, 0 failed; 0 created, 0 destroyed",
        "it is forgotten"
    );
}

#[test]
fn a_service_that_becomes_cluster_ip_takes_its_objects_and_no_other() {
    let (engine, site, before) = converged();
    site.edit("manifests/dns.yaml", "type: LoadBalancer", "type: ClusterIP");
    site.converges("3 services: 3 true, 0 failed; 0 created, 7 destroyed");
    assert_eq!(engine.objects(), without(&before, "dns.kube-system"));
}

#[test]
fn a_service_with_a_new_uid_gets_new_objects() {
    let (engine, site, before) = converged();
    site.edit(
        "manifests/dns.yaml",
        "  name: dns\n",
        "  name: dns\n  uid: 11111111-2222-3333-4444-555555555555\n",
    );
    site.converges("3 services: 3 true, 0 failed; 7 created, 7 destroyed");
    assert_eq!(
        without(&engine.objects(), "dns.kube-system"),
        without(&before, "dns.kube-system")
    );
    let now = engine.objects_of("dns.kube-system");
    assert_eq!(now.len(), 7);
    for object in now {
        assert_eq!(
            Vec::from_iter(&object.tags),
            ["anxccm-svc-uid=11111111-2222-3333-4444-555555555555"]
        );
        assert!(
            before.iter().all(|old| old.identifier != object.identifier),
            "{object:?} is an old one"
        );
    }
    assert_eq!(site.run_once().exits(0).last_line(), NOTHING_DONE);
}

#[test]
fn an_unreadable_manifest_is_named_and_removes_nothing() {
    let (engine, site, before) = converged();
    site.put_manifest("api.yaml", "apiVersion: v1\nkind: Service\nmetadata:\n  name: [api\n");
    site.remove_manifest("dns.yaml");
    site.put_manifest("cache.yaml", &service("cache", "      nodePort: 30637\n"));

    let ran = site.run_once().exits(1);
    let named = format!("{}:", site.path("manifests/api.yaml").display());
    let said = ran.said(&named);
    assert_eq!(said.len(), 1, "{ran}");
    let line = said[0].split_once(&named).unwrap().1.split(':').next().unwrap();
    assert!(
        line.parse::<u32>().is_ok_and(|line| (4..=5).contains(&line)),
        "`{}` must name line 4 or 5",
        said[0]
    );
    assert_eq!(
        ran.last_line(),
        "2 services: 2 true, 0 failed; 7 created, 0 destroyed",
        "{ran}"
    );
    assert_eq!(
        without(&engine.objects(), "cache.default"),
        before,
        "nothing is taken for gone"
    );
    assert_eq!(engine.objects_of("cache.default").len(), 7);

    site.remove_manifest("api.yaml");
    site.run_once().exits(0);
    let left = without(&without(&engine.objects(), "cache.default"), "web.default");
    assert_eq!(left, [], "what was held back is removed once everything can be read");
}

#[test]
fn a_service_without_node_port_fails_alone() {
    let engine = Engine::start(&SETTLE);
    let site = Site::against(&engine);
    site.put_manifest("cache.yaml", &service("cache", ""));
    let ran = site.run_once().exits(1);
    let lines: Vec<&str> = ran
        .stdout
        .lines()
        .filter(|line| line.contains("default/cache"))
        .collect();
    assert_eq!(lines.len(), 1, "{ran}");
    assert!(
        lines[0].contains("failed") && lines[0].contains("port `tcp` has no nodePort"),
        "{ran}"
    );
    assert_eq!(ran.last_line(), "4 services: 3 true, 1 failed; 29 created, 0 destroyed");
    assert_eq!(engine.objects().len(), 29);
    assert_eq!(engine.objects_of("cache.default"), []);
}

#[test]
fn without_recordings_a_restart_still_works() {
    let engine = Engine::start(&SETTLE);
    let site = Site::against(&engine);
    let unrecorded = || ran(&mut site.command("run", &["--once", "--no-record"])).exits(0);
    assert_eq!(unrecorded().last_line(), FROM_NOTHING);
    assert_eq!(site.journals(), Vec::<PathBuf>::new());
    assert_eq!(unrecorded().last_line(), NOTHING_DONE);

    site.remove_manifest("dns.yaml");
    let ran = unrecorded();
    assert_eq!(
        ran.last_line(),
        "3 services: 3 true, 0 failed; 0 created, 7 destroyed",
        "what went away is known"
    );
    assert_eq!(site.journals(), Vec::<PathBuf>::new());

    site.converges("2 services: 2 true, 0 failed; 0 created, 0 destroyed");
    assert_eq!(site.journals().len(), 2, "recording begins where it is wanted again");
}

#[test]
fn status_files_say_what_is_in_service() {
    let (_engine, site, _) = converged();
    let status = |file: &str| -> Value {
        serde_json::from_slice(&fs::read(site.path(".trueup/status").join(file)).unwrap()).unwrap()
    };
    let tcp = |port: u16| json!({"port": port, "protocol": "TCP"});
    let ingress =
        |ip: &str, ports: &[u16]| json!({"ip": ip, "ports": Vec::from_iter(ports.iter().map(|port| tcp(*port)))});
    assert_eq!(
        status("default/web.json"),
        json!({"loadBalancer": {"ingress": [ingress("203.0.113.10", &[80, 443])]}})
    );
    assert_eq!(
        status("default/api.json"),
        json!({"loadBalancer": {"ingress": [ingress("203.0.113.20", &[443]), ingress("2001:db8::20", &[443])]}})
    );
    assert_eq!(
        status("kube-system/dns.json"),
        json!({"loadBalancer": {"ingress": [ingress("203.0.113.30", &[53])]}})
    );
}

#[test]
fn a_node_that_is_not_ready_is_no_server() {
    let (engine, site, before) = converged();
    site.edit(
        "manifests/nodes.yaml",
        "192.0.2.14 }\n  conditions:\n    - { type: Ready, status: \"True\" }",
        "192.0.2.14 }\n  conditions:\n    - { type: Ready, status: \"False\" }",
    );
    site.converges("3 services: 3 true, 0 failed; 0 created, 4 destroyed");
    let left: Vec<Object> = before
        .into_iter()
        .filter(|object| !object.name().starts_with("node-4."))
        .collect();
    assert_eq!(engine.objects(), left);
}

#[test]
fn plan_beside_a_host_that_runs_asks_its_simulated_engine() {
    let site = Site::quickstart();
    let mut host = site.start("run", &[]);
    host.wait_for("kube-system/dns          true");
    let all_is_done = || {
        let planned = site.plan().exits(0);
        assert_eq!(planned.last_line(), "3 services: 0 to create, 0 to destroy, 0 failed");
    };
    // The system chose its port.
    wait_until("every Service is there", || site.plan().code == Some(0));
    all_is_done();
    fs::remove_file(site.state_dir().join("sim/lbaas")).unwrap();
    let refused = site.plan().exits(1);
    assert!(
        refused.stderr.contains("another trueup runs with it (process "),
        "{refused}"
    );
    assert!(
        refused.stderr.contains("wait until its simulated server listens"),
        "{refused}"
    );
    host.kill();

    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    site.edit("trueup.toml", "127.0.0.1:0", &format!("127.0.0.1:{port}"));
    let mut host = site.start("run", &[]);
    for key in ["default/api", "default/web", "kube-system/dns"] {
        host.wait_for(&format!("{key:<24} true"));
    }
    all_is_done();
    host.kill();
}

#[test]
fn a_second_host_with_the_same_state_is_refused() {
    let engine = Engine::start(&SETTLE);
    let site = Site::against(&engine);
    let mut first = site.start("run", &["--output", "json"]);
    for key in ["default/api", "default/web", "kube-system/dns"] {
        first.wait_for(key);
    }
    let second = site.run_once().exits(1);
    assert!(second.stderr.contains("another trueup runs with it"), "{second}");
    assert_eq!(second.stdout, "");

    let (first, _) = first.terminate();
    let first = first.exits(0);
    let lines: Vec<Value> = first
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 4, "one line for each Service, and the sum: {first}");
    assert_eq!(lines[3]["created"], 29);
    assert_eq!(
        site.run_once().exits(0).last_line(),
        NOTHING_DONE,
        "the folder is free again"
    );
}

#[test]
fn what_is_not_granted_does_not_reach_the_engine() {
    for (grants, denied, asked) in [
        ("", "access denied: no grant to read load balancer `lb-1`", false),
        (
            "grants = { lbaas = { read = [\"lb-1\"] } }",
            "access denied: no grant to write",
            true,
        ),
        (
            "grants = { lbaas = { read = [\"lb-2\"], write = [\"lb-2\"] } }",
            "access denied: no grant to read",
            false,
        ),
    ] {
        let engine = Engine::start(&SETTLE);
        let site = Site::against(&engine);
        site.edit(
            "trueup.toml",
            "grants = { lbaas = { read = [\"lb-1\"], write = [\"lb-1\"] } }",
            grants,
        );
        let ran = site.run_once().exits(1);
        assert_eq!(
            ran.last_line(),
            "3 services: 0 true, 3 failed; 0 created, 0 destroyed",
            "{ran}"
        );
        let failures = ran
            .stdout
            .lines()
            .filter(|line| line.contains("failed ") && line.contains(denied));
        assert_eq!(failures.count(), 3, "{grants}\n{ran}");
        assert_eq!(engine.writes(), BTreeMap::new(), "{grants}");
        assert_eq!(!engine.requests().is_empty(), asked, "{grants}");
        assert_eq!(engine.objects(), []);
    }
}

#[test]
fn a_load_balancer_that_was_mistyped_holds_nothing_up_once_corrected() {
    let engine = Engine::start(&SETTLE);
    let site = Site::against(&engine);
    site.run_once().exits(0);
    let (right, wrong) = ("load_balancers = [\"lb-1\"]", "load_balancers = [\"lb-1\", \"lb-9\"]");
    let grants = |of: &str| format!("grants = {{ lbaas = {{ read = [{of}], write = [{of}] }} }}");
    let (narrow, wide) = (grants("\"lb-1\""), grants("\"lb-1\", \"lb-9\""));
    site.edit("trueup.toml", right, wrong);
    site.edit("trueup.toml", &narrow, &wide);
    let failed = site.run_once().exits(1);
    assert!(
        !failed.said("the Engine does not know the load balancer").is_empty(),
        "{failed}"
    );

    // Without a grant the host can't look, and says what helps. The other load balancer is not held up.
    site.edit("trueup.toml", wrong, right);
    site.edit("trueup.toml", &wide, &narrow);
    site.remove_manifest("api.yaml");
    let refused = site.run_once().exits(1);
    let helps = "no grant to read load balancer `lb-9`";
    assert!(
        refused.stdout.contains(helps) && refused.stdout.contains("grant it until they are gone"),
        "{refused}"
    );
    assert_eq!(engine.objects_of("api.default"), []);

    site.edit("trueup.toml", &narrow, &wide);
    let ran = site.run_once().exits(0);
    assert!(!ran.said("nothing is removed from it").is_empty(), "{ran}");
    site.edit("trueup.toml", &wide, &narrow);
    site.run_once().exits(0);
}

#[test]
fn the_token_is_seen_nowhere() {
    let (engine, site, _) = converged();
    site.remove_manifest("dns.yaml");
    site.put_manifest("cache.yaml", &service("cache", "      nodePort: 30637\n"));
    let mut said = Vec::new();
    // Including the logs of all libraries.
    said.push(ran(site.command("run", &["--once"]).env("TRUEUP_LOG", "trace")).exits(0));
    said.push(ran(site.command("plan", &["--output", "json"]).env("TRUEUP_LOG", "trace")).exits(0));
    // An Engine that quotes the request, and one that refuses it.
    let message = format!("the header was: Authorization: Token {TOKEN}");
    engine.fault(&json!({"method": "GET", "path": "*", "times": 1, "status": 422, "message": message}));
    said.push(ran(site.command("plan", &[]).env("TRUEUP_LOG", "trace")));
    engine.fault(&json!({"path": "*loadbalancer*", "times": 1, "status": 400, "message": message}));
    said.push(ran(site.command("run", &["--once"]).env("TRUEUP_LOG", "trace")).exits(0));
    engine.fault(&json!({"path": "*loadbalancer*", "status": 401, "message": message}));
    said.push(ran(site.command("run", &["--once"]).env("TRUEUP_LOG", "trace")).exits(1));

    for ran in &said {
        assert!(
            ran.stderr.contains("TRACE"),
            "the log shows what there is to see: {ran}"
        );
        assert!(!ran.stdout.contains(TOKEN) && !ran.stderr.contains(TOKEN), "{ran}");
    }
    let quoted = said
        .iter()
        .filter(|ran| ran.to_string().contains("the header was: Authorization: Token"));
    assert!(quoted.count() > 0, "what the Engine said is shown, without the token");
    let files = files_under(&site.state_dir());
    assert!(files.len() > 8, "there is something to look through: {files:?}");
    for file in files {
        let bytes = fs::read(&file).unwrap();
        let shown = bytes.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes());
        assert!(!shown, "the token is in {}", file.display());
    }
}

#[test]
fn a_run_that_goes_on_takes_in_what_changes_and_ends_when_told() {
    let engine = Engine::start(&SETTLE);
    let site = Site::against(&engine);
    let mut host = site.start("run", &[]);
    for key in ["default/api ", "default/web ", "kube-system/dns "] {
        host.wait_for(key);
    }
    assert_eq!(engine.objects().len(), 29);

    site.put_manifest("cache.yaml", &service("cache", "      nodePort: 30637\n"));
    host.wait_for("default/cache            true     7 created, 0 destroyed");
    assert_eq!(engine.objects_of("cache.default").len(), 7);
    assert!(site.path(".trueup/status/default/cache.json").exists());

    site.remove_manifest("dns.yaml");
    host.wait_for("kube-system/dns          gone     7 destroyed");
    assert_eq!(engine.objects_of("dns.kube-system"), []);
    assert_eq!(engine.objects().len(), 29, "and nothing else went");
    assert!(!site.path(".trueup/status/kube-system/dns.json").exists());

    let (ran, took) = host.terminate();
    assert!(took < Duration::from_secs(30), "took {took:?}: {ran}");
    assert!(ran.exits(0).last_line().ends_with("0 failed; 36 created, 7 destroyed"));
    let plan = site.plan().exits(0);
    assert_eq!(plan.last_line(), "3 services: 0 to create, 0 to destroy, 0 failed");
}

#[test]
fn a_run_that_waits_for_the_engine_ends_when_told_and_goes_on_later() {
    // If it ends before its work is done, `--once` has failed; an endless run has not.
    for (args, code) in [(&[][..], 0), (&["--once"], 1)] {
        // Nothing settles during this test: the guest nearly always sleeps between two looks.
        let engine = Engine::start(&["--settle-ms", "600000"]);
        let site = Site::against(&engine);
        let host = site.start("run", args);
        wait_until("the backends of three Services", || engine.objects().len() == 4);
        let (ran, took) = host.terminate();
        assert!(took < Duration::from_secs(30), "took {took:?}: {ran}");
        ran.exits(code);

        let journals = site.journals();
        assert_eq!(journals.len(), 3);
        let cancelled = |file: &&PathBuf| fs::read_to_string(file).unwrap().contains("\"cancelled\"");
        assert_eq!(
            journals.iter().filter(cancelled).count(),
            3,
            "each call was ended while it slept"
        );
        trueup([vec!["replay".into()], journals].concat()).exits(0);

        // The next host takes over the existing objects: none of them is created twice.
        let host = site.start("run", &[]);
        let requests = engine.requests();
        wait_until("a look at what is there", || engine.requests() != requests);
        host.terminate().0.exits(0);
        assert_eq!(engine.objects().len(), 4);
    }
}

#[test]
fn the_services_example_renders_replays_and_follows_an_unready_endpoint() {
    const SUM: &str = "1 node, 2 services: 2 renderers true, 0 failed";
    let site = Site::services();
    let first = site.run_once().exits(0);
    let (last, mut lines) = (first.last_line(), first.stdout.lines().collect::<Vec<_>>());
    assert_eq!(last, SUM, "{first}");
    // Neither waits for the other.
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            SUM,
            "node-a                   numbered 1",
            "node-a                   true     2 services rendered by nftables/node-a, nat44/node-a",
        ],
        "{first}"
    );
    let of = |guest: &str| site.state_dir().join("journals").join(guest).join("node-a");
    let recordings = || {
        let guests = ["nodesync", "service", "nftables", "nat44"];
        guests
            .iter()
            .flat_map(|guest| files_under(&of(guest)))
            .collect::<Vec<PathBuf>>()
    };
    let replayed = |files: &[PathBuf]| {
        let files = files.iter().map(PathBuf::as_path);
        trueup([std::path::Path::new("replay")].into_iter().chain(files)).exits(0)
    };
    assert_eq!(replayed(&recordings()).stdout.matches(": identical: ").count(), 4);

    // The pod on the other node is not ready: the kernel's rules name only the remaining one.
    site.edit(
        "manifests/web.yaml",
        "{ addresses: [\"10.1.2.2\"], nodeName: node-b, conditions: { ready: true }",
        "{ addresses: [\"10.1.2.2\"], nodeName: node-b, conditions: { ready: false }",
    );
    let second = site.run_once().exits(0);
    assert_eq!(second.last_line(), SUM, "{second}");
    assert!(!second.stdout.contains("numbered 2"), "it keeps its number: {second}");
    let rulesets: Vec<String> = files_under(&of("nftables"))
        .iter()
        .flat_map(|file| {
            fs::read_to_string(file)
                .unwrap()
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .filter(|line| line.contains("\"ask\":\"nftables.apply\""))
        .collect();
    let [before, after] = [rulesets.first().unwrap(), rulesets.last().unwrap()];
    assert!(before.contains("10.1.2.2") && before.contains("10.1.1.2"), "{before}");
    assert!(!after.contains("10.1.2.2") && after.contains("10.1.1.2"), "{after}");
    assert!(
        replayed(&recordings())
            .stdout
            .lines()
            .all(|line| line.contains(": identical"))
    );
}

/// An invalid change: the run reports what is wrong with it.
fn check_typo(file: &str, from: &str, to: &str, problem: &str) {
    let (engine, site, before) = converged();
    site.edit(file, from, to);
    let ran = site.run_once().exits(1);
    assert_eq!(ran.said(problem).len(), 1, "{ran}");
    assert_eq!(engine.objects(), before, "nothing goes: {ran}");
}

#[test]
fn a_typo_in_a_manifest_is_named_and_takes_nothing_away() {
    check_typo(
        "manifests/web.yaml",
        "ports:",
        "prots:",
        "web.yaml:11: spec.prots: unknown field; did you mean `ports`?",
    );
    check_typo(
        "manifests/web.yaml",
        "type: LoadBalancer",
        "type: LoadBalncer",
        "web.yaml:8: spec.type: was `LoadBalncer`, must be one of ClusterIP",
    );
}

#[test]
fn a_manifest_without_a_byte_and_missing_nodes_take_nothing_away() {
    let (engine, site, before) = converged();
    site.put_manifest("web.yaml", "");
    let ran = site.run_once().exits(1);
    assert_eq!(ran.said("web.yaml:1: holds nothing").len(), 1, "{ran}");
    assert_eq!(engine.objects(), before);

    let (engine, site, before) = converged();
    site.remove_manifest("nodes.yaml");
    let ran = site.run_once().exits(1);
    assert_eq!(ran.said("the manifests hold no Node at all").len(), 1, "{ran}");
    assert_eq!(engine.objects(), before);
}

#[test]
fn a_host_warns_while_another_one_changes_its_objects() {
    let (engine, site, _) = converged();
    // So seldom that the other host changes something between any two resyncs: there is one warning.
    site.edit("trueup.toml", "[run]\n", "[run]\nresync_ms = 15000\n");
    let mut host = site.start("run", &[]);
    host.wait_for("default/web ");
    let status = || trueup(["status".as_ref(), "--config".as_ref(), site.folder().as_os_str()]);
    let why =
        "others change the objects of lbaas/default/web again and again: look for another host with the same `cluster`";
    assert!(!status().stdout.contains(why), "a start is none");
    let other = Site::against(&engine);
    other.edit("manifests/web.yaml", "port: 80 #", "port: 81 #");
    other.edit("trueup.toml", "[run]\n", "[run]\nresync_ms = 500\n");
    let other = other.start("run", &[]);
    host.wait_for_warning("changed by others");
    wait_until("the status to say so", || status().stdout.contains(why));
    other.terminate();
    wait_until("it to be over", || !status().stdout.contains(why));
    let ended = host.terminate().0.exits(0);
    let warnings = ended.stderr.lines().filter(|line| line.contains("changed by others"));
    assert_eq!(
        warnings.filter(|line| line.contains("default/web")).count(),
        1,
        "{ended}"
    );
}

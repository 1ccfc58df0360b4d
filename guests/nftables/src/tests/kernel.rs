//! The real nft accepts every transaction, and after events the kernel holds the same as after a resync.
//!
//! Runs in a network namespace that ends with its shell: the tests neither see nor change the machine's own rules.

#![expect(clippy::disallowed_methods, reason = "this test hands files to a program")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::{id, instance, service, with_port};
use crate::bindings::trueup::kube::types::Protocol;
use crate::bindings::trueup::service::types::{ContivService, TrafficPolicy};
use crate::simulated::Simulation;

/// Set this to 1 to run the tests without root.
const SKIP: &str = "TRUEUP_SKIP_NETNS";

const CONFIG: &str = r#"{"pod_subnets": ["10.1.0.0/16", "10.2.0.0/24", "10.2.1.0/24", "10.3.0.1/32", "fd10::/16"]}"#;

/// Applies the files in order, and then prints the kernel's tables.
const SCRIPT: &str = r#"for file in "$@"; do nft -j -f "$file" || exit 1; done; nft -j list ruleset"#;

/// `None` if such tests are skipped.
#[track_caller]
fn in_namespace(folder: &Path, transactions: &[String]) -> Option<Output> {
    if std::env::var_os(SKIP).is_some_and(|skip| skip == "1") {
        println!("skipped: {SKIP}=1");
        return None;
    }
    assert!(
        rustix::process::geteuid().is_root(),
        "network namespaces need root: run the tests as root, or skip these with {SKIP}=1"
    );
    let version = Command::new("nft").arg("--version").output();
    assert!(version.is_ok(), "nft is not there: apt-get install nftables");
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", SCRIPT, "sh"]);
    for (number, transaction) in transactions.iter().enumerate() {
        let file = folder.join(format!("{number}.json"));
        std::fs::write(&file, transaction).unwrap();
        command.arg(file);
    }
    let output = command.output();
    Some(output.unwrap_or_else(|error| panic!("`unshare`: {error}: apt-get install util-linux")))
}

/// Services of every kind.
fn many() -> Vec<ContivService> {
    let plain = service("plain", "10.96.0.1 fd96::1", "");
    let plain = with_port(
        plain,
        "http",
        80,
        0,
        "10.1.1.3#8080 10.1.2.3#8080 fd10::3#8080 fd10::4#8080",
    );
    let mut sticky = service("sticky", "10.96.0.2 fd96::2", "");
    sticky.session_affinity_timeout_s = 10_800;
    let mut sticky = with_port(
        sticky,
        "dns",
        53,
        0,
        "10.1.1.3#53 10.1.1.4#53 10.1.1.5#53 fd10::3#53 fd10::4#53",
    );
    sticky.ports[0].protocol = Protocol::Udp;
    let mut local = service("local", "10.96.0.3", "20.0.0.3 2001:db8::3");
    local.traffic_policy = TrafficPolicy::NodeLocal;
    let local = with_port(
        local,
        "a",
        80,
        30080,
        "10.1.1.3#8080* 10.1.1.4#8080* 10.1.2.4#8080 fd10::3#8080",
    );
    let mut local = with_port(local, "b", 81, 30081, "10.1.2.4#8081");
    local.session_affinity_timeout_s = 1;
    let mut sctp = with_port(service("sctp", "10.96.0.4", "20.0.0.4"), "", 9, 30009, "10.1.1.3#9");
    sctp.ports[0].protocol = Protocol::Sctp;
    let empty = with_port(service("empty", "10.96.0.5 fd96::5", "20.0.0.3"), "http", 80, 30080, "");
    // Names of the maximal length in Kubernetes, and an IPv6 address without zeros.
    let mut long = service(&"n".repeat(63), "fd96::6", "2001:db8::6");
    long.id.namespace = "s".repeat(63);
    let address = "fd10:1111:2222:3333:4444:5555:6666:7777#65535";
    let long = with_port(long, &"p".repeat(63), 65535, 32767, address);
    vec![plain, sticky, local, sctp, empty, long]
}

/// The kernel's contents, without handles, sorted except for rules.
fn held(output: &Output) -> Vec<String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{stderr}{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let listing: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (mut rules, mut others) = (Vec::new(), Vec::new());
    for object in listing["nftables"].as_array().unwrap() {
        let (kind, content) = object.as_object().unwrap().iter().next().unwrap();
        let mut content = content.clone();
        content.as_object_mut().unwrap().remove("handle");
        if let Some(elements) = content.get_mut("elem").and_then(Value::as_array_mut) {
            elements.sort_by_key(Value::to_string);
        }
        // Rules of one chain stay in order: the sort of chains is stable.
        match kind.as_str() {
            "rule" => rules.push((content["family"].to_string(), content["chain"].to_string(), content)),
            "metainfo" => {}
            _ => others.push(format!("{kind} {content}")),
        }
    }
    rules.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    others.sort();
    others.extend(rules.into_iter().map(|(_, _, content)| format!("rule {content}")));
    others
}

#[test]
fn the_kernel_takes_every_transaction_and_holds_what_a_resync_makes() {
    let (mut renderer, mut world) = (instance(CONFIG), Simulation::default());
    renderer.resync(&mut world, Vec::new()).unwrap();
    for service in many() {
        renderer.add_service(&mut world, service).unwrap();
    }
    // Add and remove endpoints, then the service, so that another one gets its keys.
    for backends in [
        "10.1.1.3#8080",
        "10.1.1.4#8080 10.1.1.3#8080* fd10::9#1",
        "",
        "10.1.1.3#8080 fd10::3#8080",
    ] {
        let changed = with_port(
            service("plain", "10.96.0.1 fd96::1", "20.0.0.3"),
            "http",
            80,
            30080,
            backends,
        );
        renderer.update_service(&mut world, id("plain"), changed).unwrap();
    }
    // A key changes its target within its map, and changes it back.
    let rival = many().remove(3);
    assert_eq!(rival.id.name, "sctp");
    let rival = ContivService {
        id: id("rival"),
        ..rival
    };
    renderer.add_service(&mut world, rival).unwrap();
    renderer.delete_service(&mut world, id("rival")).unwrap();
    renderer.delete_service(&mut world, id("local")).unwrap();
    renderer.delete_service(&mut world, id("empty")).unwrap();
    let moved = with_port(service("moved", "10.96.0.2", ""), "dns", 53, 0, "10.1.1.3#53");
    renderer
        .update_service(&mut world, id("sticky"), moved.clone())
        .unwrap();
    let events = world.take_asked();
    assert_eq!(events.len(), 16);

    let mut left: Vec<ContivService> = many()
        .into_iter()
        .filter(|one| one.id.name.len() == 63 || one.id.name == "sctp")
        .collect();
    left.push(moved);
    let plain = service("plain", "10.96.0.1 fd96::1", "20.0.0.3");
    left.push(with_port(plain, "http", 80, 30080, "10.1.1.3#8080 fd10::3#8080"));
    let (mut fresh, mut other) = (instance(CONFIG), Simulation::default());
    fresh.resync(&mut other, left).unwrap();
    assert_eq!(world.tables, other.tables);
    let resync = other.take_asked();

    let folder = tempfile::tempdir().unwrap();
    let Some(after_events) = in_namespace(folder.path(), &events) else {
        return;
    };
    let held_after_events = held(&after_events);
    assert!(held_after_events.len() > 50, "{held_after_events:?}");
    assert_eq!(held_after_events, held(&in_namespace(folder.path(), &resync).unwrap()));
    // A resync creates existing tables anew.
    let both = [events, resync].concat();
    assert_eq!(held_after_events, held(&in_namespace(folder.path(), &both).unwrap()));
}

#[test]
fn the_kernel_takes_every_kind_of_service_in_one_resync() {
    let (mut renderer, mut world) = (instance(CONFIG), Simulation::default());
    renderer.resync(&mut world, many()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let Some(output) = in_namespace(folder.path(), &world.take_asked()) else {
        return;
    };
    let services: usize = world.tables.values().map(|table| table.chains.len()).sum();
    let chains = held(&output).iter().filter(|line| line.starts_with("chain ")).count();
    assert_eq!(chains, services);
}

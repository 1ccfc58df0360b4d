//! Several renderers beside each other: one that fails, is new, or was set aside gets a resync before anything else,
//! and does not affect the others.

use needs::needs;
use std::collections::BTreeMap;

use rustix::process::Signal;
use serde_json::json;

use super::entries::Call;
use super::manifests::Manifests;
use super::renumbered::renumbered;
use super::site::{Config, Host, wait_until};
use super::store::Etcd;
use support::{Ran, trueup};

/// The prefix under which the node's agent finds Services.
const DNATS: &str = "/vnf-agent/node-a/config/vpp/nat/v2/dnat44/";

fn manifests() -> Manifests {
    let manifests = Manifests::new();
    manifests.put_node("node-a", "172.30.1.1");
    manifests.put_service("web", 10, 0);
    manifests.put_endpoints("web", &["10.1.1.2", "10.1.2.2"]);
    manifests
}

/// The value of a Service at a cluster IP with one or two backends, the first of them on this node.
fn dnat(name: &str, last: u8, backends: &[&str]) -> (String, String) {
    let probability = if backends.len() == 1 { "" } else { r#","probability":1"# };
    let ips: Vec<String> = backends
        .iter()
        .map(|ip| format!(r#"{{"vrf_id":1,"local_ip":"{ip}","local_port":8080{probability}}}"#))
        .collect();
    let value = format!(
        r#"{{"label":"shop/{name}","st_mappings":[{{"external_ip":"10.96.0.{last}","external_port":80,"local_ips":[{}],"twice_nat":"SELF"}}]}}"#,
        ips.join(",")
    );
    (format!("{DNATS}shop/{name}"), value)
}

/// The Services of the node's agent.
fn dnats(etcd: &Etcd) -> BTreeMap<String, String> {
    let mut all = etcd.under(DNATS);
    all.remove(&format!("{DNATS}DNAT-identities"));
    all
}

/// Calls of a renderer: the name of each, and whether the renderer accepted it.
fn told(host: &Host, renderer: &str) -> Vec<(String, bool)> {
    let calls = host.calls(renderer).into_iter();
    calls.map(|call| (call.name.clone(), took(&call))).collect()
}

fn took(call: &Call) -> bool {
    call.result == Some(json!({ "Ok": null }))
}

/// The services for which a renderer accepted a call of this name, in order.
fn taken(host: &Host, renderer: &str, name: &str) -> Vec<String> {
    let calls = host.entries(renderer).calls_of(name).into_iter();
    let of = |call: Call| {
        let service = call.args.get("service").or_else(|| call.args.get("new")).unwrap();
        service["id"]["name"].as_str().unwrap().to_owned()
    };
    calls.filter(took).map(of).collect()
}

/// Every call of a renderer that is out of step is a resync, until it accepts one.
#[track_caller]
fn is_told_everything_first(told: &[(String, bool)], mut in_step: bool) {
    for (at, (name, took)) in told.iter().enumerate() {
        assert!(in_step || name == "renderer.resync", "call {at} of {told:?}");
        in_step = *took;
    }
}

fn replays(host: &Host) -> Ran {
    let journals = host.site.journals().into_iter();
    trueup(
        [std::ffi::OsString::from("replay")]
            .into_iter()
            .chain(journals.map(Into::into)),
    )
}

fn both(etcd: &Etcd, manifests: &Manifests) -> Host {
    let config = Config::new("node-a", manifests).against(&etcd.url());
    let mut host = Host::start_new(config.patient(2_000).serving(&["nftables", "nat44"]));
    host.wait_for("1 service rendered by nftables/node-a, nat44/node-a");
    assert_eq!(dnats(etcd), [dnat("web", 10, &["10.1.1.2", "10.1.2.2"])].into());
    host
}

#[needs(etcd)]
#[test]
fn a_renderer_resyncs_after_its_store_is_back_and_the_other_goes_on() {
    let mut etcd = Etcd::start();
    let manifests = manifests();
    let mut host = both(&etcd, &manifests);

    etcd.stop();
    manifests.put_endpoints("web", &["10.1.1.2"]);
    host.wait_for("warning: nat44/node-a: renderer `nat44`: ");
    // The other renderer gets changes immediately while this one is out of step.
    manifests.put_endpoints("db", &["10.1.1.3"]);
    manifests.put_service("db", 11, 0);
    wait_until("the second Service", || {
        taken(&host, "nftables", "renderer.add-service") == ["db"]
    });
    manifests.put_endpoints("api", &["10.1.1.4"]);
    manifests.put_service("api", 12, 0);
    wait_until("the third", || {
        taken(&host, "nftables", "renderer.add-service") == ["db", "api"]
    });
    manifests.remove("service-db.yaml");
    wait_until("the second to go", || {
        taken(&host, "nftables", "renderer.delete-service") == ["db"]
    });
    assert!(taken(&host, "nftables", "renderer.update-service").contains(&"web".to_owned()));
    let calls = told(&host, "nftables");
    assert!(calls.iter().all(|(_, took)| *took), "{calls:?}");
    // At a glance: one of them is in trouble, and why.
    let status = host.status().exits(1);
    assert!(status.line("nat44/node-a").contains("unavailable: "), "{status}");
    assert!(!status.stdout.contains("\nnftables/node-a"), "{status}");

    etcd.start_again();
    host.wait_for("it has everything");
    let expected = [dnat("web", 10, &["10.1.1.2"]), dnat("api", 12, &["10.1.1.4"])];
    wait_until("its values", || dnats(&etcd) == expected.clone().into());
    wait_until("all to be well", || host.status().last_line() == "all is well");
    // From here on it gets changes as before.
    manifests.put_endpoints("api", &["10.1.1.5"]);
    let expected = [dnat("web", 10, &["10.1.1.2"]), dnat("api", 12, &["10.1.1.5"])];
    wait_until("the change", || dnats(&etcd) == expected.clone().into());
    host.wait_for("endpoints shop/api applied by nftables/node-a, nat44/node-a");
    is_told_everything_first(&told(&host, "nat44"), true);
    assert_eq!(
        told(&host, "nat44").last(),
        Some(&("renderer.update-service".to_owned(), true))
    );
    assert_eq!(
        host.entries("nftables").calls_of("renderer.resync").len(),
        1,
        "the other is told everything once"
    );

    let ended = host.terminate().exits(0);
    assert_eq!(
        ended.last_line(),
        "0 nodes, 2 services: 2 renderers true, 0 failed",
        "{ended}"
    );
    replays(&host).exits(0);
}

#[needs(etcd)]
#[test]
fn a_renderer_that_is_swapped_is_told_everything_before_anything_else() {
    let etcd = Etcd::start();
    let manifests = manifests();
    let mut host = both(&etcd, &manifests);
    let candidate = host.site.path("nat44-7.wasm");
    std::fs::write(&candidate, renumbered("nat44", "1", "7")).unwrap();
    // Only a resync cleans up unwanted leftovers of the previous version.
    etcd.put(&format!("{DNATS}shop/stale"), "{}");
    let before = told(&host, "nat44").len();
    host.site
        .guest(&["swap", "nat44", candidate.to_str().unwrap()])
        .exits(0);
    host.wait_for(&format!("{:<24} true     it has everything", "nat44/node-a"));
    assert_eq!(dnats(&etcd), [dnat("web", 10, &["10.1.1.2", "10.1.2.2"])].into());
    manifests.put_endpoints("web", &["10.1.1.3"]);
    wait_until("the change", || dnats(&etcd) == [dnat("web", 10, &["10.1.1.3"])].into());
    let after = told(&host, "nat44").split_off(before);
    is_told_everything_first(&after, false);
    let names: Vec<&str> = after.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["renderer.resync", "renderer.update-service"]);
    // The host alone caused it, without a question.
    assert_eq!(host.entries("nftables").calls_of("renderer.resync").len(), 1);

    let status = host
        .site
        .guest(&["status", "nat44", "--output", "json"])
        .exits(0)
        .json();
    assert_eq!(status[0]["active"]["version"], "7", "{status}");
    host.terminate().exits(0);
}

#[needs(etcd)]
#[test]
fn a_renderer_that_keeps_failing_is_set_aside_alone() {
    let etcd = Etcd::start();
    let manifests = manifests();
    let config = Config::new("node-a", &manifests).against(&etcd.url());
    // It may ask one question in a call, and needs more for its first call.
    let mut host = Host::start_new(config.patient(8_000).serving(&["other", "nftables", "nat44"]));
    host.wait_for("; set aside after 3 times until it or the guest changes");
    let line = host
        .stdout()
        .lines()
        .find(|line| line.contains("; set aside after "))
        .unwrap()
        .to_owned();
    assert!(line.starts_with(&format!("{:<24} failed   ", "other/node-a")), "{line}");
    assert!(line.contains("asked more than 1 question"), "{line}");
    host.wait_for("rendered by nftables/node-a, nat44/node-a");
    let tries = told(&host, "other");
    assert_eq!(tries.len(), 3, "{tries:?}");
    is_told_everything_first(&tries, false);

    // The others go on, and the host does not call it again.
    manifests.put_endpoints("web", &["10.1.1.3"]);
    wait_until("the change", || dnats(&etcd) == [dnat("web", 10, &["10.1.1.3"])].into());
    for renderer in ["nftables", "nat44"] {
        // What a call does is visible before the call ends.
        wait_until("the ends of its calls", || {
            told(&host, renderer).iter().all(|(_, took)| *took)
        });
        assert_eq!(taken(&host, renderer, "renderer.update-service"), ["web"]);
    }
    assert_eq!(told(&host, "other").len(), 3);
    assert_eq!(etcd.under("/vnf-agent/other-node-a/").len(), 0);
    // The status shows it, with the place to look.
    let status = host.status().exits(1);
    let row = status.line("other/node-a ");
    assert!(
        row.contains("set aside") && row.contains("asked more than 1 question"),
        "{status}"
    );
    let standing = host
        .site
        .guest(&["status", "other", "--output", "json"])
        .exits(0)
        .json();
    let entry = &standing[0]["quarantined"][0];
    assert_eq!(
        (&entry["instance"], &entry["failures"]),
        (&json!("other/node-a"), &json!(3)),
        "{standing}"
    );
    assert!(
        std::fs::exists(entry["journal"].as_str().unwrap()).unwrap(),
        "{standing}"
    );

    // The host tries another version of it with a resync. That fails as well.
    let candidate = host.site.path("nat44-7.wasm");
    std::fs::write(&candidate, renumbered("nat44", "1", "7")).unwrap();
    host.site
        .guest(&["swap", "other", candidate.to_str().unwrap(), "--gate", "off"])
        .exits(0);
    wait_until("it to be set aside again", || {
        host.stdout().matches("; set aside after 3 times").count() == 2
    });
    is_told_everything_first(&told(&host, "other"), false);
    let ended = host.terminate().exits(0);
    assert_eq!(
        ended.last_line(),
        "0 nodes, 1 service: 2 renderers true, 1 failed",
        "{ended}"
    );
}

#[needs(etcd)]
#[test]
fn a_renderer_that_is_allowed_more_after_a_reload_is_tried_again() {
    let etcd = Etcd::start();
    let manifests = manifests();
    let config = Config::new("node-a", &manifests).against(&etcd.url());
    let mut host = Host::start_new(config.patient(8_000).serving(&["other", "nftables"]));
    host.wait_for("; set aside after 3 times until it or the guest changes");
    host.site
        .edit("trueup.toml", "imports_per_call = 1 ", "imports_per_call = 100 ");
    host.process().signal(Signal::HUP);
    host.wait_for("rendered by other/node-a, nftables/node-a");
    let values = etcd.under("/vnf-agent/other-node-a/config/vpp/nat/v2/dnat44/shop/");
    assert_eq!(values.len(), 1, "{values:?}");
    wait_until("all to be well", || host.status().code == Some(0));
    let standing = host
        .site
        .guest(&["status", "other", "--output", "json"])
        .exits(0)
        .json();
    assert_eq!(standing[0]["quarantined"], json!([]), "{standing}");
    host.terminate().exits(0);
}

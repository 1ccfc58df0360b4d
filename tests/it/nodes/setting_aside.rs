//! The input with which the service processor fails too often is set aside; what is rendered stays.

use std::ffi::OsString;

use support::trueup;

use super::manifests::Manifests;
use super::site::{Config, Host, wait_until};

/// Its name in the status and on stdout.
const PROCESSOR: &str = "service/node-a";

/// More endpoints than fit the guest's memory.
fn put_huge(manifests: &Manifests, last: u8) {
    let addresses: Vec<String> = (0..20_000_u16)
        .map(|number| format!("10.{last}.{}.{}", number / 250, number % 250 + 1))
        .collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    manifests.put_endpoints("huge", &addresses);
}

fn set_aside(host: &Host) -> Vec<String> {
    let status = host
        .site
        .guest(&["status", "service", "--output", "json"])
        .exits(0)
        .json();
    let entries = status[0]["quarantined"].as_array().unwrap().iter();
    entries
        .map(|entry| entry["instance"].as_str().unwrap().to_owned())
        .collect()
}

fn resyncs(host: &Host) -> usize {
    host.calls("service")
        .iter()
        .filter(|call| call.name == "processor.resync")
        .count()
}

/// A host, not started yet, with Services `db` and `web`, and `huge`, with which its processor fails.
fn host(more: &str) -> (Host, Manifests) {
    let manifests = Manifests::new();
    manifests.put_node("node-a", "172.30.1.1");
    for (name, last) in [("db", 10), ("huge", 11), ("web", 12)] {
        manifests.put_service(name, last, 0);
        manifests.put_endpoints(name, &["10.1.1.2"]);
    }
    put_huge(&manifests, 2);
    let host = Host::new(Config::new("node-a", &manifests).serving(&["nftables"]));
    host.site.edit(
        "trueup.toml",
        "use = \"builtin:service@1\"\n",
        &format!("use = \"builtin:service@1\"\nlimits = {{ memory_bytes = 2097152 }}\n{more}"),
    );
    (host, manifests)
}

#[test]
fn a_run_that_ends_renders_nothing_and_fails() {
    // By default it fails as often as a run that ends tries.
    let (host, _manifests) = host("");
    let ended = host.site.run_once().exits(1);
    assert_eq!(
        ended.last_line(),
        "0 nodes, 0 services: 0 renderers true, 2 failed",
        "{ended}"
    );
}

#[test]
fn an_input_that_fails_in_the_processor_is_set_aside_until_it_changes() {
    let (mut host, manifests) = host("quarantine_after = 2\n");
    manifests.put_endpoints("huge", &["10.1.1.4"]);
    host.start();
    host.wait_for("3 services rendered by nftables/node-a");
    put_huge(&manifests, 2);
    host.wait_for("set aside after 2 times until it or the guest changes");
    assert_eq!(set_aside(&host), [PROCESSOR]);
    let line = host.stdout();
    let line = line.lines().find(|line| line.contains("set aside")).unwrap();
    assert!(line.starts_with(PROCESSOR), "{line}");
    // The operator reads where to look: the object with which it began, and the recording.
    let suspect = "; it first failed with endpoints shop/huge";
    assert!(line.contains(suspect) && line.contains(", its recording is "), "{line}");
    let explained = ["explain", PROCESSOR, "--state-dir"].map(OsString::from);
    let explained = trueup(explained.into_iter().chain([host.site.state_dir().into()])).exits(0);
    assert!(explained.stdout.contains(suspect), "{explained}");
    let status = host.status().exits(1);
    assert!(
        status
            .stdout
            .lines()
            .any(|row| row.starts_with(PROCESSOR) && row.contains("set aside")),
        "{status}"
    );

    // The host does not try it again; nor does another process.
    let before = resyncs(&host);
    host.terminate().exits(0);
    host.start();
    host.wait_for("set aside after 2 times until it or the guest changes");
    assert_eq!((set_aside(&host), resyncs(&host)), (vec![PROCESSOR.to_owned()], before));

    // The host tries another input, and sets it aside as well.
    put_huge(&manifests, 3);
    wait_until("it to be set aside again", || {
        host.stdout().matches("set aside after 2 times").count() == 2
    });
    // It renders the others once the object is gone, and the object once it is smaller.
    manifests.remove("endpoints-huge.yaml");
    host.wait_for("2 services rendered by nftables/node-a");
    manifests.put_endpoints("huge", &["10.1.1.4"]);
    host.wait_for("endpoints shop/huge applied by nftables/node-a");
    wait_until("all to be well", || {
        let status = host.status();
        status.code == Some(0) && status.stdout.lines().any(|line| line == "keys      2 true")
    });
    assert_eq!(set_aside(&host), [""; 0]);
    host.terminate().exits(0);
}

#[test]
fn a_node_that_can_not_render_yet_says_what_it_waits_for() {
    let manifests = Manifests::new();
    manifests.put_node("node-a", "172.30.1.1");
    manifests.put_service("web", 10, 0);
    manifests.put("broken.yaml", "kind: Service\nmetadata: [\n");
    let config = Config::new("node-a", &manifests).numbered().serving(&["nftables"]);
    let mut host = Host::start_new(config);
    host.wait_for("the Services on this node wait for the whole source to be readable");
    let waits =
        "`node-a` has number 1; 1 node numbered; 0 services to render; they wait for the whole source to be readable";
    wait_until("the status to say so", || host.status().stdout.contains(waits));
    manifests.remove("broken.yaml");
    host.wait_for("1 service rendered by nftables/node-a");
    wait_until("all to be well", || host.status().last_line() == "all is well");
    assert!(!host.status().stdout.contains("they wait"), "{}", host.status());
    host.terminate().exits(0);
}

#[test]
fn explain_of_a_service_names_a_manifest_that_can_not_be_read() {
    let manifests = Manifests::new();
    manifests.put_node("node-a", "172.30.1.1");
    manifests.put_service("web", 10, 0);
    manifests.put_endpoints("web", &["10.1.1.2"]);
    let mut host = Host::new(Config::new("node-a", &manifests).serving(&["nftables"]));
    host.start();
    host.wait_for("1 service rendered by nftables/node-a");
    let state_dir = host.site.state_dir();
    let explained = || {
        let args = ["explain", "shop/web", "--state-dir"].map(OsString::from);
        trueup(args.into_iter().chain([state_dir.clone().into()]))
            .exits(0)
            .stdout
    };
    let unreadable = "! a manifest that can't be read may hold this Service";
    assert!(!explained().contains(unreadable), "{}", explained());
    manifests.put("service-web.yaml", "kind: Service\nmetadata: [\n");
    wait_until("what can't be read", || {
        let said = explained();
        said.contains(unreadable) && said.contains("service-web.yaml")
    });
    host.terminate().exits(0);
}

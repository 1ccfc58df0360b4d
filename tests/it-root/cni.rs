//! Pods of a node, created like a container runtime does: Debian's `bridge` plugin calls the real `trueup-cni`, which
//! asks the real host. The tests call `trueup-cni` directly for what that `bridge` does not support (it ends with CNI
//! 1.0.0).
//!
//! All networking is in namespaces of the test. The plugin's own tests cover a host that misbehaves; `scenarios/`
//! covers which address a guest chooses.

use needs::needs;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use support::network::Network;
use support::plugins::{INTERFACE, ask, bridge, trueup_cni};
use support::{Ran, Site, Started, ran, trueup, wait_until};

/// The node's bridge. Its first address is the gateway.
const BRIDGE: &str = "pods0";

/// The network's name, a part of every allocation's key.
const NETWORK: &str = "pods";

/// How long the plugin waits for a host: the longest configurable time, so a call that returns within a test has not
/// waited for the timeout.
const A_DAY_MS: u64 = 86_400_000;

/// "Try again later": no address is free, the host is down, the store fails.
const TRY_AGAIN_LATER: u64 = 11;

/// The n-th address of the subnet.
fn address(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, n)
}

/// The first address of an ENI.
const FIRST: u8 = 10;

/// A host with its configuration, running or down.
struct Host {
    site: Site,
    running: Option<Started>,
}

impl Host {
    /// A host that is down and has never run. It has an ENI for each number, which is the count of its addresses; they
    /// continue from [`FIRST`] without a gap.
    fn new(settings: &str, enis: &[u8]) -> Self {
        Self::storing("kind = \"file\"\npath = \"checkpoint\"", settings, enis)
    }

    /// The same, with another `[backend.checkpoint]`.
    fn storing(store: &str, settings: &str, enis: &[u8]) -> Self {
        // Build it before anything waits for it.
        trueup_cni();
        let site = Site::of(&format!(
            r#"
            [guests.ipam]
            use = "builtin:ipam@1"
            settings = {{ {settings} }}
            grants = {{ checkpoint = {{ read = ["own"], write = ["own"] }} }}

            [adapter.ipam]
            socket = "cni.sock"
            spool_dir = "spool"
            enis_file = "enis.json"

            [backend.checkpoint]
            {store}
            "#
        ));
        let mut next = FIRST;
        let mut list = Vec::new();
        for (index, count) in enis.iter().enumerate() {
            let addresses: Vec<Ipv4Addr> = (next..next + count).map(address).collect();
            next += count;
            list.push(json!({
                "id": format!("eni-{}", index + 1), "device_number": index + 1, "is_primary": index == 0,
                "is_trunk": false, "addresses": addresses,
            }));
        }
        fs::write(site.path("enis.json"), json!({ "enis": list }).to_string()).unwrap();
        Self { site, running: None }
    }

    /// Starts it, and waits until it serves pods.
    #[track_caller]
    fn start(&mut self) {
        self.start_unready();
        let running = self.running.as_mut().unwrap();
        let status = configuration(&self.site, "1.1.0");
        wait_until("the host to serve pods", || {
            assert!(
                running.ended().is_none(),
                "it ended:\n{}\n{}",
                running.stdout(),
                running.stderr()
            );
            ask("STATUS", "", &status).code == Some(0)
        });
    }

    /// Starts it.
    fn start_unready(&mut self) {
        assert!(self.running.is_none());
        self.running = Some(self.site.start("run", &[]));
    }

    /// `kill -9`.
    fn kill(&mut self) {
        self.running.take().unwrap().kill();
    }

    fn kill_and_start(&mut self) {
        self.kill();
        self.start();
    }

    /// How many addresses pods have, according to the operator's view of the host.
    #[track_caller]
    fn assigned(&self) -> usize {
        let mut show = support::program();
        show.args(["ipam", "show", "--output", "json"]).arg(self.site.folder());
        let shown = ran(&mut show).exits(0).json();
        serde_json::from_value(shown["stats"]["assigned"].clone()).unwrap()
    }

    /// The names of the files in the spool.
    fn spooled(&self) -> BTreeSet<String> {
        let Ok(entries) = fs::read_dir(self.site.path("spool")) else {
            return BTreeSet::new();
        };
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Calls `trueup-cni` directly, for a container's interface.
    #[track_caller]
    fn ask(&self, command: &str, container: &str) -> Ran {
        ask(command, container, &self.configuration())
    }

    /// The same, about an address that the container already has.
    #[track_caller]
    fn check(&self, container: &str, address: Ipv4Addr) -> Ran {
        let mut configuration = self.configuration();
        configuration["prevResult"] = json!({"cniVersion": "1.1.0", "ips": [{"address": format!("{address}/24")}]});
        ask("CHECK", container, &configuration)
    }

    /// Frees everything but these.
    #[track_caller]
    fn collect(&self, valid: &[(&str, &str)], gc_migrated: bool) -> Ran {
        let mut configuration = self.configuration();
        let attachment = |(container, interface): &(&str, &str)| json!({"containerID": container, "ifname": interface});
        configuration["cni.dev/valid-attachments"] = valid.iter().map(attachment).collect();
        configuration["ipam"]["gcMigrated"] = gc_migrated.into();
        ask("GC", "", &configuration)
    }

    fn configuration(&self) -> Value {
        configuration(&self.site, "1.1.0")
    }
}

/// The configuration that a runtime gives the plugins.
fn configuration(site: &Site, version: &str) -> Value {
    json!({
        "cniVersion": version, "name": NETWORK, "type": "bridge", "bridge": BRIDGE, "isGateway": true,
        "ipam": {
            "type": "trueup-cni", "socket": site.path("cni.sock"), "spoolDir": site.path("spool"),
            "timeoutMs": A_DAY_MS, "prefixLength": 24, "gateway": address(1), "routes": [{"dst": "0.0.0.0/0"}],
        },
    })
}

/// The code, the message and the subject of an error, which must be all of stdout.
#[track_caller]
fn refusal(ran: Ran) -> (u64, String, String) {
    let ran = ran.exits(1);
    let error = ran.json();
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (error["code"].as_u64().unwrap(), text("msg"), text("details"))
}

/// Checks for success with an empty stdout.
#[track_caller]
fn is_done(ran: Ran) {
    let ran = ran.exits(0);
    assert_eq!(ran.stdout, "", "{ran}");
}

/// The address in the result of an ADD.
#[track_caller]
fn address_in(result: &Value) -> Ipv4Addr {
    let ips = result["ips"].as_array().unwrap();
    assert_eq!(ips.len(), 1, "{result}");
    let text = ips[0]["address"].as_str().unwrap();
    let address = text.strip_suffix("/24").and_then(|address| address.parse().ok());
    address.unwrap_or_else(|| panic!("`{text}` is no address with the prefix length 24"))
}

/// A node with a network; `bridge` creates its pods.
struct Node {
    network: Network,
    host: Host,
    version: &'static str,
}

/// A pod in its runtime's view.
#[derive(Debug, Clone)]
struct Pod {
    name: String,
    address: Ipv4Addr,
    /// The output of ADD.
    result: Value,
}

impl Node {
    /// The error of an ADD.
    #[track_caller]
    fn refused(&self, pod: &str) -> (u64, String, String) {
        refusal(bridge(
            &self.network,
            "ADD",
            pod,
            &configuration(&self.host.site, self.version),
        ))
    }

    /// The error of an ADD with a full pool.
    #[track_caller]
    fn is_full_for(&self, pod: &str) {
        let details = format!("{NETWORK}/{pod}/{INTERFACE}");
        assert_eq!(
            self.refused(pod),
            (TRY_AGAIN_LATER, "no address is free".to_owned(), details)
        );
    }

    #[track_caller]
    fn add(&self, pod: &str) -> Pod {
        let ran = bridge(&self.network, "ADD", pod, &configuration(&self.host.site, self.version));
        let result = ran.exits(0).json();
        assert_eq!(result["cniVersion"], self.version);
        assert_eq!(result["ips"][0]["gateway"], json!(address(1)), "{result}");
        assert_eq!(result["routes"], json!([{"dst": "0.0.0.0/0"}]), "{result}");
        let address = address_in(&result);
        assert_eq!(
            self.network.addresses_of(pod, INTERFACE),
            [format!("{address}/24")],
            "{result}"
        );
        Pod {
            name: pod.to_owned(),
            address,
            result,
        }
    }

    /// CHECK: the pod must be as ADD left it.
    #[track_caller]
    fn check(&self, pod: &Pod) {
        let mut configuration = configuration(&self.host.site, self.version);
        configuration["prevResult"] = pod.result.clone();
        is_done(bridge(&self.network, "CHECK", &pod.name, &configuration));
    }

    #[track_caller]
    fn del(&self, pod: &Pod) {
        let mut configuration = configuration(&self.host.site, self.version);
        configuration["prevResult"] = pod.result.clone();
        is_done(bridge(&self.network, "DEL", &pod.name, &configuration));
        assert!(self.network.addresses_of(&pod.name, INTERFACE).is_empty());
    }

    /// DEL of a pod whose ADD has failed.
    #[track_caller]
    fn del_failed(&self, pod: &str) {
        is_done(bridge(
            &self.network,
            "DEL",
            pod,
            &configuration(&self.host.site, self.version),
        ));
    }
}

/// Names of pods: p1, p2, ...
fn names(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("p{n}")).collect()
}

/// A node whose host is down, and whose pods already have namespaces.
#[track_caller]
fn node(version: &'static str, host: Host, pods: usize) -> Node {
    let network = Network::start();
    network.add_pods(names(pods).iter().map(String::as_str));
    Node { network, host, version }
}

/// The number of pods on the node.
const PODS: usize = 20;

fn pods_live_on_a_node(version: &'static str) {
    let host = Host::new("cooling_period_ms = 0", &[12, 12]);
    // One more pod, which comes late.
    let mut node = node(version, host, PODS + 1);
    node.host.start();
    let names = names(PODS + 1);
    let (early, rest) = names.split_at(PODS / 2);
    let (together, late) = rest.split_at(PODS / 2);

    let mut pods: Vec<Pod> = early.iter().map(|pod| node.add(pod)).collect();
    let chosen: Vec<Ipv4Addr> = pods.iter().map(|pod| pod.address).collect();
    assert_eq!(
        chosen,
        (FIRST..).map(address).take(PODS / 2).collect::<Vec<_>>(),
        "never given out, by number"
    );
    for pod in &pods {
        let ip = &pod.result["ips"][0];
        let family = if version == "0.4.0" { json!("4") } else { Value::Null };
        assert_eq!(
            (&ip["version"], &ip["interface"]),
            (&family, &json!(2)),
            "{}",
            pod.result
        );
    }
    node.host.kill_and_start();

    // All at once, like a runtime that starts.
    thread::scope(|scope| {
        let adding: Vec<_> = together.iter().map(|pod| scope.spawn(|| node.add(pod))).collect();
        pods.extend(adding.into_iter().map(|adding| adding.join().unwrap()));
    });
    let held: BTreeSet<Ipv4Addr> = pods.iter().map(|pod| pod.address).collect();
    assert_eq!(
        held,
        (FIRST..).map(address).take(PODS).collect(),
        "each has one of its own, of the first {PODS}"
    );
    node.host.kill_and_start();

    for pod in &pods {
        node.check(pod);
        let again = node.host.ask("ADD", &pod.name).exits(0).json();
        assert_eq!(address_in(&again), pod.address, "{} asked again", pod.name);
    }
    for (index, pod) in pods.iter().enumerate() {
        let neighbour = &pods[(index + 1) % PODS];
        node.network.ping(&pod.name, neighbour.address);
        if index > 0 {
            node.network.ping(&pod.name, pods[0].address);
        }
    }
    // The route to all other networks.
    node.network.ping(&pods[0].name, address(1));
    assert_eq!(node.network.links_on(BRIDGE), PODS);
    assert_eq!(node.host.assigned(), PODS);

    let newcomer = node.add(&late[0]);
    assert!(!held.contains(&newcomer.address), "{newcomer:?}");
    node.network.ping(&newcomer.name, pods[0].address);
    pods.push(newcomer);

    let (first, second) = pods.split_at(PODS / 2);
    for pod in first {
        node.del(pod);
    }
    node.host.kill_and_start();
    for pod in second {
        node.check(pod);
        node.del(pod);
    }
    // Runtimes may repeat a call.
    for pod in &pods {
        node.del_failed(&pod.name);
        let (code, _, _) = refusal(node.host.check(&pod.name, pod.address));
        assert_eq!(code, 3, "{} has no address any more", pod.name);
    }
    assert_eq!(node.network.links_on(BRIDGE), 0);
    assert_eq!(node.host.assigned(), 0);
    assert_eq!(node.host.spooled(), BTreeSet::new());

    let mut all = vec!["replay".into()];
    all.extend(node.host.site.journals());
    assert!(all.len() > 1, "what the guest did is recorded");
    trueup(all).exits(0);
}

#[needs(cni, netns, root)]
#[test]
fn twenty_pods_connect_and_survive_a_killed_host_with_cni_0_4_0() {
    pods_live_on_a_node("0.4.0");
}

#[needs(cni, netns, root)]
#[test]
fn twenty_pods_connect_and_survive_a_killed_host_with_cni_1_0_0() {
    pods_live_on_a_node("1.0.0");
}

#[needs(cni, netns, root)]
#[test]
fn an_address_that_del_freed_is_not_given_while_it_rests() {
    // Longer than the test takes on any machine.
    let host = Host::new(&format!("cooling_period_ms = {A_DAY_MS}"), &[3]);
    let mut node = node("1.0.0", host, 5);
    node.host.start();
    let freed = node.add("p1");
    node.add("p2");
    node.del(&freed);
    assert_eq!(node.add("p3").address, address(FIRST + 2), "the one that does not rest");
    for _ in 0..2 {
        // Not even to the pod that had it.
        for pod in ["p4", "p1"] {
            node.is_full_for(pod);
            node.del_failed(pod);
        }
        // The store keeps rests, too.
        node.host.kill_and_start();
    }
}

#[needs(cni, netns, root)]
#[test]
fn an_address_that_del_freed_is_given_out_again_once_it_has_rested() {
    const REST: Duration = Duration::from_millis(1000);
    let host = Host::new("cooling_period_ms = 1000", &[2]);
    let mut node = node("1.0.0", host, 3);
    node.host.start();
    let freed = node.add("p1");
    let stays = node.add("p2");
    // Measured from before the release until after the assignment: at least as long as the rest, however slow the
    // machine.
    let began = Instant::now();
    node.del(&freed);
    let mut refused = 0;
    let again = loop {
        let ran = bridge(
            &node.network,
            "ADD",
            "p3",
            &configuration(&node.host.site, node.version),
        );
        if ran.code == Some(0) {
            break ran.json();
        }
        assert_eq!(refusal(ran).0, TRY_AGAIN_LATER);
        refused += 1;
        assert!(began.elapsed() < 60 * REST, "refused {refused} times");
        node.del_failed("p3");
    };
    let rested = began.elapsed();
    assert!(
        rested > REST,
        "given out again after {rested:?}, refused {refused} times before"
    );
    assert_eq!(address_in(&again), freed.address);
    node.network.ping("p3", stays.address);
}

#[needs(cni, netns, root)]
#[test]
fn a_full_pool_is_error_11_and_a_del_cleans_up_after_it() {
    let host = Host::new("cooling_period_ms = 0", &[1, 1]);
    let mut node = node("1.0.0", host, 3);
    node.host.start();
    let pods = ["p1", "p2"].map(|pod| node.add(pod));
    node.is_full_for("p3");
    is_done(node.host.ask("STATUS", ""));
    assert_eq!(
        node.network.links_on(BRIDGE),
        3,
        "`bridge` leaves the pair of interfaces: DEL has something to clean up"
    );
    // Without it no ADD would ever succeed.
    let (_, message, _) = node.refused("p3");
    assert!(message.contains("already exists"), "{message}");
    node.del_failed("p3");
    assert_eq!(node.network.links_on(BRIDGE), 2);
    node.is_full_for("p3");
    node.del_failed("p3");

    for pod in &pods {
        node.check(pod);
    }
    node.del(&pods[1]);
    assert_eq!(node.add("p3").address, pods[1].address);
    node.network.ping("p3", pods[0].address);
}

/// The name and the text of a release in the spool.
fn release(container: &str) -> (String, String) {
    // `printf 'pods\0p1\0eth0' | sha256sum`, and so on.
    let key = match container {
        "p1" => "7e8277020e0f0262d1fb1f9cc79d78d7e4868f296277548fd2a7fa13ee370d51",
        "p2" => "2736e4fb5b401fa68a1754fc8efe28d58978a746c16a9bb0ca305a3a02f6e589",
        "p4" => "ee5c810212b81e747abffffcfcc063fd3b2215f2ca212ef18f9a1947465fb1d2",
        other => panic!("`{other}` was not computed"),
    };
    let text = format!(
        r#"{{"v":1,"instance":null,"networkName":"{NETWORK}","containerID":"{container}","ifName":"{INTERFACE}"}}"#
    );
    (format!("{key}.json"), text)
}

#[needs(cni, netns, root)]
#[test]
fn a_host_that_is_down_blocks_no_pod_and_catches_up_on_releases() {
    let host = Host::new("cooling_period_ms = 0", &[3]);
    let mut node = node("1.0.0", host, 4);
    let spooled =
        |containers: &[&str]| -> BTreeSet<String> { containers.iter().map(|container| release(container).0).collect() };
    // The host never started, so there is no socket. Call the plugin directly: this `bridge` fails on what its first
    // failure leaves, a bridge without a hardware address.
    assert_eq!(refusal(node.host.ask("ADD", "p1")).0, TRY_AGAIN_LATER);
    // The plugin no longer knows whether that ADD took effect, so it keeps the release.
    is_done(node.host.ask("DEL", "p1"));
    assert_eq!(node.host.spooled(), spooled(&["p1"]));
    assert_eq!(refusal(node.host.ask("STATUS", "")).0, 50);
    node.host.start();
    assert_eq!(
        node.host.spooled(),
        BTreeSet::new(),
        "worked off before pods are served"
    );
    let pods = ["p1", "p2", "p3"].map(|pod| node.add(pod));

    // After a kill, the socket exists and no process listens.
    node.host.kill();
    assert_eq!(node.refused("p4").0, TRY_AGAIN_LATER);
    node.del_failed("p4");
    node.del(&pods[1]);
    assert_eq!(node.host.spooled(), spooled(&["p2", "p4"]));
    let (name, text) = release("p2");
    assert_eq!(
        fs::read_to_string(node.host.site.path("spool").join(name)).unwrap(),
        text
    );
    // An ADD takes back a release before the host has seen it. The host is still down.
    is_done(node.host.ask("DEL", "p1"));
    assert_eq!(node.host.spooled(), spooled(&["p1", "p2", "p4"]));
    assert_eq!(refusal(node.host.ask("ADD", "p1")).0, TRY_AGAIN_LATER);
    assert_eq!(node.host.spooled(), spooled(&["p2", "p4"]));

    node.host.start();
    assert_eq!(
        node.host.spooled(),
        BTreeSet::new(),
        "worked off before pods are served"
    );
    for pod in [&pods[0], &pods[2]] {
        node.check(pod);
    }
    let newcomer = node.add("p4");
    assert_eq!(newcomer.address, pods[1].address, "the only one that is free");
    node.network.ping("p4", pods[0].address);
    node.host.kill_and_start();
    node.check(&newcomer);
    node.is_full_for("p2");
}

#[test]
fn cni_1_1_0_is_served_to_direct_requests() {
    let mut host = Host::new("cooling_period_ms = 0", &[2, 2]);
    assert_eq!(refusal(host.ask("STATUS", "")).0, 50, "it is not there yet");
    host.start();
    is_done(host.ask("STATUS", ""));

    let mut configuration = host.configuration();
    configuration["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0", "mtu": 1400}]);
    configuration["dns"] = json!({"nameservers": ["10.77.0.2"]});
    assert_eq!(
        ask("ADD", "c1", &configuration).exits(0).json(),
        json!({
            "cniVersion": "1.1.0",
            "ips": [{"address": "10.77.0.10/24", "gateway": "10.77.0.1"}],
            "routes": [{"dst": "0.0.0.0/0", "mtu": 1400}],
            "dns": {"nameservers": ["10.77.0.2"]},
            "trueup": {"deviceNumber": 1},
        })
    );
    let mut held = BTreeMap::from([("c1", address(FIRST))]);
    for (container, device_number) in [("c2", 1), ("c3", 2), ("c4", 2)] {
        let result = host.ask("ADD", container).exits(0).json();
        assert_eq!(result["trueup"], json!({ "deviceNumber": device_number }));
        held.insert(container, address_in(&result));
    }
    let all_held = |host: &Host, containers: &[&str]| {
        for container in containers {
            is_done(host.check(container, held[container]));
        }
    };
    assert_eq!(
        refusal(host.ask("ADD", "c5")),
        (
            TRY_AGAIN_LATER,
            "no address is free".to_owned(),
            format!("{NETWORK}/c5/{INTERFACE}")
        )
    );
    is_done(host.ask("STATUS", ""));

    all_held(&host, &["c1", "c2", "c3", "c4"]);
    assert_eq!(refusal(host.check("c1", held["c2"])).0, 101);
    assert_eq!(refusal(host.check("c5", held["c1"])).0, 3);
    assert_eq!(refusal(host.ask("CHECK", "c1")).0, 7, "without `prevResult`");

    // An incomplete request frees nothing.
    assert_eq!(refusal(host.ask("GC", "")).0, 7, "without the list");
    let mut elsewhere = host.configuration();
    elsewhere["name"] = "another".into();
    elsewhere["cni.dev/valid-attachments"] = json!([]);
    is_done(ask("GC", "", &elsewhere));
    for (command, version, code) in [("STATUS", "1.0.0", 4), ("GC", "1.0.0", 4), ("ADD", "1.2.0", 1)] {
        let mut other = host.configuration();
        other["cniVersion"] = version.into();
        other["cni.dev/valid-attachments"] = json!([]);
        assert_eq!(refusal(ask(command, "c1", &other)).0, code, "{command} of {version}");
    }
    let mut nobody = host.configuration();
    nobody["ipam"]["instance"] = "nobody".into();
    nobody["cni.dev/valid-attachments"] = json!([]);
    assert_eq!(refusal(ask("GC", "", &nobody)).0, TRY_AGAIN_LATER, "no such instance");
    assert_eq!(refusal(ask("STATUS", "", &nobody)).0, 50, "no such instance");
    all_held(&host, &["c1", "c2", "c3", "c4"]);

    // The interface counts, too.
    let kept = [("c1", INTERFACE), ("c2", "eth1"), ("c3", INTERFACE)];
    is_done(host.collect(&kept, false));
    host.kill_and_start();
    all_held(&host, &["c1", "c3"]);
    for container in ["c2", "c4"] {
        assert_eq!(refusal(host.check(container, held[container])).0, 3, "{container}");
    }
    is_done(host.ask("DEL", "c1"));
    is_done(host.ask("DEL", "c1"));
    assert_eq!(refusal(host.check("c1", held["c1"])).0, 3);
    is_done(host.collect(&[], false));
    assert_eq!(refusal(host.check("c3", held["c3"])).0, 3);

    let versions = ask("VERSION", "", &json!({})).exits(0).json();
    assert_eq!(
        versions,
        json!({"cniVersion": "1.1.0", "supportedVersions": ["0.4.0", "1.0.0", "1.1.0"]})
    );
}

#[test]
fn gc_frees_what_was_learned_from_the_runtime_only_where_it_is_told_to() {
    let allocation = |network: &str, container: &str, interface: &str, n: u8| {
        let address = address(n);
        format!(
            r#"{{"networkName":"{network}","containerID":"{container}","ifName":"{interface}","ipv4":"{address}"}}"#
        )
    };
    let checkpoint = |allocations: &[String]| {
        let allocations = allocations.join(",");
        format!("{{\"version\":\"vpc-cni-ipam/1\",\"allocations\":[{allocations}]}}\n")
    };
    let migrated = |container: &str, n: u8| allocation("_migrated-from-cri", container, "unknown", n);
    let all = [
        migrated("old1", FIRST),
        migrated("old2", FIRST + 1),
        migrated("old3", FIRST + 2),
        allocation(NETWORK, "c1", INTERFACE, FIRST + 3),
    ];
    let mut host = Host::storing(
        "kind = \"json-file\"\npath = \"ipam.json\"",
        "cooling_period_ms = 0, compact_after = 0",
        &[5],
    );
    fs::write(host.site.path("ipam.json"), checkpoint(&all)).unwrap();
    host.start();
    let stored = |host: &Host| fs::read_to_string(host.site.path("ipam.json")).unwrap();

    // The interfaces of such pods are unknown, so any will do.
    let valid = [("old1", INTERFACE), ("c1", INTERFACE)];
    is_done(host.collect(&valid, false));
    is_done(host.check("old2", address(FIRST + 1)));
    assert_eq!(stored(&host), checkpoint(&all));
    is_done(host.collect(&valid, true));
    assert_eq!(stored(&host), checkpoint(&[all[0].clone(), all[3].clone()]));
    is_done(host.check("old1", address(FIRST)));
    assert_eq!(refusal(host.check("old2", address(FIRST + 1))).0, 3);
    is_done(host.ask("DEL", "old1"));
    assert_eq!(stored(&host), checkpoint(&all[3..]));
}

#[test]
fn a_store_that_cannot_be_read_serves_no_pod_until_it_can() {
    const DAMAGED: &str = "this is no checkpoint";
    let mut host = Host::new("cooling_period_ms = 0", &[1]);
    let file = host.site.path("checkpoint");
    fs::write(&file, DAMAGED).unwrap();
    host.start_unready();
    wait_until("the host to say what is wrong", || {
        let (code, message, _) = refusal(host.ask("STATUS", ""));
        assert_eq!(code, 50, "{message}");
        message.contains("corrupt")
    });
    for command in ["ADD", "DEL"] {
        let (code, message, _) = refusal(host.ask(command, "c1"));
        assert_eq!(code, TRY_AGAIN_LATER, "{command}: {message}");
        assert!(message.contains("corrupt"), "{command}: {message}");
    }
    assert_eq!(
        host.spooled(),
        BTreeSet::new(),
        "the host has answered: DEL is repeated"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), DAMAGED, "it is left as it is");

    // The operator restores the file. The host tries again by itself.
    fs::rename(&file, host.site.path("damaged")).unwrap();
    wait_until("the host to serve pods", || host.ask("STATUS", "").code == Some(0));
    assert_eq!(address_in(&host.ask("ADD", "c1").exits(0).json()), address(FIRST));
}

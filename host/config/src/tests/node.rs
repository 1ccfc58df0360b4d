//! `[adapter.node]`, `[adapter.service]`, `[guests.nodesync]`, `[guests.service]` and the renderers.

use trueup_capabilities::grants::NFTABLES;

use super::*;
use crate::interfaces::Pattern;

/// The smallest valid configuration for the Services of a node. The tests below change it.
const SERVES: &str = r#"
[source]
manifests = "manifests"
[guests.service]
use = "builtin:service@1"
[guests.nftables]
use = "builtin:nftables@1"
[adapter.node]
name = "node-a"
[adapter.service]
"#;

fn node(config: &Config) -> &ThisNode {
    config.world::<ThisNode>().expect("this node")
}

fn service(config: &Config) -> &OnService {
    node(config).service.as_ref().expect("the Services of this node")
}

fn renderers(config: &Config) -> Vec<&str> {
    service(config).renderers.iter().map(|(name, _)| *name).collect()
}

/// [`SERVES`] with one line changed, or with lines appended if `from` is empty.
fn with(from: &str, to: &str) -> String {
    assert!(SERVES.contains(from), "`{from}` is not in the file to change");
    if from.is_empty() {
        format!("{SERVES}{to}")
    } else {
        SERVES.replacen(from, to, 1)
    }
}

#[track_caller]
fn node_refused_with(from: &str, to: &str, said: &[&str]) {
    refused(&with(from, to), said);
}

#[test]
fn a_service_processor_needs_only_a_renderer_and_the_node_name() {
    let config = load(SERVES, &[]).unwrap();
    let folder = config.file.parent().unwrap();
    assert!(config.world::<Lbaas>().is_none() && config.world::<Ipam>().is_none() && config.world::<Neg>().is_none());
    assert_eq!(config.source(), Some(&Source::Manifests(folder.join("manifests"))));
    let this = node(&config);
    assert_eq!((this.name.as_str(), this.addresses.as_slice()), ("node-a", &[][..]));
    assert!(this.nodesync.is_none(), "no guest numbers it");
    let wired = json!(this.context);
    for (key, value) in wired.as_object().unwrap() {
        assert!(value == "" || value == &json!([]), "{key}: {value}");
    }
    assert_eq!(renderers(&config), ["nftables"]);
    let of = service(&config);
    assert_eq!((&of.interfaces, of.resync_ms), (&InterfacesFrom::Nowhere, 3_600_000));
    let guest = &of.guest;
    assert_eq!(
        (guest.reference.to_string(), &guest.settings),
        ("builtin:service@1".to_owned(), &json!({}))
    );
    assert_eq!(config.etcd, EtcdBackend::Embedded(folder.join(".trueup/etcd.redb")));
    assert_eq!(config.nftables, NftablesBackend::Nft(NftablesProgram::default()));
    let without_adapter = load(&with("[adapter.service]\n", ""), &[]).unwrap();
    assert_eq!(renderers(&without_adapter), ["nftables"], "the section may be left out");
}

#[test]
fn a_number_needs_no_renderer() {
    let text = "[source]\nmanifests = \"m\"\n[guests.nodesync]\nuse = \"builtin:nodesync@1\"\n[adapter.node]\nname = \"node-a\"\n";
    let config = load(text, &[]).unwrap();
    assert!(node(&config).service.is_none());
    let guest = node(&config).nodesync.as_ref().unwrap();
    assert_eq!(
        guest.settings,
        json!({}),
        "the host gives it its `node_name` when it starts it"
    );
}

#[test]
fn every_key_of_a_node_is_read() {
    let text = r#"
[source]
manifests = "m"
[guests.nodesync]
use = "builtin:nodesync@1"
settings = { key_prefix = "/k/" }
grants = { etcd = { read = ["/k/"], write = ["/k/"] } }
[guests.service]
use = "builtin:service@1"
settings = { default_pod_network = "net" }
[guests.agent]
use = "builtin:nat44@1"
settings = { agent_label = "node-a" }
grants = { etcd = { read = ["/vnf-agent/node-a/"], write = ["*"] } }
[guests.kernel]
use = "file:filter.wasm"
grants = { nftables = { write = ["ip trueup"] } }
[adapter.node]
name = "node-a"
addresses = ["192.168.16.1/24", "FD00::1/64"]
node_ip = "192.168.16.1"
host_ips = ["10.20.0.2", "fd01::2"]
pod_subnet_this_node = "10.1.1.0/24"
pod_subnet_all_nodes = "10.1.0.0/16"
main_interface = "GigabitEthernet0/8/0"
other_interfaces = ["eth1", "eth2"]
vxlan_bvi_interface = "vxlanBVI"
host_interconnect_interface = "tap-vpp2"
[adapter.service]
renderers = ["kernel", "agent"]
pod_interfaces = "tap-{namespace}-{name}"
resync_ms = 60000
[backend.etcd]
kind = "simulated"
[backend.nftables]
kind = "simulated"
"#;
    let config = load(text, &[]).unwrap();
    let this = node(&config);
    let told = |address: &Address| (address.text.clone(), address.is_ipv6);
    assert_eq!(
        this.addresses.iter().map(told).collect::<Vec<_>>(),
        [("192.168.16.1/24".to_owned(), false), ("FD00::1/64".to_owned(), true)]
    );
    assert_eq!(
        json!(this.context),
        json!({
            "node_ip": "192.168.16.1",
            "host_ips": ["10.20.0.2", "fd01::2"],
            "pod_subnet_this_node": "10.1.1.0/24",
            "pod_subnet_all_nodes": "10.1.0.0/16",
            "main_interface": "GigabitEthernet0/8/0",
            "other_interfaces": ["eth1", "eth2"],
            "vxlan_bvi_interface": "vxlanBVI",
            "host_interconnect_interface": "tap-vpp2",
        })
    );
    let nodesync = this.nodesync.as_ref().unwrap();
    assert_eq!(nodesync.settings, json!({"key_prefix": "/k/"}));
    assert!(nodesync.grants.allow_etcd(Access::Write, "/k/allocatedIDs/1"));
    let of = service(&config);
    assert_eq!(of.guest.settings, json!({"default_pod_network": "net"}));
    assert_eq!(
        renderers(&config),
        ["kernel", "agent"],
        "as they are listed, not by name"
    );
    let kernel = &of.renderers[0].1;
    assert!(kernel.grants.allow(NFTABLES, Access::Write, "ip trueup"));
    assert!(!kernel.grants.allow(NFTABLES, Access::Write, "ip6 trueup"));
    let pattern = Pattern::parse("tap-{namespace}-{name}").unwrap();
    assert_eq!(
        (&of.interfaces, of.resync_ms),
        (&InterfacesFrom::Pattern(pattern), 60_000)
    );
    assert_eq!(
        (&config.etcd, &config.nftables),
        (&EtcdBackend::Simulated, &NftablesBackend::Simulated)
    );
    assert_eq!(
        config.guests().iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["nodesync", "service", "kernel", "agent"],
        "each is locked, pulled and verified"
    );
}

#[test]
fn renderers_that_no_list_names_are_called_by_name() {
    let more = "[guests.nat44]\nuse = \"builtin:nat44@1\"\n[guests.nodesync]\nuse = \"builtin:nodesync@1\"\n";
    let config = load(&with("", more), &[]).unwrap();
    assert_eq!(
        renderers(&config),
        ["nat44", "nftables"],
        "and who renders nothing is none of them"
    );
    let listed = format!("renderers = [\"nftables\"]\n{more}");
    refused(
        &with("", &listed),
        &[
            "trueup.toml:12: unknown guest `nat44` in [guests] (known: ipam, lbaas, neg, nftables, nodesync, service; a guest \
           is named as its adapter, a renderer as `renderers` of [adapter.service] lists it)",
        ],
    );
}

#[test]
fn interfaces_of_pods_follow_a_pattern_or_a_file() {
    let config = load(&with("", "pod_interfaces_file = \"interfaces.yaml\"\n"), &[]).unwrap();
    let file = config.file.parent().unwrap().join("interfaces.yaml");
    assert_eq!(
        service(&config).interfaces,
        InterfacesFrom::File(file),
        "read at the start, not here"
    );
    let variables = [("TRUEUP_ADAPTER_SERVICE_POD_INTERFACES", "veth-{uid}")];
    let config = load(SERVES, &variables).unwrap();
    let pattern = Pattern::parse("veth-{uid}").unwrap();
    assert_eq!(service(&config).interfaces, InterfacesFrom::Pattern(pattern));
    node_refused_with(
        "",
        "pod_interfaces = \"tap\"\npod_interfaces_file = \"interfaces.yaml\"\n",
        &["trueup.toml:11: adapter.service.pod_interfaces: goes without `pod_interfaces_file`: leave one of them out"],
    );
    for (pattern, cause) in [
        (
            "",
            "was ``, must be a name of interfaces, such as `tap-{namespace}-{name}`",
        ),
        (
            "tap-{pod}",
            "was `tap-{pod}`, may have `{namespace}`, `{name}` and `{uid}` in it, and nothing else in braces",
        ),
        ("tap-{name", "was `tap-{name`, must have a `}` for each `{`"),
        (
            "tap/0",
            "was `tap/0`, must have no `/`, space or control character in it",
        ),
    ] {
        node_refused_with(
            "",
            &format!("pod_interfaces = \"{pattern}\"\n"),
            &[&format!("trueup.toml:11: adapter.service.pod_interfaces: {cause}")],
        );
    }
}

#[test]
fn mistakes_about_a_node_are_named() {
    node_refused_with(
        "name = \"node-a\"",
        "nmae = \"node-a\"",
        &[
            "trueup.toml:9: unknown key `nmae` in [adapter.node]; did you mean `name`? (known: addresses, \
             host_interconnect_interface, host_ips, main_interface, name, node_ip, other_interfaces, \
             pod_subnet_all_nodes, pod_subnet_this_node, vxlan_bvi_interface)",
        ],
    );
    node_refused_with(
        "name = \"node-a\"",
        "name = \"\"\naddresses = [\"10.0.0.1\", \"10.0.0.1/33\", \"10.0.0.1/024\", \"::ffff:10.0.0.1/96\", \"10.0.0.1/24\", \
         \"10.0.0.1/24\"]\nnode_ip = \"10.0.0.1/24\"\nhost_ips = [\"10.0.0.01\"]\npod_subnet_this_node = \
         \"10.1.1.0\"\npod_subnet_all_nodes = 16\nmain_interface = 1\nother_interfaces = [\"\"]",
        &[
            "trueup.toml:9: adapter.node.name: was \"\", must be this node's name, as in Kubernetes",
            "trueup.toml:10: adapter.node.addresses[0]: was \"10.0.0.1\", must be an address with its \
             network's prefix length, such as `192.168.16.1/24`",
            "trueup.toml:10: adapter.node.addresses[1]: was \"10.0.0.1/33\", must be an address with its \
             network's prefix length, such as `192.168.16.1/24`",
            "trueup.toml:10: adapter.node.addresses[2]: was \"10.0.0.1/024\", must be an address with its \
             network's prefix length, such as `192.168.16.1/24`",
            "trueup.toml:10: adapter.node.addresses[3]: was \"::ffff:10.0.0.1/96\", must be an address with \
             its network's prefix length, such as `192.168.16.1/24`",
            "trueup.toml:10: adapter.node.addresses[5]: was \"10.0.0.1/24\", must differ from addresses[4]",
            "trueup.toml:11: adapter.node.node_ip: was \"10.0.0.1/24\", must be an address, such as \
             `192.168.16.1`",
            "trueup.toml:12: adapter.node.host_ips[0]: was \"10.0.0.01\", must be an address, such as \
             `192.168.16.1`",
            "trueup.toml:13: adapter.node.pod_subnet_this_node: was \"10.1.1.0\", must be a network, such as \
             `10.1.0.0/16`",
            "trueup.toml:14: adapter.node.pod_subnet_all_nodes: was 16, must be a network, such as \
             `10.1.0.0/16`",
            "trueup.toml:15: adapter.node.main_interface: was 1, must be the name of an interface",
            "trueup.toml:16: adapter.node.other_interfaces[0]: was \"\", must be the name of an interface",
        ],
    );
    node_refused_with(
        "",
        "rsync_ms = 60000\nresync_ms = 59999\n",
        &[
            "trueup.toml:11: unknown key `rsync_ms` in [adapter.service]; did you mean `resync_ms`? (known: \
             pod_interfaces, pod_interfaces_file, renderers, resync_ms)",
            "trueup.toml:12: adapter.service.resync_ms: was 59999, must be a whole number from 60000 to \
             604800000",
        ],
    );
}

#[test]
fn renderers_that_can_not_be_meant_are_named() {
    node_refused_with(
        "",
        "renderers = []\n",
        &["trueup.toml:11: adapter.service.renderers: was [], must name a renderer; or leave it out"],
    );
    node_refused_with(
        "",
        "renderers = [\"nftable\"]\n",
        &[
            "trueup.toml:11: adapter.service.renderers: names `nftable`: add `[guests.nftable]`; did you mean \
             `nftables`?",
        ],
    );
    node_refused_with(
        "",
        "renderers = [\"nftabels\", \"lbaas\", \"a/b\", \"nftables\", \"nftables\"]\n",
        &[
            "trueup.toml:11: adapter.service.renderers: names `nftabels`: add `[guests.nftabels]`",
            "trueup.toml:11: adapter.service.renderers[1]: was \"lbaas\", must name a renderer's \
             [guests.NAME]: none of ipam, lbaas, neg, nodesync, service, and NAME must be 1 to 63 letters, \
             digits, `-`, `_` or `.`",
            "trueup.toml:11: adapter.service.renderers[2]: was \"a/b\", must name a renderer's \
             [guests.NAME]: none of ipam, lbaas, neg, nodesync, service, and NAME must be 1 to 63 letters, \
             digits, `-`, `_` or `.`",
            "trueup.toml:11: adapter.service.renderers[4]: was \"nftables\", must differ from renderers[3]",
        ],
    );
    node_refused_with(
        "[guests.nftables]\nuse = \"builtin:nftables@1\"\n",
        "",
        &[
            "trueup.toml:4: [guests.service] needs a renderer: add `[guests.nftables]` with `use = \
             \"builtin:nftables@1\"` and `grants = { nftables = { write = [\"ip trueup\", \"ip6 trueup\"] } \
             }`",
        ],
    );
    node_refused_with(
        "use = \"builtin:nftables@1\"\n",
        "",
        &[
            "trueup.toml:6: guests.nftables.use: is missing, must be `builtin:NAME@VERSION`, `file:PATH` or \
             `oci:HOST/REPO:TAG`",
        ],
    );
}

#[test]
fn the_name_of_the_node_stands_in_one_place() {
    let nodesync = "[guests.nodesync]\nuse = \"builtin:nodesync@1\"\nsettings = { node_name = \"node-b\" }\n";
    node_refused_with(
        "",
        nodesync,
        &["trueup.toml:13: guests.nodesync.settings.node_name: is `name` of [adapter.node]: leave it out"],
    );
}

#[test]
fn sections_of_a_node_that_do_not_fit_are_named_with_the_lines_to_add() {
    refused(
        "[adapter.service]\n",
        &[
            "trueup.toml: [source] is missing: add `[source]` with `manifests = \"manifests\"`, a folder of \
             Kubernetes YAML, or with `kubernetes = {}`, a cluster",
            "trueup.toml:1: [adapter.service] needs a guest that decides: add `[guests.service]` with `use = \
             \"builtin:service@1\"`",
            "trueup.toml:1: [adapter.service] needs to know this node: add `[adapter.node]` with `name = \
             \"node-a\"`",
        ],
    );
    refused(
        "[guests.service]\nuse = \"builtin:service@1\"\n",
        &[
            "trueup.toml: [source] is missing: add `[source]` with `manifests = \"manifests\"`, a folder of \
             Kubernetes YAML, or with `kubernetes = {}`, a cluster",
            "trueup.toml:1: [guests.service] needs a renderer: add `[guests.nftables]` with `use = \
             \"builtin:nftables@1\"` and `grants = { nftables = { write = [\"ip trueup\", \"ip6 trueup\"] } \
             }`",
            "trueup.toml:1: [guests.service] needs to know this node: add `[adapter.node]` with `name = \
             \"node-a\"`",
        ],
    );
    refused(
        "[source]\nmanifests = \"m\"\n[guests.nodesync]\nuse = \"builtin:nodesync@1\"\n",
        &[
            "trueup.toml:3: [guests.nodesync] needs to know this node: add `[adapter.node]` with `name = \
             \"node-a\"`",
        ],
    );
    refused(
        "[source]\nmanifests = \"m\"\n[adapter.node]\nname = \"node-a\"\n",
        &[
            "trueup.toml:3: [adapter.node] needs a guest: add `[guests.nodesync]` with `use = \
             \"builtin:nodesync@1\"` and `grants = { etcd = { read = [\"/vnf-agent/contiv-ksr/\"], write = \
             [\"/vnf-agent/contiv-ksr/\"] } }`, or `[guests.service]` with `use = \"builtin:service@1\"`",
        ],
    );
    refused(
        "[source]\nmanifests = \"m\"\n[adapter.node]\nname = \"node-a\"\n[adapter.service]\n",
        &[
            "trueup.toml:5: [adapter.service] needs a guest that decides: add `[guests.service]` with `use = \
             \"builtin:service@1\"`",
        ],
    );
    // Which guests may exist depends on whether any section asks for renderers.
    let error = load("[guests.nftables]\nuse = \"builtin:nftables@1\"\n", &[]).unwrap_err();
    let lines: Vec<&str> = error.lines().collect();
    assert!(lines[0].starts_with("trueup.toml: nothing to do: "), "{error}");
    assert!(
        lines[1].starts_with("trueup.toml:1: unknown guest `nftables` in [guests] (known: ipam, lbaas"),
        "{error}"
    );
}

#[test]
fn in_a_cluster_slices_and_pods_are_needed_too() {
    let kinds = needed(&in_a_cluster(SERVES, ""));
    assert_eq!(kinds, [Kind::Service, Kind::Node, Kind::EndpointSlice, Kind::Pod]);
    refused(
        &in_a_cluster(SERVES, "watch = [\"nodes\"]"),
        &[
            "trueup.toml:3: source.kubernetes.watch: must hold \"endpointslices\", which the Services of a \
             node are made from",
            "trueup.toml:3: source.kubernetes.watch: must hold \"pods\", which the Services of a node are \
             made from",
            "trueup.toml:3: source.kubernetes.watch: must hold \"services\", which the Services of a node \
             are made from",
        ],
    );
}

#[test]
fn a_host_of_a_node_waits_for_no_other() {
    let of_node = SERVES.replace("manifests = \"manifests\"", "kubernetes = {}");
    assert!(load(&of_node, &[]).unwrap().election.is_none());
    let error = load(&format!("{of_node}[election]\n"), &[]).unwrap_err();
    let said = "trueup.toml:11: election: is about load balancers and network endpoint groups: a host acts for its node whatever \
                other hosts run";
    assert_eq!(error, said);
    let of_negs = "[guests.neg]\nuse = \"builtin:neg@1\"\n[adapter.neg]\ncluster = \"c1\"\nsubnet = \"default\"\n[backend.neg]\n\
                   kind = \"simulated\"\n";
    let both = load(&format!("{of_node}{of_negs}"), &[]).unwrap();
    assert!(both.election.is_some() && both.worlds.len() == 2);
    assert_eq!(both.world::<Neg>().unwrap().source, node(&both).source);
}

#[test]
fn the_example_of_services_fits_together() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/services");
    let config = Config::load_with(&folder, &BTreeMap::new(), &WORLDS).unwrap();
    assert_eq!(renderers(&config), ["nftables", "nat44"]);
    let this = node(&config);
    let agent = &service(&config).renderers[1].1;
    for key in ["node_ip", "host_ips", "pod_subnet_this_node", "main_interface"] {
        let wired = json!(this.context)[key].clone();
        let wired = if key == "node_ip" {
            json!(this.addresses[0].text)
        } else {
            wired
        };
        assert_eq!(agent.settings[key], wired, "the agent and its node agree on `{key}`");
    }
    let snapshot = trueup_sources::manifests::load(&folder.join("manifests")).unwrap();
    assert_eq!(snapshot.problems, []);
    assert!(
        snapshot.objects.counts().iter().all(|(_, count)| *count > 0),
        "of each kind"
    );
}

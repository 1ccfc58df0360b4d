//! `[adapter.node]` and `[adapter.service]`: this node, and how its Services are rendered. They must fit together with
//! `[source]`, `[guests.nodesync]`, `[guests.service]` and the renderers' `[guests.NAME]`; otherwise an error names the
//! lines to add.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use parking_lot::Mutex;
use serde::Serialize;
use trueup_base::text::offer;
use trueup_sources::{Kind, Source};

use super::guest::Guest;
use super::interfaces::Pattern;
use super::section::{LABEL, Section, is_filled, is_label};
use super::world::{self, About, Reading, Sections, Tables, World};

/// The setting of the guest `nodesync` that names this node. The adapter sets it.
pub const NODE_NAME: &str = "node_name";

/// The text for an operator who has none of these sections.
const ADAPTER: &str = "`[adapter.node]` with `name = \"node-a\"`";
const NODESYNC: &str = "`[guests.nodesync]` with `use = \"builtin:nodesync@1\"` and `grants = { etcd = { read = \
     [\"/vnf-agent/contiv-ksr/\"], write = [\"/vnf-agent/contiv-ksr/\"] } }`";
const SERVICE: &str = "`[guests.service]` with `use = \"builtin:service@1\"`";
const RENDERER: &str = "`[guests.nftables]` with `use = \"builtin:nftables@1\"` and `grants = { nftables = { write = \
     [\"ip trueup\", \"ip6 trueup\"] } }`";

/// Everything about this node's number and the Services on it.
#[derive(Debug, Clone)]
pub struct ThisNode {
    /// `[source]`: the source of Nodes, Pods, Services and EndpointSlices.
    pub source: Source,
    /// `name`: the name in Kubernetes.
    pub name: String,
    /// `addresses`: this node's addresses on the data plane, published for the other nodes. Default: none, and the host
    /// publishes none.
    pub addresses: Vec<Address>,
    /// How this node is wired: the other keys of `[adapter.node]`, each empty if it is absent.
    pub context: NodeContext,
    /// `[guests.nodesync]`: the guest that numbers this node. `None`: the node is not numbered.
    pub nodesync: Option<Guest>,
    /// `[guests.service]`: the guest that combines Services with their endpoints. `None`: Services are not rendered.
    pub service: Option<OnService>,
}

/// How a node is wired. Each text is empty if its key is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NodeContext {
    /// The node's address for other nodes.
    pub node_ip: String,
    /// The addresses of the host's own network.
    pub host_ips: Vec<String>,
    /// The network of this node's pods.
    pub pod_subnet_this_node: String,
    /// The network of all nodes' pods.
    pub pod_subnet_all_nodes: String,
    /// The interface to the other nodes.
    pub main_interface: String,
    /// The host's other interfaces.
    pub other_interfaces: Vec<String>,
    /// The bridge's interface of the overlay.
    pub vxlan_bvi_interface: String,
    /// The interface to the host's network stack.
    pub host_interconnect_interface: String,
}

/// `[guests.service]`, `[adapter.service]` and the renderers.
#[derive(Debug, Clone)]
pub struct OnService {
    /// The guest that decides.
    pub guest: Guest,
    /// `renderers`: the renderers by name, in the order of their calls. Default: every `[guests.NAME]` that is not one
    /// of the other guests, by name.
    pub renderers: Vec<(&'static str, Guest)>,
    /// `pod_interfaces` or `pod_interfaces_file`: the names of the pods' interfaces.
    pub interfaces: InterfacesFrom,
    /// `resync_ms`: milliseconds until the next full resync without a change. Default: 3,600,000, an hour, as in
    /// kube-proxy's nftables mode.
    pub resync_ms: u64,
}

/// Where the names of pods' interfaces come from.
#[derive(Debug, Clone, PartialEq)]
pub enum InterfacesFrom {
    /// They are unknown.
    Nowhere,
    /// `pod_interfaces`: a pattern derives them from the pod.
    Pattern(Pattern),
    /// `pod_interfaces_file`: a YAML file, read at the start and with each new configuration.
    File(PathBuf),
}

/// An address of this node with the prefix length of its network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The original text, such as `192.168.16.1/24`.
    pub text: String,
    /// Its family: IPv6, or IPv4.
    pub is_ipv6: bool,
}

impl Address {
    /// Reads `ADDRESS/LENGTH`. `None` if the text is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        // As `nodesync` reads it: the length has no sign or leading zero, and an IPv4 address is not in IPv6 form.
        let is_decimal =
            length == "0" || (!length.starts_with('0') && length.bytes().all(|byte| byte.is_ascii_digit()));
        let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok().filter(|_| is_decimal)?);
        let (is_ipv6, most) = match address {
            IpAddr::V4(_) => (false, 32),
            IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => return None,
            IpAddr::V6(_) => (true, 128),
        };
        (length <= most).then(|| Self {
            text: text.to_owned(),
            is_ipv6,
        })
    }
}

/// The sections about this node.
pub const NODE: &dyn World = &OfThisNode;

struct OfThisNode;

impl World for OfThisNode {
    fn about(&self) -> About {
        About {
            name: "node",
            subject: "the number of a node, or its Services,",
            made: "the Services of a node",
            needs: &[Kind::Service, Kind::Node, Kind::EndpointSlice, Kind::Pod],
            acts_for_cluster: false,
            guests: vec!["nodesync", "service"],
            adapter: ADAPTER,
        }
    }

    fn sections<'d>(&'static self, tables: &mut Tables<'d>) -> Sections<'d> {
        let nodesync = tables.guests.section("nodesync");
        let service = tables.guests.section("service");
        let node = tables.adapters.section("node");
        let mut adapter = tables.adapters.section("service");
        say_what_is_missing(&nodesync, &service, &node, &adapter);
        nodesync.refuse_below("settings", NODE_NAME, "is `name` of [adapter.node]: leave it out");
        let numbers = nodesync.is_present;
        let serves = service.is_present;
        let is_any_present = numbers || serves || node.is_present || adapter.is_present;
        let renderers = find_renderers(tables, &mut adapter, serves);
        let (name, addresses, context) = read_node(node);
        let pods_of = name.clone();
        let read = move |reading: &Reading<'d>| {
            let nodesync = Guest::read(nodesync);
            let service = read_service(service, adapter, renderers);
            Some(ThisNode {
                source: reading.source.clone()?,
                name: name?,
                addresses,
                context,
                nodesync: if numbers { Some(nodesync?) } else { None },
                service: if serves { Some(service?) } else { None },
            })
        };
        Sections {
            pods_of,
            ..Sections::new(is_any_present, read)
        }
    }
}

fn say_what_is_missing(nodesync: &Section<'_>, service: &Section<'_>, node: &Section<'_>, adapter: &Section<'_>) {
    if !node.is_present {
        if let Some(section) = [nodesync, service, adapter].iter().find(|section| section.is_present) {
            let text = format_args!("[{}] needs to know this node: add {ADAPTER}", section.name);
            section.wrong_without(&node.name, text);
        }
    } else if !nodesync.is_present && !service.is_present && !adapter.is_present {
        let text = format_args!("[adapter.node] needs a guest: add {NODESYNC}, or {SERVICE}");
        node.wrong(text);
    }
    if adapter.is_present && !service.is_present {
        let text = format_args!("[adapter.service] needs a guest that decides: add {SERVICE}");
        adapter.wrong_without(&service.name, text);
    }
}

impl world::Settings for ThisNode {
    fn guests(&self) -> Vec<(&'static str, &Guest)> {
        let mut guests: Vec<_> = self.nodesync.iter().map(|guest| ("nodesync", guest)).collect();
        if let Some(service) = &self.service {
            guests.push(("service", &service.guest));
            guests.extend(service.renderers.iter().map(|(name, guest)| (*name, guest)));
        }
        guests
    }

    fn source(&self) -> Option<&Source> {
        Some(&self.source)
    }

    fn approve(&mut self) {
        if let Some(service) = &mut self.service {
            service.guest.approve_above.percent = 100;
        }
    }
}

/// The sections of renderers, removed from `[guests]` before its other keys are checked.
struct Renderers<'d> {
    /// Whether the adapter lists them.
    is_list: bool,
    sections: Vec<(&'static str, Section<'d>)>,
    /// Sections that the list does not contain.
    unlisted: Vec<&'static str>,
}

/// The renderers in `renderers` of `[adapter.service]`, or all of them without that list. Empty without a service
/// processor.
fn find_renderers<'d>(tables: &mut Tables<'d>, adapter: &mut Section<'d>, serves: bool) -> Renderers<'d> {
    let guests = &mut tables.guests;
    let others = &tables.guests_of_worlds;
    let taken = others.join(", ");
    let must = format!("name a renderer's [guests.NAME]: none of {taken}, and NAME must {LABEL}");
    let name = |text: &str| (is_label(text) && !others.contains(&text)).then(|| interned(text));
    let listed = adapter.list("renderers", &must, name);
    let found: Vec<&'static str> = guests.names_in_file().filter_map(name).collect();
    let (names, unlisted) = match &listed {
        Some(listed) => {
            let unlisted = found.iter().copied().filter(|name| !listed.contains(name)).collect();
            (listed.clone(), unlisted)
        }
        None if serves => (found, Vec::new()),
        None => Default::default(),
    };
    let sections: Vec<_> = names.into_iter().map(|name| (name, guests.section(name))).collect();
    if sections.is_empty() || sections.iter().any(|(_, section)| !section.is_present) {
        // Only the list is wrong, so do not report the sections that it misses.
        guests.known.extend(&unlisted);
    }
    Renderers {
        is_list: listed.is_some(),
        sections,
        unlisted,
    }
}

fn read_service<'d>(service: Section<'d>, mut adapter: Section<'d>, renderers: Renderers<'d>) -> Option<OnService> {
    let is_present = service.is_present;
    let Renderers {
        is_list,
        sections,
        unlisted,
    } = renderers;
    if is_present && sections.is_empty() {
        let text = format_args!("[guests.service] needs a renderer: add {RENDERER}");
        if is_list {
            adapter.wrong_key("renderers", "was [], must name a renderer; or leave it out");
        } else {
            service.wrong(text);
        }
    }
    let guest = Guest::read(service);
    let mut all = Vec::new();
    for (name, section) in sections {
        if !section.is_present {
            let meant = offer(name, unlisted.iter().copied());
            let text = format_args!("names `{name}`: add `[guests.{name}]`{meant}");
            adapter.wrong_key("renderers", text);
        }
        all.push(Guest::read(section).map(|guest| (name, guest)));
    }
    let interfaces = read_interfaces(&mut adapter);
    // Up to a week. With many Services and less than a minute, the host would do nothing but resyncs.
    let resync_ms = adapter.whole("resync_ms", 3_600_000, 60_000..=604_800_000);
    if !is_present {
        return None;
    }
    Some(OnService {
        guest: guest?,
        renderers: all.into_iter().collect::<Option<_>>()?,
        interfaces: interfaces?,
        resync_ms,
    })
}

fn read_interfaces(adapter: &mut Section<'_>) -> Option<InterfacesFrom> {
    let file = adapter.path("pod_interfaces_file");
    let Some(given) = adapter.given("pod_interfaces") else {
        return Some(file.map_or(InterfacesFrom::Nowhere, InterfacesFrom::File));
    };
    let Some(text) = given.text() else {
        adapter.wrong_value(&given, "must be text");
        return None;
    };
    // The error itself contains the value.
    let pattern = Pattern::parse(text).map_err(|why| adapter.wrong_given(&given, why));
    let pattern = pattern.ok()?;
    if file.is_some() {
        let text = "goes without `pod_interfaces_file`: leave one of them out";
        adapter.wrong_key("pod_interfaces", text);
    }
    Some(InterfacesFrom::Pattern(pattern))
}

fn read_node(mut section: Section<'_>) -> (Option<String>, Vec<Address>, NodeContext) {
    const ADDRESS: &str = "be an address, such as `192.168.16.1`";
    const NETWORK: &str = "be a network, such as `10.1.0.0/16`";
    const INTERFACE: &str = "be the name of an interface";
    let must = "be this node's name, as in Kubernetes";
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    let is_network = |text: &str| Address::parse(text).is_some();
    let name = section.needs("name", must, |given| given.fitting(is_filled));
    let must = "be an address with its network's prefix length, such as `192.168.16.1/24`";
    let addresses = section.list("addresses", must, Address::parse).unwrap_or_default();
    let host_ips = section.texts("host_ips", ADDRESS, is_address);
    let other_interfaces = section.texts("other_interfaces", INTERFACE, is_filled);
    let mut text = |key, must: &str, fits: fn(&str) -> bool| {
        // An empty text means absent.
        let text = section.text(key, must, |text| text.is_empty() || fits(text));
        text.unwrap_or_default()
    };
    let context = NodeContext {
        node_ip: text("node_ip", ADDRESS, is_address),
        host_ips,
        pod_subnet_this_node: text("pod_subnet_this_node", NETWORK, is_network),
        pod_subnet_all_nodes: text("pod_subnet_all_nodes", NETWORK, is_network),
        main_interface: text("main_interface", INTERFACE, is_filled),
        other_interfaces,
        vxlan_bvi_interface: text("vxlan_bvi_interface", INTERFACE, is_filled),
        host_interconnect_interface: text("host_interconnect_interface", INTERFACE, is_filled),
    };
    (name, addresses, context)
}

/// The same text for the lifetime of the process: state refers to guests by name, and reloaded configurations repeat
/// the same few names.
fn interned(text: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock();
    names.get(text).copied().unwrap_or_else(|| {
        let name: &'static str = text.to_owned().leak();
        names.insert(name);
        name
    })
}

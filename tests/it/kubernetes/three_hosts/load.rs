//! Services that change all the time, and the objects that must exist once they stop changing.
//!
//! - *busy* Services change whenever it is their turn, between one port and two fixed ones; at the end they have two.
//! - *calm* Services get another address, go away or come back, mostly once their last change is in sync. Some change
//!   earlier: a killed host may then have created objects without a tag that are no longer desired.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use support::api_server::ApiServer;

/// Busy Services: few, since each keeps hosts at work all the time.
const BUSY: u16 = 4;

/// Calm Services.
const CALM: u16 = 16;

/// The pause between two changes: 40 a second.
const PAUSE: Duration = Duration::from_millis(25);

/// The Nodes; each is a server behind each port.
const NODES: [&str; 2] = ["192.0.2.11", "192.0.2.12"];

/// The desired state of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wish {
    address: String,
    /// Name, port and node port.
    ports: Vec<(&'static str, u16, u16)>,
}

/// Changes Services, until it is stopped.
pub(super) struct Load<'s> {
    server: &'s ApiServer,
    random: ChaCha8Rng,
    /// `None` if it must go away.
    wishes: BTreeMap<String, Option<Wish>>,
    /// The number of addresses used so far.
    addresses: u16,
    pub(super) changes: u32,
    pub(super) deletions: u32,
}

impl<'s> Load<'s> {
    /// Makes the Nodes and the Services.
    pub(super) fn new(server: &'s ApiServer, seed: u64) -> Self {
        for (number, address) in NODES.iter().enumerate() {
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name(number)},
                "status": {
                    "addresses": [{"type": "InternalIP", "address": address}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            });
            server.apply(node).unwrap();
        }
        let mut load = Self {
            server,
            random: ChaCha8Rng::seed_from_u64(seed),
            wishes: BTreeMap::new(),
            addresses: 0,
            changes: 0,
            deletions: 0,
        };
        let all = (0..BUSY).map(|number| (busy(number), number));
        for (name, number) in all.chain((0..CALM).map(|number| (calm(number), number))) {
            let wish = load.wish(number);
            load.want(&name, wish);
        }
        load
    }

    /// Runs until `stop` is set; then sets up the final state.
    pub(super) fn run(mut self, stop: &AtomicBool) -> Self {
        while !stop.load(Ordering::SeqCst) {
            self.change();
            thread::sleep(PAUSE);
        }
        for number in 0..BUSY {
            let mut wish = self.wishes[&busy(number)].clone().unwrap();
            wish.ports = ports(number).to_vec();
            self.want(&busy(number), wish);
        }
        self
    }

    fn change(&mut self) {
        self.changes += 1;
        let number = self.random.random_range(0..CALM);
        let name = calm(number);
        let is_impatient = self.wishes[&name].is_some() && self.random.random_range(0..8) == 0;
        // With slow hosts, busy Services get more turns.
        if is_impatient || self.is_true(&name) {
            if self.wishes[&name].is_some() && self.random.random_range(0..3) == 0 {
                self.deletions += 1;
                self.server.delete("services", "default", &name).unwrap();
                self.wishes.insert(name, None);
            } else {
                let wish = self.wish(number);
                self.want(&name, wish);
            }
        } else {
            let number = number % BUSY;
            let mut wish = self.wishes[&busy(number)].clone().unwrap();
            let ports = ports(number);
            wish.ports = ports[..if wish.ports.len() == 1 { 2 } else { 1 }].to_vec();
            self.want(&busy(number), wish);
        }
    }

    /// Deletes the calm Services, one after another.
    pub(super) fn delete_calm(&mut self) {
        for name in (0..CALM).map(calm) {
            self.server.delete("services", "default", &name).unwrap();
            self.wishes.insert(name, None);
            thread::sleep(4 * PAUSE);
        }
    }

    /// One port at a new address.
    fn wish(&mut self, number: u16) -> Wish {
        self.addresses += 1;
        let [high, low] = self.addresses.to_be_bytes();
        Wish {
            address: format!("198.18.{high}.{low}"),
            ports: ports(number)[..1].to_vec(),
        }
    }

    fn want(&mut self, name: &str, wish: Wish) {
        let ports: Vec<Value> = wish
            .ports
            .iter()
            .map(|(port, outside, inside)| json!({"name": port, "port": outside, "nodePort": inside + shift(name)}))
            .collect();
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "default", "annotations": {"trueup.dev/addresses": wish.address}},
            "spec": {"type": "LoadBalancer", "ports": ports},
        });
        self.server.apply(service).unwrap();
        self.wishes.insert(name.to_owned(), Some(wish));
    }

    /// Whether the API server shows the desired state of a Service.
    fn is_true(&self, name: &str) -> bool {
        let service = self.server.get("services", "default", name);
        match (&self.wishes[name], service) {
            (None, service) => service.is_none(),
            (Some(_), None) => false,
            (Some(wish), Some(service)) => {
                let ports: Vec<Value> = wish
                    .ports
                    .iter()
                    .map(|(_, port, _)| json!({"port": port, "protocol": "TCP"}))
                    .collect();
                let ingress = &service["status"]["loadBalancer"]["ingress"];
                ingress.as_array().is_some_and(|entries| entries.len() == 1)
                    && ingress[0]["ip"] == wish.address.as_str()
                    && ingress[0]["ports"] == json!(ports)
            }
        }
    }

    /// The Services that are not in sync.
    pub(super) fn untrue(&self) -> Vec<&str> {
        let names = self.wishes.keys().map(String::as_str);
        names.filter(|name| !self.is_true(name)).collect()
    }

    /// Every object that must exist, in the form of `described`.
    pub(super) fn objects(&self) -> Vec<String> {
        let mut objects = Vec::new();
        for (name, wish) in &self.wishes {
            let service = self.server.get("services", "default", name);
            let (Some(wish), Some(service)) = (wish, service) else {
                continue;
            };
            let tag = format!(
                "[\"anxccm-svc-uid={}\"] 3",
                service["metadata"]["uid"].as_str().unwrap()
            );
            for (port, outside, inside) in &wish.ports {
                let parent = format!("{port}.{name}.default.quickstart");
                let address = &wish.address;
                objects.push(format!(
                    "backend {parent} on lb-1 tcp \"adv_check\": \"tcp-check\" {tag}"
                ));
                objects.push(format!("frontend {parent} on lb-1 tcp to {parent} {tag}"));
                objects.push(format!("bind v4.{parent} {address} {outside} of {parent} {tag}"));
                for (number, node) in NODES.iter().enumerate() {
                    let (server, inside) = (node_name(number), inside + shift(name));
                    objects.push(format!(
                        "server {server}.{parent} {node} {inside} enabled in {parent} {tag}"
                    ));
                }
            }
        }
        objects.sort();
        objects
    }
}

fn node_name(number: usize) -> String {
    format!("node-{number}")
}

fn busy(number: u16) -> String {
    format!("busy-{number}")
}

fn calm(number: u16) -> String {
    format!("calm-{number}")
}

/// Both ports of a Service of this number.
fn ports(number: u16) -> [(&'static str, u16, u16); 2] {
    [("http", 80, 30_000 + number), ("https", 443, 31_000 + number)]
}

/// Gives Services different node ports.
fn shift(name: &str) -> u16 {
    if name.starts_with("calm") { 100 } else { 0 }
}

//! The test kills the host of a node (`kill -9`) repeatedly, and edits Services while it is down: afterwards the node
//! renders exactly the manifests.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::manifests::Manifests;
use super::site::{Config, Host, wait_until};
use super::store::Etcd;
use support::{kill_moments, trueup};

/// How often to kill the host, unless the variable `KILL_TEST_MOMENTS` sets another number.
const MOMENTS: u32 = 12;

/// The seed, unless the variable `KILL_TEST_SEED` sets another.
const SEED: u64 = 20_261_122;

/// The latest time of a kill after the start: about as long as its work takes.
const WORK_MS: u64 = 800;

const NODE_ADDRESS: &str = "172.30.1.1";

/// The node ports that the node's agent offers at the node's address, by Service.
fn offered(etcd: &Etcd) -> BTreeMap<String, Vec<u64>> {
    let folder = "/vnf-agent/node-a/config/vpp/nat/v2/dnat44/shop/";
    let ports = |value: String| {
        let value: Value = serde_json::from_str(&value).unwrap();
        let mappings = value["st_mappings"].as_array().cloned().unwrap_or_default();
        let at_node = mappings.iter().filter(|mapping| mapping["external_ip"] == NODE_ADDRESS);
        at_node
            .map(|mapping| mapping["external_port"].as_u64().unwrap())
            .collect()
    };
    let entries = etcd.under(folder).into_iter();
    entries
        .map(|(key, value)| (key[folder.len()..].to_owned(), ports(value)))
        .collect()
}

/// One change: a Service comes, goes, or gets another node port.
fn edit(services: &mut BTreeMap<String, Vec<u64>>, manifests: &Manifests, random: &mut ChaCha8Rng) {
    let number = random.random_range(1..6_u8);
    let name = format!("s{number}");
    if random.random_range(0..3) == 0 && services.len() > 1 && services.remove(&name).is_some() {
        manifests.remove(&format!("service-{name}.yaml"));
        manifests.remove(&format!("endpoints-{name}.yaml"));
        return;
    }
    let port = 30_000 + 100 * u16::from(number) + random.random_range(0..100);
    manifests.put_service(&name, number, port);
    manifests.put_endpoints(&name, &[&format!("10.1.1.{}", 10 + number)]);
    services.insert(name, vec![port.into()]);
}

#[test]
fn a_killed_host_renders_what_was_edited_meanwhile() {
    let seed = std::env::var("KILL_TEST_SEED").map_or(SEED, |seed| seed.parse().expect("KILL_TEST_SEED is a number"));
    // Printed for a failed test.
    println!("KILL_TEST_SEED={seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let etcd = Etcd::start();
    let manifests = Manifests::new();
    manifests.put_node("node-a", NODE_ADDRESS);
    let config = Config::new("node-a", &manifests).against(&etcd.url()).numbered();
    let mut host = Host::new(config.publishing(&["192.168.16.1/24"]).serving(&["nftables", "nat44"]));
    let (mut services, mut halves) = (BTreeMap::new(), 0);
    for _ in 0..kill_moments(MOMENTS) {
        for _ in 0..random.random_range(1..6) {
            edit(&mut services, &manifests, &mut random);
        }
        host.start();
        std::thread::sleep(Duration::from_millis(random.random_range(0..WORK_MS)));
        host.kill();
        halves += u32::from(offered(&etcd) != services);
        edit(&mut services, &manifests, &mut random);
        // Now and then, kill the next host too.
        if random.random_range(0..3) == 0 {
            continue;
        }
        host.start();
        wait_until("what is offered to be what is wished for", || {
            offered(&etcd) == services
        });
        host.kill();
    }
    assert!(halves > 0, "no kill came before the work was done");
    host.start();
    wait_until("what is offered to be what is wished for", || {
        offered(&etcd) == services
    });
    host.wait_until_up();
    host.terminate().exits(0);
    let words = [std::ffi::OsString::from("replay")].into_iter();
    trueup(words.chain(host.site.journals().into_iter().map(Into::into))).exits(0);
}

//! Whole calls against a simulated world, and against a plain model of the rules.

#[path = "../../../nodesync/src/tests/cases.rs"]
pub(crate) mod cases;
mod model;
mod pods;
mod properties;
mod reading;
mod snapshots;
mod storing;

use crate::bindings::exports::trueup::ipam::datastore::{Assignment, Error, IpamKey};
use crate::bindings::trueup::checkpoint::store::Error as StoreError;
use crate::datastore::Datastore;
use crate::settings::Settings;
use crate::simulated::Simulation;

/// The key of the pod's first interface.
fn key(container_id: &str) -> IpamKey {
    IpamKey {
        network_name: "net".to_owned(),
        container_id: container_id.to_owned(),
        if_name: "eth0".to_owned(),
    }
}

/// A new instance with these settings as JSON.
fn instance(world: &mut Simulation, config: &str) -> Datastore {
    let mut datastore = Datastore::new(Settings::read(config).unwrap());
    datastore.begin(world);
    datastore
}

/// The same with `eni-1`, device 1, and these addresses of it.
fn node(world: &mut Simulation, config: &str, addresses: &[&str]) -> Datastore {
    let mut datastore = instance(world, config);
    datastore.add_eni(world, "eni-1", 1, false, false).unwrap();
    for address in addresses {
        datastore.add_address(world, "eni-1", address).unwrap();
    }
    datastore
}

fn assigned(ip: &str, device_number: i32) -> Result<Assignment, Error> {
    Ok(Assignment {
        ip: ip.to_owned(),
        device_number,
    })
}

fn disk_full() -> StoreError {
    StoreError::Unavailable("disk full".to_owned())
}

fn not_stored<T>(why: &str) -> Result<T, Error> {
    Err(Error::BackingStore(why.to_owned()))
}

/// A checkpoint of these: container, address.
fn checkpoint(allocations: &[(&str, &str)]) -> String {
    let elements: Vec<String> = allocations
        .iter()
        .map(|(container, ipv4)| {
            format!(r#"{{"networkName":"net","containerID":"{container}","ifName":"eth0","ipv4":"{ipv4}"}}"#)
        })
        .collect();
    format!(
        r#"{{"version":"vpc-cni-ipam/1","allocations":[{}]}}"#,
        elements.join(",")
    )
}

/// The entry of one pod's change.
fn entry(op: &str, container: &str, ipv4: &str, at: u64) -> String {
    format!(
        r#"{{"op":"{op}","networkName":"net","containerID":"{container}","ifName":"eth0","ipv4":"{ipv4}","at":{at}}}"#
    )
}

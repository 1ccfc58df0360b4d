//! The whole state of an instance as text, for the next build of this guest.
//!
//! Of the settings it holds only the node's name: if another node took the id over, two nodes would have it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use trueup_guest::address::Address;
use trueup_guest::network::Network;
use trueup_guest::snapshot::{self, misfit};
use trueup_guest::text;

use crate::addresses::{self, Addresses};
use crate::kube::Kube;
use crate::node_sync::Stored;
use crate::view::{Record, View};

/// The layout of the text.
const VERSION: u64 = 1;

/// The state that one instance hands to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The owner of the id.
    pub(crate) node_name: String,
    /// 0 before the first successful resync.
    pub(crate) id: u32,
    /// The other nodes.
    pub(crate) view: View,
    /// The published addresses; `None` if there are none.
    pub(crate) wanted: Option<Addresses>,
    /// The addresses that the database holds of this node.
    pub(crate) stored: Stored,
}

#[derive(Serialize, Deserialize)]
struct Text {
    version: u64,
    node_name: String,
    id: u32,
    /// id, name, addresses
    records: Vec<(u32, String, Vec<String>)>,
    /// name, management addresses, pod CIDR
    kube: Vec<(String, Vec<String>, Option<String>)>,
    wanted: Option<Vec<String>>,
    stored: Vec<String>,
    stored_is_known: bool,
}

/// The text for `lifecycle.snapshot`.
pub(crate) fn write(snapshot: &Snapshot) -> String {
    let record = |(id, record): (u32, &Record)| (id, record.name.clone(), addresses::write(&record.addresses));
    let kube = |(name, kube): (&str, &Kube)| {
        let addresses = kube.addresses.iter().map(Address::to_string).collect();
        (
            name.to_owned(),
            addresses,
            kube.pod_cidr.as_ref().map(Network::to_string),
        )
    };
    let text = Text {
        version: VERSION,
        node_name: snapshot.node_name.clone(),
        id: snapshot.id,
        records: snapshot.view.records().map(record).collect(),
        kube: snapshot.view.kube().map(kube).collect(),
        wanted: snapshot.wanted.as_ref().map(addresses::write),
        stored: addresses::write(&snapshot.stored.addresses),
        stored_is_known: snapshot.stored.is_known,
    };
    snapshot::write(&text)
}

/// Parses the text of [`write()`].
///
/// # Errors
/// The version that wrote the text, or what is wrong with it.
pub(crate) fn read(snapshot: &str) -> Result<Snapshot, String> {
    let text: Text = snapshot::read(snapshot, VERSION)?;
    text.read()
        .map_err(|address| misfit(&format!("{} is no address", text::quoted(&address)), VERSION))
}

impl Text {
    /// The error is the first invalid address.
    fn read(self) -> Result<Snapshot, String> {
        let mut view = View::default();
        for (id, name, addresses) in self.records {
            let addresses = networks(addresses)?;
            view.put_record(id, Record { name, addresses });
        }
        for (name, addresses, pod_cidr) in self.kube {
            let addresses: Result<BTreeSet<Address>, String> = addresses.into_iter().map(address).collect();
            let kube = Kube {
                addresses: addresses?,
                pod_cidr: pod_cidr.map(network).transpose()?,
            };
            view.put_kube(name, kube);
        }
        Ok(Snapshot {
            node_name: self.node_name,
            id: self.id,
            view,
            wanted: self.wanted.map(networks).transpose()?,
            stored: Stored {
                addresses: networks(self.stored)?,
                is_known: self.stored_is_known,
            },
        })
    }
}

fn address(text: String) -> Result<Address, String> {
    Address::parse(&text).ok_or(text)
}

fn network(text: String) -> Result<Network, String> {
    Network::parse(&text).ok_or(text)
}

fn networks(texts: Vec<String>) -> Result<Addresses, String> {
    texts.into_iter().map(network).collect()
}

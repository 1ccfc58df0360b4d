//! The whole state of an instance as text, for the next build of this guest.
//!
//! Of the settings it holds only the node's name: if another node took the id over, two nodes would have it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use trueup_guest::address::Address;
use trueup_guest::network::Network;
use trueup_guest::{Guest, Imports, snapshot};

use crate::node_sync::{NodeSync, Stored};
use crate::settings::Settings;
use crate::view::{Addresses, Kube, Record, View};
use crate::world::World;

/// The layout of the text.
const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
struct Snapshot {
    version: u64,
    node_name: String,
    id: u32,
    /// id, name, addresses
    records: Vec<(u32, String, Addresses)>,
    /// name, management addresses, pod CIDR
    kube: Vec<(String, BTreeSet<Address>, Option<Network>)>,
    wanted: Option<Addresses>,
    stored: Addresses,
    stored_is_known: bool,
}

impl Guest for NodeSync {
    fn init(config: &str) -> Result<Self, String> {
        Settings::read(config).map(Self::new)
    }

    fn snapshot(&self) -> String {
        let record = |(&id, record): (&u32, &Record)| (id, record.name.clone(), record.addresses.clone());
        let kube = |(name, kube): (&String, &Kube)| (name.clone(), kube.addresses.clone(), kube.pod_cidr);
        snapshot::write(&Snapshot {
            version: VERSION,
            node_name: self.settings.node_name.clone(),
            id: self.id,
            records: self.view.records.iter().map(record).collect(),
            kube: self.view.kube.iter().map(kube).collect(),
            wanted: self.wanted.clone(),
            stored: self.stored.addresses.clone(),
            stored_is_known: self.stored.is_known,
        })
    }

    fn restore(&mut self, snapshot: &str) -> Result<(), String> {
        self.restore(&mut Imports, snapshot)
    }
}

impl NodeSync {
    /// `lifecycle.restore`
    ///
    /// # Errors
    /// Why the text is no snapshot of this node; then nothing has changed.
    pub(crate) fn restore(&mut self, world: &mut impl World, snapshot: &str) -> Result<(), String> {
        let snapshot: Snapshot = snapshot::read(snapshot, VERSION)?;
        if snapshot.node_name != self.settings.node_name {
            return Err(format!(
                "snapshot: is of node `{}`, may be of node `{}`, whose id it would take",
                snapshot.node_name, self.settings.node_name
            ));
        }
        self.id = snapshot.id;
        self.view = View::default();
        for (id, name, addresses) in snapshot.records {
            self.view.put_record(id, Record { name, addresses });
        }
        for (name, addresses, pod_cidr) in snapshot.kube {
            self.view.kube.insert(name, Kube { addresses, pod_cidr });
        }
        self.wanted = snapshot.wanted;
        self.stored = Stored {
            addresses: snapshot.stored,
            is_known: snapshot.stored_is_known,
        };
        if self.id != 0 {
            self.show_nodes(world);
        }
        Ok(())
    }
}

//! One instance: this node's number, its view of the others, and its own published addresses. And its text.
//!
//! Each public function is an export of the world. It decides before it changes anything: an error leaves the view as
//! it was.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use trueup_guest::address::Address;
use trueup_guest::network::Network;
use trueup_guest::{Guest, Imports, etcd, snapshot};

use crate::bindings::exports::trueup::nodesync::node_sync::{Change, ClusterState, Error, VppNode};
use crate::bindings::trueup::kube::types::Node as KubeNode;
use crate::bindings::trueup::nodesync::types::{IpVersion, Node, NodeUpdate};
use crate::record;
use crate::settings::Settings;
use crate::view::{Addresses, Kube, Record, View, read_addresses};
use crate::world::World;

/// This node's own addresses; as JSON in the form of a snapshot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Own {
    /// Those from `publish-node-ips`; `None` before the first call.
    wanted: Option<Addresses>,
    /// The last that the database was known to hold.
    stored: Addresses,
    /// False after a failed write: the database may have stored it all the same.
    stored_is_known: bool,
}

impl Own {
    /// The wanted ones, else the stored ones.
    pub(crate) fn addresses(&self) -> &Addresses {
        self.wanted.as_ref().unwrap_or(&self.stored)
    }

    fn are_stored(&self, addresses: &Addresses) -> bool {
        self.stored_is_known && self.stored == *addresses
    }

    /// The database certainly holds these.
    fn know(&mut self, stored: Addresses) {
        self.stored = stored;
        self.stored_is_known = true;
    }
}

/// The state of an instance.
#[derive(Clone, Debug)]
pub(crate) struct NodeSync {
    pub(crate) settings: Settings,
    /// `node-sync.get-node-id`: 0 before the first successful resync; constant afterwards.
    pub(crate) id: u32,
    pub(crate) view: View,
    pub(crate) own: Own,
}

impl NodeSync {
    /// `node-sync.resync`
    ///
    /// # Errors
    /// `database`, `attempts-exhausted` or `id-taken`; then nothing has changed.
    pub(crate) fn resync(&mut self, world: &mut impl World, state: ClusterState) -> Result<(), Error> {
        let mut records = read_records(world, state.vpp_nodes);
        let (id, stored) = self.own_record(world, &records)?;
        records.retain(|&other, record| other != id && record.name != self.settings.node_name);
        self.view = View::default();
        for (id, record) in records {
            self.view.put_record(id, record);
        }
        for node in state.kube_nodes {
            self.put_kube(world, node);
        }
        self.id = id;
        self.own.know(stored);
        if !self.own.are_stored(self.own.addresses()) {
            self.write(world);
        }
        self.show_nodes(world);
        Ok(())
    }

    /// This node's id, and the addresses that the database holds of it.
    fn own_record(&self, world: &mut impl World, records: &BTreeMap<u32, Record>) -> Result<(u32, Addresses), Error> {
        let own = records
            .iter()
            .filter(|(_, record)| record.name == self.settings.node_name);
        let ids: Vec<u32> = own.map(|(&id, _)| id).collect();
        if ids.len() > 1 {
            let list = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            world.warn("several records bear the name of this node", &[("ids", &list)]);
        }
        let known = Some(self.id).filter(|&id| id != 0);
        let Some(id) = known.or(ids.first().copied()) else {
            return Ok((self.allocate(world)?, self.own.addresses().clone()));
        };
        match records.get(&id) {
            None => Ok((id, self.put_again(world, id)?)),
            Some(record) if record.name != self.settings.node_name => Err(Error::IdTaken(record.name.clone())),
            Some(record) => Ok((id, record.addresses.clone())),
        }
    }

    /// `node-sync.update`
    ///
    /// # Errors
    /// `not-synced`, `id-taken`, or `database` if this node's record could not be restored.
    pub(crate) fn update(&mut self, world: &mut impl World, change: Change) -> Result<Vec<NodeUpdate>, Error> {
        if self.id == 0 {
            return Err(Error::NotSynced);
        }
        let updates = match change {
            Change::KubeNodePut(node) => {
                let name = node.name.clone();
                self.updates(&[&name], |this| this.put_kube(world, node))
            }
            Change::KubeNodeDeleted(name) => self.updates(&[&name], |this| _ = this.view.kube.remove(&name)),
            Change::VppNodePut(node) => self.put_record(world, node)?,
            Change::VppNodeDeleted(id) if id == self.id => {
                let result = self.put_again(world, id);
                // The record is gone, or was stored without an answer: the next publish must not trust its knowledge.
                // Another node's record leaves no such doubt, and must not be overwritten.
                if matches!(result, Err(Error::Database(_))) {
                    self.own.stored_is_known = false;
                }
                self.own.know(result?);
                Vec::new()
            }
            Change::VppNodeDeleted(id) => self.remove_record(id),
        };
        self.show_nodes(world);
        Ok(updates)
    }

    /// Makes a change that affects only the nodes of these names; returns those that differ before and after.
    fn updates(&mut self, names: &[&str], change: impl FnOnce(&mut Self)) -> Vec<NodeUpdate> {
        let names: BTreeSet<&str> = names.iter().copied().collect();
        let before: Vec<Option<Node>> = names.iter().map(|name| self.node(name)).collect();
        change(self);
        let updates = names.iter().zip(before).map(|(name, prev)| NodeUpdate {
            node_name: (*name).to_owned(),
            prev,
            new: self.node(name),
        });
        updates.filter(|update| update.prev != update.new).collect()
    }

    fn put_kube(&mut self, world: &mut impl World, node: KubeNode) {
        if node.name.is_empty() {
            world.warn("a node in Kubernetes has no name and is ignored", &[]);
            return;
        }
        let kube = Kube::read(world, &node);
        self.view.kube.insert(node.name, kube);
    }

    fn put_record(&mut self, world: &mut impl World, node: VppNode) -> Result<Vec<NodeUpdate>, Error> {
        let Some((id, record)) = read_record(world, node) else {
            return Ok(Vec::new());
        };
        let is_own = record.name == self.settings.node_name;
        if id == self.id && !is_own {
            return Err(Error::IdTaken(record.name));
        }
        if id == self.id {
            self.own.know(record.addresses);
            return Ok(Vec::new());
        }
        if is_own {
            let message = "another record bears the name of this node and is ignored";
            world.warn(message, &[("id", &id.to_string())]);
            return Ok(self.remove_record(id));
        }
        let old = self.view.records.get(&id).map(|old| old.name.clone());
        let new = record.name.clone();
        let names = [old.as_deref().unwrap_or(&new), new.as_str()];
        Ok(self.updates(&names, |this| this.view.put_record(id, record)))
    }

    fn remove_record(&mut self, id: u32) -> Vec<NodeUpdate> {
        let Some(name) = self.view.records.get(&id).map(|old| old.name.clone()) else {
            return Vec::new();
        };
        self.updates(&[&name], |this| this.view.remove_record(id))
    }

    /// `node-sync.get-all-nodes`
    pub(crate) fn all_nodes(&self) -> Vec<Node> {
        if self.id == 0 {
            return Vec::new();
        }
        let names: BTreeSet<&str> = self.view.names().chain([self.settings.node_name.as_str()]).collect();
        names.into_iter().filter_map(|name| self.node(name)).collect()
    }

    /// A node as reported; `None` if it has no id.
    fn node(&self, name: &str) -> Option<Node> {
        if name == self.settings.node_name {
            return Some(self.view.node_with(self.id, name, self.own.addresses()));
        }
        self.view.node(name)
    }

    /// The key and the value of this node's record under this id.
    pub(crate) fn record(&self, id: u32) -> (String, String) {
        let value = record::write(id, &self.settings.node_name, self.own.addresses());
        (record::key(&self.settings.key_prefix, id), value)
    }

    /// `node-sync.publish-node-ips`
    ///
    /// # Errors
    /// `not-synced`, or `invalid-address` with the first that is invalid or of the other family.
    pub(crate) fn publish_node_ips(
        &mut self,
        world: &mut impl World,
        addresses: &[String],
        version: IpVersion,
    ) -> Result<bool, Error> {
        if self.id == 0 {
            return Err(Error::NotSynced);
        }
        let is_v4 = version == IpVersion::Ipv4;
        let others = self.own.addresses().iter().copied();
        let mut wanted: Addresses = others.filter(|other| other.address().is_v4() != is_v4).collect();
        for text in addresses {
            let address = Network::parse(text).filter(|network| network.address().is_v4() == is_v4);
            wanted.insert(address.ok_or_else(|| Error::InvalidAddress(text.clone()))?);
        }
        let is_stored = self.own.are_stored(&wanted);
        self.own.wanted = Some(wanted);
        Ok(!is_stored && self.write(world))
    }

    /// Writes this node's record. False if that failed: logs a warning, and the next call tries again.
    fn write(&mut self, world: &mut impl World) -> bool {
        let (key, value) = self.record(self.id);
        match world.put(&key, &value) {
            Ok(_) => {
                self.own.know(self.own.addresses().clone());
                true
            }
            Err(error) => {
                world.counter_add("nodesync_publish_failures_total", &[], 1);
                let message = "the addresses of this node are not stored; the next publish or resync tries again";
                world.warn(message, &[("key", &key), ("error", &etcd::words(&error))]);
                self.own.stored_is_known = false;
                false
            }
        }
    }

    pub(crate) fn show_nodes(&self, world: &mut impl World) {
        // Those with an id.
        world.gauge_count("nodesync_nodes", &[], self.view.names().len().saturating_add(1));
    }
}

/// The records by id. Of two records with one id the first by name counts.
fn read_records(world: &mut impl World, mut nodes: Vec<VppNode>) -> BTreeMap<u32, Record> {
    nodes.sort_by(|left, right| (left.id, &left.name).cmp(&(right.id, &right.name)));
    let mut records = BTreeMap::new();
    for node in nodes {
        let Some((id, record)) = read_record(world, node) else {
            continue;
        };
        if let Entry::Vacant(free) = records.entry(id) {
            free.insert(record);
        } else {
            let message = "two records have one id: the second name is ignored";
            world.warn(message, &[("id", &id.to_string()), ("node", &record.name)]);
        }
    }
    records
}

/// `None` if the record can't belong to any node.
fn read_record(world: &mut impl World, node: VppNode) -> Option<(u32, Record)> {
    if node.id == 0 || node.name.is_empty() {
        let message = "a record without id or name is ignored";
        world.warn(message, &[("id", &node.id.to_string()), ("node", &node.name)]);
        return None;
    }
    let addresses = read_addresses(world, &node.name, &node.ip_addresses);
    let name = node.name;
    Some((node.id, Record { name, addresses }))
}

/// The layout of the text.
const VERSION: u64 = 1;

/// The whole state, for the next build of this guest. Of the settings it holds only the node's name: if another node
/// took the id over, two nodes would have it.
#[derive(Serialize, Deserialize)]
struct Snapshot {
    version: u64,
    node_name: String,
    id: u32,
    /// id, name, addresses
    records: Vec<(u32, String, Addresses)>,
    /// name, management addresses, pod CIDR
    kube: Vec<(String, BTreeSet<Address>, Option<Network>)>,
    #[serde(flatten)]
    own: Own,
}

impl Guest for NodeSync {
    fn init(config: &str) -> Result<Self, String> {
        Ok(Self {
            settings: Settings::read(config)?,
            id: 0,
            view: View::default(),
            own: Own::default(),
        })
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
            own: self.own.clone(),
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
        self.own = snapshot.own;
        if self.id != 0 {
            self.show_nodes(world);
        }
        Ok(())
    }
}

//! The whole memory as text, for the next build of this guest.
//!
//! Without settings. `restore` accepts only what this guest could have written: otherwise two keys with one address
//! would live on.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use trueup_guest::{Guest, Imports, snapshot, text};

use crate::bindings::exports::trueup::ipam::datastore::IpamKey;
use crate::datastore::{Datastore, StoreState};
use crate::json::Members;
use crate::key::Key;
use crate::memory::{Eni, Holder, Memory};
use crate::settings::Settings;
use crate::stored::Rest;
use crate::world::World;

/// The version of the text.
const VERSION: &str = "trueup-ipam/1";

/// ENIs are written as the contract has them, and read as [`StoredEni`].
#[derive(Serialize, Deserialize)]
struct Snapshot<E> {
    version: String,
    enis: Vec<E>,
    /// Addresses that no ENI has.
    resting: Vec<Rest>,
    #[serde(default = "Vec::new")]
    held: Vec<Held>,
    store: StoreState,
}

#[derive(Deserialize)]
struct StoredEni {
    id: String,
    device_number: i32,
    #[serde(flatten)]
    eni: Eni,
    addresses: Vec<StoredAddress>,
}

#[derive(Deserialize)]
struct StoredAddress {
    address: Ipv4Addr,
    // Null, but not missing.
    #[serde(deserialize_with = "Option::deserialize")]
    key: Option<IpamKey>,
    #[serde(deserialize_with = "Option::deserialize")]
    unassigned_at_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Held {
    key: IpamKey,
    ipv4: Ipv4Addr,
}

impl Guest for Datastore {
    fn init(config: &str) -> Result<Self, String> {
        let mut datastore = Self::new(Settings::read(config)?);
        datastore.begin(&mut Imports);
        Ok(datastore)
    }

    fn snapshot(&self) -> String {
        let held = self.memory.held().map(|(ipv4, holder)| Held {
            key: holder.key.fields().clone(),
            ipv4,
        });
        let resting = self.memory.rests().iter();
        snapshot::write(&Snapshot {
            version: VERSION.to_owned(),
            enis: self.eni_infos().enis,
            resting: resting.filter_map(|(ipv4, at)| Some(Rest { ipv4, at: at? })).collect(),
            held: held.collect(),
            store: self.store_state.clone(),
        })
    }

    fn restore(&mut self, snapshot: &str) -> Result<(), String> {
        self.restore(&mut Imports, snapshot)
    }
}

impl Datastore {
    /// `lifecycle.restore`
    ///
    /// # Errors
    /// The version that wrote the text, or that it is no snapshot of this guest. Nothing has changed then.
    pub(crate) fn restore(&mut self, world: &mut impl World, text: &str) -> Result<(), String> {
        let no_snapshot = || "state: not a snapshot of this guest".to_owned();
        let version: Option<String> = Members::read(text).and_then(|members| members.get("version"));
        let version = version.ok_or_else(no_snapshot)?;
        if version != VERSION {
            let version = text::quoted(&version);
            return Err(format!(
                "state: unknown version {version}; this guest reads \"{VERSION}\""
            ));
        }
        let snapshot: Snapshot<StoredEni> = serde_json::from_str(text).map_err(|_| no_snapshot())?;
        self.memory = memory(snapshot.enis, snapshot.resting, snapshot.held).ok_or_else(no_snapshot)?;
        self.store_state = snapshot.store;
        self.show_all(world);
        Ok(())
    }
}

fn memory(enis: Vec<StoredEni>, resting: Vec<Rest>, held: Vec<Held>) -> Option<Memory> {
    let mut memory = Memory::default();
    for eni in enis {
        add_eni(&mut memory, eni)?;
    }
    for Held { key, ipv4 } in held {
        let is_free = memory.place(ipv4).is_none() && memory.holder(ipv4).is_none();
        allocate(&mut memory, is_free.then_some(ipv4)?, key)?;
    }
    let mut seen = BTreeSet::new();
    for Rest { ipv4, at } in resting {
        let is_new = memory.place(ipv4).is_none() && seen.insert(ipv4);
        memory.replace_unassigned_at(is_new.then_some(ipv4)?, Some(at));
    }
    Some(memory)
}

fn add_eni(memory: &mut Memory, stored: StoredEni) -> Option<()> {
    let is_new = memory.eni(&stored.id).is_none();
    memory.add_eni(is_new.then_some(&*stored.id)?, stored.device_number, stored.eni);
    let place = memory.eni(&stored.id)?.0.clone();
    for stored in stored.addresses {
        let is_new = memory.place(stored.address).is_none();
        memory.add_address(&place, is_new.then_some(stored.address)?);
        memory.replace_unassigned_at(stored.address, stored.unassigned_at_ms);
        if let Some(key) = stored.key {
            allocate(memory, stored.address, key)?;
        }
    }
    Some(())
}

/// `None` if the key is incomplete, or already has an address.
fn allocate(memory: &mut Memory, address: Ipv4Addr, key: IpamKey) -> Option<()> {
    let key = Key::new(key);
    let is_new = key.missing().is_none() && memory.address_of(&key).is_none();
    is_new.then(|| memory.allocate(address, Holder::new(key, address)))
}

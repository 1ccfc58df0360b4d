//! The whole memory as text, for the next build of this guest.
//!
//! Without settings. `restore` accepts only what this guest could have written: otherwise two keys with one address
//! would live on.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use trueup_guest::{Guest, Imports, snapshot, text};

use crate::bindings::exports::trueup::ipam::datastore::IpamKey;
use crate::datastore::Datastore;
use crate::eni::{Eni, EniKey, Traits};
use crate::json::Members;
use crate::key::Key;
use crate::memory::{Holder, Memory};
use crate::settings::Settings;
use crate::stored::Rest;
use crate::world::World;
use crate::writing::StoreState;

/// The version of the text.
const VERSION: &str = "trueup-ipam/1";

/// Texts and keys are borrowed for writing, owned after reading.
#[derive(Serialize, Deserialize)]
struct Snapshot<'s> {
    version: Cow<'s, str>,
    enis: Vec<StoredEni<'s>>,
    /// Addresses that no ENI has.
    resting: Vec<Rest>,
    #[serde(default)]
    held: Vec<Held<'s>>,
    store: Cow<'s, StoreState>,
}

#[derive(Serialize, Deserialize)]
struct StoredEni<'s> {
    id: Cow<'s, str>,
    device_number: i32,
    #[serde(flatten)]
    traits: Traits,
    addresses: Vec<StoredAddress<'s>>,
}

#[derive(Serialize, Deserialize)]
struct StoredAddress<'s> {
    address: Ipv4Addr,
    // Null, but not missing.
    #[serde(deserialize_with = "Option::deserialize")]
    key: Option<Cow<'s, IpamKey>>,
    #[serde(deserialize_with = "Option::deserialize")]
    unassigned_at_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Held<'s> {
    key: Cow<'s, IpamKey>,
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
            key: Cow::Borrowed(holder.key.fields()),
            ipv4,
        });
        snapshot::write(&Snapshot {
            version: Cow::Borrowed(VERSION),
            enis: self.memory.enis().map(|eni| stored(&self.memory, eni)).collect(),
            resting: self.memory.rests().iter().map(|(ipv4, at)| Rest { ipv4, at }).collect(),
            held: held.collect(),
            store: Cow::Borrowed(&self.store_state),
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
        let snapshot: Snapshot<'_> = serde_json::from_str(text).map_err(|_| no_snapshot())?;
        self.memory = memory(snapshot.enis, snapshot.resting, snapshot.held).ok_or_else(no_snapshot)?;
        self.store_state = snapshot.store.into_owned();
        self.show_all(world);
        Ok(())
    }
}

fn stored<'s>(memory: &'s Memory, (key, eni): (&'s EniKey, &'s Eni)) -> StoredEni<'s> {
    let address = |(address, unassigned_at_ms)| StoredAddress {
        address,
        key: memory.holder(address).map(|holder| Cow::Borrowed(holder.key.fields())),
        unassigned_at_ms,
    };
    StoredEni {
        id: Cow::Borrowed(&key.id),
        device_number: key.device_number,
        traits: eni.traits,
        addresses: eni.addresses().map(address).collect(),
    }
}

fn memory(enis: Vec<StoredEni<'_>>, resting: Vec<Rest>, held: Vec<Held<'_>>) -> Option<Memory> {
    let mut memory = Memory::default();
    for eni in enis {
        add_eni(&mut memory, eni)?;
    }
    for Held { key, ipv4 } in held {
        let is_free = memory.place(ipv4).is_none() && memory.holder(ipv4).is_none();
        allocate(&mut memory, is_free.then_some(ipv4)?, key.into_owned())?;
    }
    let mut seen = BTreeSet::new();
    for Rest { ipv4, at } in resting {
        let is_new = memory.place(ipv4).is_none() && seen.insert(ipv4);
        memory.replace_unassigned_at(is_new.then_some(ipv4)?, Some(at));
    }
    Some(memory)
}

fn add_eni(memory: &mut Memory, eni: StoredEni<'_>) -> Option<()> {
    let is_new = memory.eni_key(&eni.id).is_none();
    memory.add_eni(is_new.then_some(&*eni.id)?, eni.device_number, eni.traits);
    let place = memory.eni_key(&eni.id)?.clone();
    for StoredAddress {
        address,
        key,
        unassigned_at_ms,
    } in eni.addresses
    {
        let is_new = memory.place(address).is_none();
        memory.add_address(&place, is_new.then_some(address)?);
        memory.replace_unassigned_at(address, unassigned_at_ms);
        if let Some(key) = key {
            allocate(memory, address, key.into_owned())?;
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

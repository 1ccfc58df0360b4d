//! `read-backing-store`: restores earlier allocations from the container runtime or from the store.
//!
//! Decides for each allocation whether to take it over; the first rule that applies counts. Only phase 1 writes, as the
//! store's first writer.
//!
//! ```text
//! runtime | store -> claims in order -> dropped | known | assigned | held
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::Ipv4Addr;

use trueup_guest::Level;

use crate::bindings::exports::trueup::ipam::datastore::Error;
use crate::bindings::trueup::cri::sandboxes::Sandbox;
use crate::datastore::{Datastore, StoreState, log_pod};
use crate::key::Key;
use crate::memory::Holder;
use crate::stored::{self, Claim};
use crate::world::{self, World};

impl Datastore {
    /// `datastore.read-backing-store`
    ///
    /// # Errors
    /// As the contract states. The store counts as unread from then on.
    pub(crate) fn read_backing_store(&mut self, world: &mut impl World) -> Result<(), Error> {
        let answer = match self.settings.reads_store {
            false => self.read_runtime(world),
            true => self.read_store(world),
        };
        if let Err(why) = answer {
            world.log(Level::Error, "the reading failed", &[("error", &why)]);
            self.store_state.blocked = Some(why.clone());
            return Err(Error::BackingStore(why));
        }
        self.store_state.blocked = None;
        self.show(world);
        Ok(())
    }

    fn read_runtime(&mut self, world: &mut impl World) -> Result<(), String> {
        let sandboxes = world.list_running();
        let sandboxes = sandboxes.map_err(|why| format!("container runtime: {why}"))?;
        let now_ms = self.now_ms(world);
        let before = self.memory.clone();
        let mut reading = Reading {
            now_ms,
            ..Reading::default()
        };
        for Sandbox { id, ip, .. } in sandboxes {
            let key = Key::migrated(&id);
            self.take(world, &mut reading, Claim { key, ipv4: ip });
        }
        let answer = self.write_whole(world, now_ms);
        if answer.is_err() {
            self.memory = before;
        }
        answer
    }

    fn read_store(&mut self, world: &mut impl World) -> Result<(), String> {
        let saved = world.restore().map_err(|error| world::words(&error))?;
        let Some(saved) = saved else {
            self.store_state.in_step = false;
            self.store_state.entries = 0;
            return Ok(());
        };
        let stored = stored::read(&saved.data, &saved.entries)?;
        let now_ms = self.now_ms(world);
        self.take_times(&stored.unassigned_at_ms, now_ms);
        let mut reading = Reading {
            now_ms,
            ..Reading::default()
        };
        for claim in stored.claims {
            self.take(world, &mut reading, claim);
        }
        let all = self.memory.assigned_count() + self.memory.held_count();
        self.store_state = StoreState {
            in_step: !reading.has_dropped && reading.claimed.len() == all,
            entries: u64::try_from(saved.entries.len()).unwrap_or(u64::MAX),
            blocked: None,
        };
        Ok(())
    }

    /// The later of the stored time and memory's. If the clock went back since, the time is now.
    fn take_times(&mut self, stored: &BTreeMap<Ipv4Addr, u64>, now_ms: u64) {
        for (&address, &time) in stored {
            let time = time.min(now_ms);
            let in_eni = self.memory.place(address).is_some();
            let known = self.memory.unassigned_at_ms(address);
            let news = known.is_none_or(|known| known < time);
            if news && (in_eni || self.settings.cooling.rests(time, now_ms)) {
                self.memory.replace_unassigned_at(address, Some(time));
            }
        }
    }

    /// Takes a claim over, or drops it.
    fn take(&mut self, world: &mut impl World, reading: &mut Reading, Claim { key, ipv4 }: Claim) {
        let Ok(address) = ipv4.parse::<Ipv4Addr>() else {
            return reading.drop(world, &key, &ipv4, "it is no IPv4 address");
        };
        let in_eni = self.memory.place(address).is_some();
        match self.memory.holder(address) {
            None if !in_eni && !self.settings.holds_unknown => {
                return reading.drop(world, &key, &ipv4, "no ENI has the address");
            }
            Some(holder) if holder.key == key => {
                reading.claimed.insert(address);
                return;
            }
            Some(_) => return reading.drop(world, &key, &ipv4, "another pod has the address"),
            None => {}
        }
        if key.missing().is_some() {
            return self.drop_resting(world, reading, &key, address, "its key is not whole");
        }
        let other = self.memory.address_of(&key);
        if let Some(other) = other {
            if !in_eni || self.memory.place(other).is_some() {
                return self.drop_resting(world, reading, &key, address, "the pod has another address");
            }
            reading.claimed.remove(&other);
            self.memory.release(other);
            self.drop_resting(world, reading, &key, other, "the pod has an address that an ENI has");
        }
        self.memory.allocate(address, Holder::new(key.clone(), address));
        reading.claimed.insert(address);
        if !in_eni {
            let message = "the allocation is held until an ENI has its address";
            log_pod(world, Level::Info, message, &key, Some(&address), None);
        }
    }

    fn drop_resting(&mut self, world: &mut impl World, reading: &mut Reading, key: &Key, address: Ipv4Addr, why: &str) {
        self.memory.rest(address, self.settings.cooling, reading.now_ms);
        reading.drop(world, key, &address, why);
    }
}

/// One reading so far.
#[derive(Default)]
struct Reading {
    now_ms: u64,
    /// The allocations of memory that were claimed.
    claimed: BTreeSet<Ipv4Addr>,
    has_dropped: bool,
}

impl Reading {
    fn drop(&mut self, world: &mut impl World, key: &Key, ipv4: &dyn Display, why: &str) {
        self.has_dropped = true;
        let why = Some(("why", why));
        log_pod(world, Level::Warn, "an allocation is dropped", key, Some(ipv4), why);
    }
}

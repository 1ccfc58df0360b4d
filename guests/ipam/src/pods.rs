//! The exported functions about pods: which address a key gets, returns, or has.

use std::net::Ipv4Addr;

use trueup_guest::Level;

use crate::bindings::exports::trueup::ipam::datastore::{Assignment, Error, IpamKey, PodIpInfo};
use crate::datastore::{self, Datastore, NO_DEVICE, log_pod};
use crate::key::Key;
use crate::memory::Holder;
use crate::stored;
use crate::world::World;

impl Datastore {
    /// `datastore.assign-pod-ipv4-address`: assigns an address, stores it, and undoes everything if that fails. The key
    /// gives up an address that it holds: it could not be routed, and its pod may have used it.
    ///
    /// # Errors
    /// As the contract states.
    pub(crate) fn assign(&mut self, world: &mut impl World, key: IpamKey) -> Result<Assignment, Error> {
        let key = whole(key)?;
        let known = self.memory.address_of(&key);
        if let Some(address) = known
            && let Some(place) = self.memory.place(address)
        {
            return Ok(assignment(address, place.device_number));
        }
        self.readable()?;
        let now_ms = self.now_ms(world);
        let Some((place, address)) = self.memory.candidate(self.settings.cooling, now_ms) else {
            world.counter_add(datastore::NO_AVAILABLE_IP, &[], 1);
            log_pod(world, Level::Error, "no address is free", &key, None, None);
            return Err(Error::NoAvailableIp);
        };
        let holder = Holder::new(key.clone(), address);
        let given_up = known.and_then(|held| {
            let holder = self.memory.release(held)?;
            Some((held, holder, self.memory.rest(held, self.settings.cooling, now_ms)))
        });
        // No single entry can give up one address and take another.
        let entry = given_up.is_none().then(|| stored::entry("assign", &holder, now_ms));
        self.memory.allocate(address, holder);
        if let Err(why) = self.write(world, now_ms, entry.as_deref()) {
            self.memory.release(address);
            if let Some((held, holder, rest)) = given_up {
                self.memory.allocate(held, holder);
                self.memory.replace_unassigned_at(held, rest);
            }
            return Err(Error::BackingStore(why));
        }
        if let Some((held, _, _)) = given_up {
            let message = "a held allocation is given up";
            log_pod(world, Level::Warn, message, &key, Some(&held), None);
        }
        let eni = Some(("eni", &*place.id));
        log_pod(world, Level::Info, "assigned", &key, Some(&address), eni);
        self.show(world);
        Ok(assignment(address, place.device_number))
    }

    /// `datastore.unassign-pod-ipv4-address`
    ///
    /// # Errors
    /// As the contract states.
    pub(crate) fn unassign(&mut self, world: &mut impl World, key: IpamKey) -> Result<Assignment, Error> {
        let key = whole(key)?;
        self.readable()?;
        let Some(address) = self.found(&key) else {
            log_pod(world, Level::Warn, "the pod is unknown", &key, None, None);
            return Err(Error::UnknownPod);
        };
        let now_ms = self.now_ms(world);
        let holder = self.memory.release(address).ok_or(Error::UnknownPod)?;
        let before = self.memory.rest(address, self.settings.cooling, now_ms);
        if let Err(why) = self.write(world, now_ms, Some(&stored::entry("unassign", &holder, now_ms))) {
            self.memory.replace_unassigned_at(address, before);
            self.memory.allocate(address, holder);
            return Err(Error::BackingStore(why));
        }
        let eni = self.memory.place(address).map(|place| ("eni", &*place.id));
        log_pod(world, Level::Info, "unassigned", &holder.key, Some(&address), eni);
        self.show(world);
        Ok(assignment(address, self.device_number(address)))
    }

    /// `datastore.find-address-for-sandbox`
    pub(crate) fn find(&self, key: IpamKey) -> Option<Assignment> {
        let address = self.found(&whole(key).ok()?)?;
        Some(assignment(address, self.device_number(address)))
    }

    /// `datastore.allocated-ips`
    pub(crate) fn allocated_ips(&self) -> Vec<PodIpInfo> {
        let in_enis = self.memory.enis().iter().flat_map(|(key, eni)| {
            let addresses = eni.addresses.iter();
            addresses.map(|(address, _)| (address, key.device_number))
        });
        let held = self.memory.held().map(|(address, _)| (address, NO_DEVICE));
        let pod = |(address, device_number)| {
            Some(PodIpInfo {
                key: self.memory.holder(address)?.key.fields().clone(),
                ip: address.to_string(),
                device_number,
            })
        };
        in_enis.chain(held).filter_map(pod).collect()
    }

    /// The address that an unassignment of this key frees: its own, else that of its container as the runtime reported
    /// it.
    fn found(&self, key: &Key) -> Option<Ipv4Addr> {
        let own = self.memory.address_of(key);
        own.or_else(|| self.memory.address_of(&Key::migrated(&key.fields().container_id)))
    }

    fn device_number(&self, address: Ipv4Addr) -> i32 {
        let place = self.memory.place(address);
        place.map_or(NO_DEVICE, |place| place.device_number)
    }

    /// An unreadable store may hold any pod.
    fn readable(&self) -> Result<(), Error> {
        let blocked = self.store_state.blocked.clone();
        blocked.map_or(Ok(()), |why| Err(Error::BackingStore(why)))
    }
}

fn whole(key: IpamKey) -> Result<Key, Error> {
    let key = Key::new(key);
    match key.missing() {
        None => Ok(key),
        Some(field) => Err(Error::InvalidKey(field.to_owned())),
    }
}

fn assignment(address: Ipv4Addr, device_number: i32) -> Assignment {
    Assignment {
        ip: address.to_string(),
        device_number,
    }
}

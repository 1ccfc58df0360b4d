//! The exported functions about ENIs and their addresses, over any [`World`].

use std::net::Ipv4Addr;

use trueup_guest::Level;

use crate::addresses::Addresses;
use crate::bindings::exports::trueup::ipam::datastore::{AddressInfo, Eni as EniInfo, EniInfos, Error, Stats};
use crate::datastore::{self, Datastore, count, log_pod};
use crate::memory::{Eni, EniKey};
use crate::stored;
use crate::world::World;

impl Datastore {
    /// `datastore.add-eni`
    ///
    /// # Errors
    /// As the contract states.
    pub(crate) fn add_eni(
        &mut self,
        world: &mut impl World,
        id: &str,
        device_number: i32,
        is_primary: bool,
        is_trunk: bool,
    ) -> Result<(), Error> {
        if self.memory.eni(id).is_some() {
            return Err(Error::DuplicatedEni);
        }
        let eni = Eni {
            is_primary,
            is_trunk,
            created_at_ms: self.now_ms(world),
            addresses: Addresses::default(),
        };
        self.memory.add_eni(id, device_number, eni);
        self.show(world);
        Ok(())
    }

    /// `datastore.add-ipv4-address-to-store`
    ///
    /// # Errors
    /// As the contract states.
    pub(crate) fn add_address(&mut self, world: &mut impl World, id: &str, ipv4: &str) -> Result<(), Error> {
        let address = parse(ipv4)?;
        let place = self.memory.eni(id).ok_or(Error::UnknownEni)?.0.clone();
        if self.memory.place(address).is_some() {
            return Err(Error::IpAlreadyInStore);
        }
        if self.memory.rests().unassigned_at_ms(address).is_some() {
            // Only the clock can tell whether that rest is over.
            self.now_ms(world);
        }
        let taken_over = self.memory.holder(address).map(|holder| holder.key.clone());
        self.memory.add_address(&place, address);
        if let Some(key) = taken_over {
            let message = "a held allocation has its address now";
            log_pod(world, Level::Info, message, &key, Some(&address), Some(("eni", id)));
        }
        self.show(world);
        Ok(())
    }

    /// `datastore.del-ipv4-address-from-store`
    ///
    /// # Errors
    /// As the contract states.
    pub(crate) fn del_address(
        &mut self,
        world: &mut impl World,
        id: &str,
        ipv4: &str,
        force: bool,
    ) -> Result<(), Error> {
        let address = parse(ipv4)?;
        let place = self.memory.eni(id).ok_or(Error::UnknownEni)?.0.clone();
        if self.memory.place(address) != Some(&place) {
            return Err(Error::UnknownIp);
        }
        if self.memory.holder(address).is_none() {
            // If it rests, memory keeps the rest.
            let time = self.memory.remove_address(address);
            if let Some(time) = self.may_rest(time)
                && self.settings.cooling.rests(time, self.now_ms(world))
            {
                self.memory.replace_unassigned_at(address, Some(time));
            }
        } else if force {
            let now_ms = self.now_ms(world);
            self.evict(world, id, address);
            self.memory.remove_address(address);
            self.memory.rest(address, self.settings.cooling, now_ms);
            world.counter_add(datastore::FORCE_REMOVED_IPS, &[], 1);
            self.forget(world, &[address], now_ms);
        } else {
            return Err(Error::IpInUse);
        }
        self.show(world);
        Ok(())
    }

    /// `datastore.remove-eni-from-data-store`
    ///
    /// # Errors
    /// As the contract states.
    pub(crate) fn remove_eni(&mut self, world: &mut impl World, id: &str, force: bool) -> Result<(), Error> {
        let (place, eni) = self.memory.eni(id).ok_or(Error::UnknownEni)?;
        let place = place.clone();
        let taken = eni.addresses.taken_count();
        if taken > 0 && !force {
            return Err(Error::EniInUse);
        }
        let addresses: Vec<(Ipv4Addr, Option<u64>)> = eni.addresses.iter().collect();
        let asks_time = taken > 0 || addresses.iter().any(|&(_, time)| self.may_rest(time).is_some());
        let now_ms = if asks_time { self.now_ms(world) } else { 0 };
        let mut forgotten = Vec::with_capacity(taken);
        for &(address, _) in &addresses {
            if self.memory.holder(address).is_some() {
                self.evict(world, id, address);
                forgotten.push(address);
            }
        }
        self.memory.remove_eni(&place);
        for (address, time) in addresses {
            if forgotten.binary_search(&address).is_ok() {
                self.memory.rest(address, self.settings.cooling, now_ms);
            } else {
                let rest = time.filter(|&time| self.settings.cooling.rests(time, now_ms));
                self.memory.replace_unassigned_at(address, rest);
            }
        }
        if !forgotten.is_empty() {
            world.counter_add(datastore::FORCE_REMOVED_ENIS, &[], 1);
            let removed = u64::try_from(forgotten.len()).unwrap_or(u64::MAX);
            world.counter_add(datastore::FORCE_REMOVED_IPS, &[], removed);
            self.forget(world, &forgotten, now_ms);
        }
        self.show(world);
        Ok(())
    }

    /// `datastore.remove-unused-eni-from-store`
    pub(crate) fn remove_unused_eni(
        &mut self,
        world: &mut impl World,
        warm_ip_target: u32,
        minimum_ip_target: u32,
    ) -> Option<String> {
        if self.memory.enis().values().all(|eni| eni.is_primary) {
            return None;
        }
        let now_ms = self.now_ms(world);
        let mut unused = None;
        for (key, eni) in self.memory.enis() {
            let Some(why) = self.why_kept(eni, now_ms, warm_ip_target, minimum_ip_target) else {
                unused = Some(key.clone());
                break;
            };
            world.log(Level::Debug, "the ENI is kept", &[("eni", &key.id), ("why", why)]);
        }
        let key = unused?;
        // None of its addresses rests, so nothing must be remembered.
        self.memory.remove_eni(&key);
        self.show(world);
        Some(key.id.as_ref().to_owned())
    }

    /// The first rule that keeps the ENI; `None` if it can go.
    fn why_kept(&self, eni: &Eni, now_ms: u64, warm_ip_target: u32, minimum_ip_target: u32) -> Option<&'static str> {
        let cooling = self.settings.cooling;
        let free = self.memory.total_count() - self.memory.assigned_count();
        let is_young = now_ms.saturating_sub(eni.created_at_ms) < self.settings.min_eni_lifetime_ms;
        let has_resting = eni.addresses.resting(cooling, now_ms).next().is_some();
        let are_few_free = count(free.saturating_sub(eni.addresses.free_count())) < warm_ip_target;
        let others_total = self.memory.total_count().saturating_sub(eni.addresses.total());
        let are_few = count(others_total) < minimum_ip_target;
        let rules = [
            (eni.is_primary, "it is primary"),
            (is_young, "it is too young"),
            (has_resting, "an address of it rests"),
            (eni.addresses.taken_count() > 0, "an address of it is assigned"),
            (are_few_free, "the others have too few free addresses"),
            (are_few, "the others have too few addresses"),
            (eni.is_trunk, "it is a trunk"),
        ];
        rules.into_iter().find(|&(keeps, _)| keeps).map(|(_, why)| why)
    }

    /// `datastore.freeable-ips`
    pub(crate) fn freeable_ips(&self, id: &str) -> Vec<String> {
        let eni = self.memory.eni(id);
        let all = eni.into_iter().flat_map(|(_, eni)| eni.addresses.iter());
        let free = all.filter(|(address, _)| self.memory.holder(*address).is_none());
        free.map(|(address, _)| address.to_string()).collect()
    }

    /// `datastore.get-eni-ips`
    ///
    /// # Errors
    /// As the contract states.
    pub(crate) fn eni_ips(&self, id: &str) -> Result<Vec<String>, Error> {
        let (_, eni) = self.memory.eni(id).ok_or(Error::UnknownEni)?;
        Ok(eni.addresses.iter().map(|(address, _)| address.to_string()).collect())
    }

    /// `datastore.get-eni-infos`
    pub(crate) fn eni_infos(&self) -> EniInfos {
        let Stats { total, assigned } = self.stats();
        EniInfos {
            total_ips: total,
            assigned_ips: assigned,
            enis: self
                .memory
                .enis()
                .iter()
                .map(|(key, eni)| self.eni_info(key, eni))
                .collect(),
        }
    }

    /// `datastore.get-eni-needs-ip`
    pub(crate) fn eni_needs_ip(&self, max_ip_per_eni: u32, skip_primary: bool) -> Option<EniInfo> {
        let has_room = |eni: &Eni| count(eni.addresses.total()) < max_ip_per_eni && !(skip_primary && eni.is_primary);
        let (key, eni) = self.memory.enis().iter().find(|(_, eni)| has_room(eni))?;
        Some(self.eni_info(key, eni))
    }

    /// `datastore.get-enis`
    pub(crate) fn eni_count(&self) -> u32 {
        count(self.memory.enis().len())
    }

    /// `datastore.get-stats`
    pub(crate) fn stats(&self) -> Stats {
        Stats {
            total: count(self.memory.total_count()),
            assigned: count(self.memory.assigned_count()),
        }
    }

    /// `datastore.get-trunk-eni`
    pub(crate) fn trunk_eni(&self) -> Option<String> {
        let (key, _) = self.memory.enis().iter().find(|(_, eni)| eni.is_trunk)?;
        Some(key.id.as_ref().to_owned())
    }

    fn eni_info(&self, key: &EniKey, eni: &Eni) -> EniInfo {
        let info = |(address, unassigned_at_ms): (Ipv4Addr, Option<u64>)| AddressInfo {
            address: address.to_string(),
            key: self.memory.holder(address).map(|holder| holder.key.fields().clone()),
            unassigned_at_ms,
        };
        EniInfo {
            id: key.id.as_ref().to_owned(),
            device_number: key.device_number,
            is_primary: eni.is_primary,
            is_trunk: eni.is_trunk,
            created_at_ms: eni.created_at_ms,
            addresses: eni.addresses.iter().map(info).collect(),
        }
    }

    /// The time, if only the clock can tell whether it means a rest.
    fn may_rest(&self, unassigned_at_ms: Option<u64>) -> Option<u64> {
        unassigned_at_ms.filter(|&time| self.settings.cooling.rests(time, time))
    }

    /// Logs which pod loses the address by force.
    fn evict(&self, world: &mut impl World, id: &str, address: Ipv4Addr) {
        if let Some(holder) = self.memory.holder(address) {
            let eni = Some(("eni", id));
            let message = "the address is taken from its pod by force";
            log_pod(world, Level::Warn, message, &holder.key, Some(&address), eni);
        }
    }

    /// Stores that these addresses have no pod any more. They have none even if that fails: the cloud has taken them,
    /// and the next change writes a whole checkpoint.
    fn forget(&mut self, world: &mut impl World, addresses: &[Ipv4Addr], now_ms: u64) {
        if let Err(why) = self.write(world, now_ms, Some(&stored::forget(addresses, now_ms))) {
            let message = "the removal was not stored, the next change makes up for it";
            world.warn(message, &[("error", &why)]);
        }
    }
}

/// Unlike the addresses that other guests share, an address here has one spelling, and is no IPv6 address: what is
/// stored under one text must never be found under another.
fn parse(ipv4: &str) -> Result<Ipv4Addr, Error> {
    ipv4.parse().map_err(|_| Error::InvalidIp(ipv4.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn any_other_spelling_is_no_address() {
        for text in [
            "",
            " 10.0.0.1",
            "10.0.0.1 ",
            "10.0.0.1\n",
            "010.0.0.1",
            "10.0.0.01",
            "10.0.0.00",
            "10.0.0.256",
            "10.0.0",
            "10.0.0.1.2",
            "10.0..1",
            "+1.0.0.1",
            "-1.0.0.1",
            "0x1.0.0.1",
            "1e1.0.0.1",
            "10.0.0.1/32",
            "10.0.0.1:80",
            "::1",
            "::ffff:10.0.0.1",
            "٣.0.0.1",
            "10.0.0.1\0",
            "167772161",
        ] {
            assert_eq!(parse(text), Err(Error::InvalidIp(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn no_meaning_is_attached_to_any_value() {
        for text in ["0.0.0.0", "255.255.255.255", "127.0.0.1", "224.0.0.1"] {
            assert_eq!(parse(text).map(|address| address.to_string()).as_deref(), Ok(text));
        }
    }

    proptest! {
        #[test]
        fn the_order_is_by_number(left: u32, right: u32) {
            let [one, other] = [left, right].map(|n| parse(&Ipv4Addr::from_bits(n).to_string()).unwrap());
            prop_assert_eq!(one.cmp(&other), left.cmp(&right));
            prop_assert_eq!(one.to_string(), Ipv4Addr::from_bits(left).to_string());
        }

        #[test]
        fn what_is_taken_is_spelled_as_it_was(text in "[0-9.]{1,16}|[0-9]{1,3}(\\.[0-9]{1,3}){3}") {
            if let Ok(address) = parse(&text) {
                prop_assert_eq!(address.to_string(), text);
            }
        }
    }
}

//! Reads the backing store: what the runtime runs, or what was stored.

use super::Model;
use super::stored::{error_text, migrated, missing, number, read_back, text};
use crate::bindings::exports::trueup::ipam::datastore::{Error, IpamKey};
use crate::world::World;

impl Model {
    pub(in crate::tests) fn read_backing_store(&mut self) -> Result<(), Error> {
        let answer = match self.settings.reads_store {
            false => self.read_runtime(),
            true => self.read_store(),
        };
        self.blocked = answer.clone().err();
        answer.map_err(Error::BackingStore)
    }

    fn read_runtime(&mut self) -> Result<(), String> {
        let sandboxes = self.world.list_running();
        let sandboxes = sandboxes.map_err(|why| format!("container runtime: {why}"))?;
        let now = self.now();
        let before = self.lists.clone();
        for sandbox in sandboxes {
            self.take(migrated(&sandbox.id), &sandbox.ip, now);
        }
        let answer = self.write_whole(now);
        if answer.is_err() {
            self.lists = before;
        }
        answer
    }

    fn read_store(&mut self) -> Result<(), String> {
        let Some(saved) = self.world.restore().map_err(error_text)? else {
            (self.in_step, self.entries) = (false, 0);
            return Ok(());
        };
        let (claims, times) = read_back(&saved)?;
        let now = self.now();
        for (ip, at) in times {
            let at = at.min(now);
            let known = match self.lists.place(ip) {
                Some(address) => address.at,
                None => self
                    .lists
                    .remembered
                    .iter()
                    .find(|(other, _)| *other == ip)
                    .map(|(_, at)| *at),
            };
            let at = known.map_or(at, |known| known.max(at));
            if self.lists.place(ip).is_some() || self.rests(at, now) {
                self.lists.set_at(ip, at);
            }
        }
        let mut dropped = false;
        for (key, ipv4) in &claims {
            dropped |= self.take(key.clone(), ipv4, now);
        }
        let claimed = |ip: u32, key: &IpamKey| claims.contains(&(key.clone(), text(ip)));
        let assigned = self.lists.addresses.iter();
        let mut assigned = assigned.filter_map(|address| Some((address.ip, address.key.as_ref()?)));
        let all =
            assigned.all(|(ip, key)| claimed(ip, key)) && self.lists.held.iter().all(|(ip, key)| claimed(*ip, key));
        self.in_step = all && !dropped;
        self.entries = saved.entries.len() as u64;
        Ok(())
    }

    /// True if anything was dropped.
    fn take(&mut self, key: IpamKey, ipv4: &str, now: u64) -> bool {
        let Some(ip) = number(ipv4) else { return true };
        let in_eni = self.lists.place(ip).is_some();
        let holder = self.lists.holder(ip);
        if !self.settings.holds_unknown && !in_eni && holder.is_none() {
            return true;
        }
        if let Some(holder) = holder {
            return *holder != key;
        }
        if missing(&key).is_some() {
            self.rest(ip, now);
            return true;
        }
        let held = self.lists.held_by(&key);
        if self.lists.assigned_to(&key).is_some() || (held.is_some() && !in_eni) {
            self.rest(ip, now);
            return true;
        }
        if !in_eni {
            self.lists.held.push((ip, key));
            return false;
        }
        self.lists.assign(ip, Some(key));
        if let Some(held) = held {
            self.lists.held.retain(|(other, _)| *other != held);
            self.rest(held, now);
        }
        held.is_some()
    }
}

//! The rules, word for word, over plain lists walked from end to end: the reference for the guest.
//!
//! Shares the settings, the simulated world and the contract's types with the guest, and nothing else: it keeps no
//! index, undoes by copying everything, and reads stored text its own way.

mod reading;
mod stored;

use serde_json::{Value, json};

use self::stored::{error_text, members, migrated, missing, text};
pub(super) use self::stored::{number, read_back};
use crate::bindings::exports::trueup::ipam::datastore::{Assignment, Error, IpamKey};
use crate::bindings::trueup::checkpoint::store::Error as StoreError;
use crate::settings::Settings;
use crate::simulated::Simulation;
use crate::world::World;

/// The state of one interface.
#[derive(Clone, Debug)]
struct Eni {
    id: String,
    device_number: i32,
    is_primary: bool,
    is_trunk: bool,
    created_at_ms: u64,
}

#[derive(Clone, Debug)]
struct Address {
    eni: String,
    ip: u32,
    key: Option<IpamKey>,
    at: Option<u64>,
}

/// The state that is undone together.
#[derive(Clone, Debug, Default)]
struct Lists {
    enis: Vec<Eni>,
    addresses: Vec<Address>,
    held: Vec<(u32, IpamKey)>,
    remembered: Vec<(u32, u64)>,
}

/// A plain model of the guest.
#[derive(Debug)]
pub(super) struct Model {
    settings: Settings,
    pub(super) world: Simulation,
    lists: Lists,
    in_step: bool,
    entries: u64,
    blocked: Option<String>,
    counters: [u64; 4],
}

const FORCED_ENIS: usize = 0;
const FORCED_IPS: usize = 1;
const NO_IP: usize = 2;
const FAILURES: usize = 3;

impl Lists {
    fn place(&self, ip: u32) -> Option<&Address> {
        self.addresses.iter().find(|address| address.ip == ip)
    }

    fn device_number(&self, ip: u32) -> i32 {
        let eni = self.place(ip).map(|address| &address.eni);
        self.enis
            .iter()
            .find(|other| Some(&other.id) == eni)
            .map_or(-1, |eni| eni.device_number)
    }

    /// Assigned or held.
    fn holder(&self, ip: u32) -> Option<&IpamKey> {
        let assigned = self.place(ip).and_then(|address| address.key.as_ref());
        assigned.or_else(|| self.held.iter().find(|(held, _)| *held == ip).map(|(_, key)| key))
    }

    fn assigned_to(&self, key: &IpamKey) -> Option<u32> {
        let address = self.addresses.iter().find(|address| address.key.as_ref() == Some(key));
        address.map(|address| address.ip)
    }

    fn held_by(&self, key: &IpamKey) -> Option<u32> {
        self.held.iter().find(|(_, other)| other == key).map(|(ip, _)| *ip)
    }

    fn set_at(&mut self, ip: u32, at: u64) {
        match self.addresses.iter_mut().find(|address| address.ip == ip) {
            Some(address) => address.at = Some(at),
            None => {
                self.remembered.retain(|(other, _)| *other != ip);
                self.remembered.push((ip, at));
            }
        }
    }

    fn assign(&mut self, ip: u32, key: Option<IpamKey>) {
        for address in self.addresses.iter_mut().filter(|address| address.ip == ip) {
            address.key = key.clone();
        }
    }

    /// All interfaces in order, each with its addresses in order.
    fn ordered(&self) -> Vec<(Eni, Vec<Address>)> {
        let mut enis = self.enis.clone();
        enis.sort_by(|left, right| (left.device_number, &left.id).cmp(&(right.device_number, &right.id)));
        let addresses = |eni: &Eni| {
            let of_eni = self.addresses.iter().filter(|address| address.eni == eni.id);
            let mut of_eni: Vec<_> = of_eni.cloned().collect();
            of_eni.sort_by_key(|address| address.ip);
            of_eni
        };
        enis.into_iter().map(|eni| (eni.clone(), addresses(&eni))).collect()
    }
}

impl Model {
    pub(super) fn new(settings: Settings, world: Simulation) -> Self {
        Self {
            settings,
            world,
            lists: Lists::default(),
            in_step: false,
            entries: 0,
            blocked: None,
            counters: [0; 4],
        }
    }

    /// The same state in the next build of the guest, whose counters start anew only for the test.
    pub(super) fn carried(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    pub(super) fn begun_anew(self, settings: Settings) -> Self {
        Self {
            counters: self.counters,
            ..Self::new(settings, self.world)
        }
    }

    fn rests(&self, at: u64, now: u64) -> bool {
        self.settings.cooling.rests(at, now)
    }

    fn now(&mut self) -> u64 {
        let now = self.world.now_ms;
        let cooling = self.settings.cooling;
        // A free or remembered address has no later time than now.
        let free = self.lists.addresses.iter_mut().filter(|address| address.key.is_none());
        let times = free.filter_map(|address| address.at.as_mut());
        for at in times.chain(self.lists.remembered.iter_mut().map(|(_, at)| at)) {
            *at = now.min(*at);
        }
        self.lists.remembered.retain(|(_, at)| cooling.rests(*at, now));
        now
    }

    fn rest(&mut self, ip: u32, now: u64) {
        if self.lists.place(ip).is_some() || self.rests(now, now) {
            self.lists.set_at(ip, now);
        } else {
            self.lists.remembered.retain(|(other, _)| *other != ip);
        }
    }

    fn checkpoint_text(&self) -> String {
        let assigned = self.lists.addresses.iter();
        let assigned = assigned.filter_map(|address| Some((address.ip, address.key.clone()?)));
        let mut all: Vec<_> = assigned.chain(self.lists.held.iter().cloned()).collect();
        all.sort_by_key(|(ip, _)| *ip);
        let elements: Vec<String> = all
            .into_iter()
            .map(|(ip, key)| format!("{{{},\"ipv4\":\"{}\"}}", members(&key), text(ip)))
            .collect();
        format!(
            "{{\"version\":\"vpc-cni-ipam/1\",\"allocations\":[{}]}}",
            elements.join(",")
        )
    }

    fn failed(&mut self, error: StoreError) -> String {
        self.in_step = false;
        self.counters[FAILURES] += 1;
        error_text(error)
    }

    fn write_whole(&mut self, now: u64) -> Result<(), String> {
        let data = self.checkpoint_text();
        if let Err(error) = self.world.checkpoint(&data) {
            return Err(self.failed(error));
        }
        self.in_step = true;
        self.entries = 0;
        let free = self.lists.addresses.iter().filter(|address| address.key.is_none());
        let free = free.filter_map(|address| Some((address.ip, address.at?)));
        let mut resting: Vec<_> = free
            .chain(self.lists.remembered.iter().copied())
            .filter(|(_, at)| self.rests(*at, now))
            .collect();
        resting.sort_by_key(|(ip, _)| *ip);
        if self.settings.compact_after > 0 && !resting.is_empty() {
            let elements: Vec<String> = resting
                .into_iter()
                .map(|(ip, at)| format!("{{\"ipv4\":\"{}\",\"at\":{at}}}", text(ip)))
                .collect();
            let entry = format!("{{\"op\":\"rest\",\"addresses\":[{}]}}", elements.join(","));
            match self.world.append(&entry) {
                Ok(()) => self.entries = 1,
                Err(error) => drop(self.failed(error)),
            }
        }
        Ok(())
    }

    fn write(&mut self, now: u64, entry: Option<&str>) -> Result<(), String> {
        if let Some(why) = self.blocked.clone() {
            self.in_step = false;
            return Err(why);
        }
        match entry {
            Some(entry) if self.in_step && self.entries < self.settings.compact_after => {
                match self.world.append(entry) {
                    Ok(()) => self.entries += 1,
                    Err(error) => return Err(self.failed(error)),
                }
                Ok(())
            }
            _ => self.write_whole(now),
        }
    }

    pub(super) fn add_eni(
        &mut self,
        id: &str,
        device_number: i32,
        is_primary: bool,
        is_trunk: bool,
    ) -> Result<(), Error> {
        if self.lists.enis.iter().any(|eni| eni.id == id) {
            return Err(Error::DuplicatedEni);
        }
        let created_at_ms = self.now();
        self.lists.enis.push(Eni {
            id: id.to_owned(),
            device_number,
            is_primary,
            is_trunk,
            created_at_ms,
        });
        Ok(())
    }

    fn know_eni(&self, id: &str) -> Result<(), Error> {
        let known = self.lists.enis.iter().any(|eni| eni.id == id);
        known.then_some(()).ok_or(Error::UnknownEni)
    }

    pub(super) fn add_address(&mut self, id: &str, ipv4: &str) -> Result<(), Error> {
        let ip = number(ipv4).ok_or_else(|| Error::InvalidIp(ipv4.to_owned()))?;
        self.know_eni(id)?;
        if self.lists.place(ip).is_some() {
            return Err(Error::IpAlreadyInStore);
        }
        if self.lists.remembered.iter().any(|(other, _)| *other == ip) {
            self.now();
        }
        let at = self
            .lists
            .remembered
            .iter()
            .find(|(other, _)| *other == ip)
            .map(|(_, at)| *at);
        let key = self
            .lists
            .held
            .iter()
            .find(|(held, _)| *held == ip)
            .map(|(_, key)| key.clone());
        self.lists.remembered.retain(|(other, _)| *other != ip);
        self.lists.held.retain(|(held, _)| *held != ip);
        self.lists.addresses.push(Address {
            eni: id.to_owned(),
            ip,
            key,
            at,
        });
        Ok(())
    }

    /// Takes addresses out of the store, and leaves rests, and an entry if pods had them.
    fn leave(&mut self, gone: &[Address]) {
        let needs_time = |address: &Address| address.key.is_some() || (address.at.is_some() && self.rests(0, 0));
        if !gone.iter().any(needs_time) {
            self.lists
                .addresses
                .retain(|address| !gone.iter().any(|gone| gone.ip == address.ip));
            return;
        }
        let now = self.now();
        let mut forced = Vec::new();
        for address in gone {
            self.lists.addresses.retain(|other| other.ip != address.ip);
            let at = if address.key.is_some() {
                forced.push(format!("\"{}\"", text(address.ip)));
                Some(now)
            } else {
                address.at
            };
            if let Some(at) = at.filter(|&at| self.rests(at, now)) {
                self.lists.set_at(address.ip, at);
            }
        }
        if !forced.is_empty() {
            self.counters[FORCED_IPS] += forced.len() as u64;
            let entry = format!("{{\"op\":\"forget\",\"ipv4\":[{}],\"at\":{now}}}", forced.join(","));
            let _ = self.write(now, Some(&entry));
        }
    }

    pub(super) fn del_address(&mut self, id: &str, ipv4: &str, force: bool) -> Result<(), Error> {
        let ip = number(ipv4).ok_or_else(|| Error::InvalidIp(ipv4.to_owned()))?;
        self.know_eni(id)?;
        let address = self.lists.place(ip).filter(|address| address.eni == id);
        let address = address.ok_or(Error::UnknownIp)?.clone();
        if address.key.is_some() && !force {
            return Err(Error::IpInUse);
        }
        self.leave(&[address]);
        Ok(())
    }

    pub(super) fn remove_eni(&mut self, id: &str, force: bool) -> Result<(), Error> {
        self.know_eni(id)?;
        let ordered = self.lists.ordered();
        let gone = ordered.into_iter().find(|(eni, _)| eni.id == id).map(|(_, gone)| gone);
        let gone = gone.unwrap_or_default();
        let has_pods = gone.iter().any(|address| address.key.is_some());
        if has_pods && !force {
            return Err(Error::EniInUse);
        }
        if has_pods {
            self.counters[FORCED_ENIS] += 1;
        }
        self.lists.enis.retain(|eni| eni.id != id);
        self.leave(&gone);
        Ok(())
    }

    pub(super) fn remove_unused(&mut self, warm: u32, minimum: u32) -> Option<String> {
        let ordered = self.lists.ordered();
        if ordered.iter().all(|(eni, _)| eni.is_primary) {
            return None;
        }
        let now = self.now();
        for (eni, addresses) in ordered {
            let others = || self.lists.addresses.iter().filter(|address| address.eni != eni.id);
            let others_free = others().filter(|address| address.key.is_none()).count();
            let kept = eni.is_primary
                || now.saturating_sub(eni.created_at_ms) < self.settings.min_eni_lifetime_ms
                || addresses
                    .iter()
                    .any(|address| address.at.is_some_and(|at| self.rests(at, now)))
                || addresses.iter().any(|address| address.key.is_some())
                || (warm != 0 && (others_free as u64) < u64::from(warm))
                || (minimum != 0 && (others().count() as u64) < u64::from(minimum))
                || eni.is_trunk;
            if !kept {
                self.lists.enis.retain(|other| other.id != eni.id);
                self.lists.addresses.retain(|address| address.eni != eni.id);
                return Some(eni.id);
            }
        }
        None
    }

    fn answer(&self, ip: u32) -> Assignment {
        Assignment {
            ip: text(ip),
            device_number: self.lists.device_number(ip),
        }
    }

    pub(super) fn assign(&mut self, key: &IpamKey) -> Result<Assignment, Error> {
        if let Some(field) = missing(key) {
            return Err(Error::InvalidKey(field.to_owned()));
        }
        if let Some(ip) = self.lists.assigned_to(key) {
            return Ok(self.answer(ip));
        }
        if let Some(why) = &self.blocked {
            return Err(Error::BackingStore(why.clone()));
        }
        let now = self.now();
        let candidate = self.lists.ordered().into_iter().find_map(|(_, mut addresses)| {
            addresses.retain(|address| address.key.is_none());
            addresses.retain(|address| address.at.is_none_or(|at| !self.rests(at, now)));
            // `None` sorts before any time.
            addresses.sort_by_key(|address| (address.at, address.ip));
            addresses.first().map(|address| address.ip)
        });
        let Some(ip) = candidate else {
            self.counters[NO_IP] += 1;
            return Err(Error::NoAvailableIp);
        };
        let before = self.lists.clone();
        let held = self.lists.held_by(key);
        self.lists.assign(ip, Some(key.clone()));
        let mut entry = Some(format!(
            "{{\"op\":\"assign\",{},\"ipv4\":\"{}\",\"at\":{now}}}",
            members(key),
            text(ip)
        ));
        if let Some(held) = held {
            self.lists.held.retain(|(other, _)| *other != held);
            self.rest(held, now);
            entry = None;
        }
        if let Err(why) = self.write(now, entry.as_deref()) {
            self.lists = before;
            return Err(Error::BackingStore(why));
        }
        Ok(self.answer(ip))
    }

    fn found(&self, key: &IpamKey) -> Option<u32> {
        let migrated = migrated(&key.container_id);
        [key, &migrated]
            .into_iter()
            .find_map(|key| self.lists.assigned_to(key).or_else(|| self.lists.held_by(key)))
    }

    pub(super) fn unassign(&mut self, key: &IpamKey) -> Result<Assignment, Error> {
        if let Some(field) = missing(key) {
            return Err(Error::InvalidKey(field.to_owned()));
        }
        if let Some(why) = &self.blocked {
            return Err(Error::BackingStore(why.clone()));
        }
        let ip = self.found(key).ok_or(Error::UnknownPod)?;
        let now = self.now();
        let before = self.lists.clone();
        let holder = self.lists.holder(ip).unwrap().clone();
        self.lists.assign(ip, None);
        self.lists.held.retain(|(held, _)| *held != ip);
        self.rest(ip, now);
        let entry = format!(
            "{{\"op\":\"unassign\",{},\"ipv4\":\"{}\",\"at\":{now}}}",
            members(&holder),
            text(ip)
        );
        if let Err(why) = self.write(now, Some(&entry)) {
            self.lists = before;
            return Err(Error::BackingStore(why));
        }
        Ok(self.answer(ip))
    }

    pub(super) fn find(&self, key: &IpamKey) -> Option<Assignment> {
        let ip = if missing(key).is_none() { self.found(key) } else { None };
        ip.map(|ip| self.answer(ip))
    }

    /// The `lifecycle.snapshot` of this state.
    pub(super) fn snapshot(&self) -> Value {
        let key = |key: &IpamKey| json!({"network_name": key.network_name, "container_id": key.container_id, "if_name": key.if_name});
        let address = |address: Address| {
            json!({
                "address": text(address.ip),
                "key": address.key.as_ref().map(key),
                "unassigned_at_ms": address.at,
            })
        };
        let eni = |(eni, addresses): (Eni, Vec<Address>)| {
            json!({
                "id": eni.id,
                "device_number": eni.device_number,
                "is_primary": eni.is_primary,
                "is_trunk": eni.is_trunk,
                "created_at_ms": eni.created_at_ms,
                "addresses": addresses.into_iter().map(address).collect::<Vec<_>>(),
            })
        };
        let mut remembered = self.lists.remembered.clone();
        remembered.sort_unstable();
        let mut held = self.lists.held.clone();
        held.sort_by_key(|(ip, _)| *ip);
        let resting = remembered
            .into_iter()
            .map(|(ip, at)| json!({"ipv4": text(ip), "at": at}));
        let held = held
            .iter()
            .map(|(ip, holder)| json!({"key": key(holder), "ipv4": text(*ip)}));
        json!({
            "version": "trueup-ipam/1",
            "enis": self.lists.ordered().into_iter().map(eni).collect::<Vec<_>>(),
            "resting": resting.collect::<Vec<_>>(),
            "held": held.collect::<Vec<_>>(),
            "store": {"in_step": self.in_step, "entries": self.entries, "blocked": self.blocked},
        })
    }

    /// All series.
    pub(super) fn metrics(&self) -> Vec<(&'static str, f64)> {
        let assigned = self.lists.addresses.iter().filter(|address| address.key.is_some());
        vec![
            ("trueup_ipam_assigned_ips", assigned.count() as f64),
            ("trueup_ipam_enis", self.lists.enis.len() as f64),
            (
                "trueup_ipam_force_removed_enis_total",
                self.counters[FORCED_ENIS] as f64,
            ),
            ("trueup_ipam_force_removed_ips_total", self.counters[FORCED_IPS] as f64),
            ("trueup_ipam_held_allocations", self.lists.held.len() as f64),
            ("trueup_ipam_no_available_ip_total", self.counters[NO_IP] as f64),
            ("trueup_ipam_store_failures_total", self.counters[FAILURES] as f64),
            ("trueup_ipam_total_ips", self.lists.addresses.len() as f64),
        ]
    }

    /// Allocations on ENIs by address, then held ones: key, address, device number.
    pub(super) fn allocated(&self) -> Vec<(IpamKey, String, i32)> {
        let ordered = self.lists.ordered().into_iter();
        let assigned = ordered.flat_map(|(eni, addresses)| {
            let assigned = addresses
                .into_iter()
                .filter_map(|address| Some((address.key?, text(address.ip))));
            assigned
                .map(move |(key, ip)| (key, ip, eni.device_number))
                .collect::<Vec<_>>()
        });
        let mut held = self.lists.held.clone();
        held.sort_by_key(|(ip, _)| *ip);
        assigned
            .chain(held.into_iter().map(|(ip, key)| (key, text(ip), -1)))
            .collect()
    }
}

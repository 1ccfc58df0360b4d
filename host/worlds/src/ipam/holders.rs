//! The holder of each address, as the guest answered it.
//!
//! Only for display: the figures of `status`, the pods' names in `trueup ipam show`, and holders that the container
//! runtime does not know. The guest decides, and the store is authoritative; nothing here assigns an address.
//!
//! ```text
//! ADD, DEL, GC -> Holders -> counts, names, forgotten
//!     sandboxes of the runtime --^
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use trueup_work::status::pods::Stats;

use super::enis::Inventory;
use super::state_file::StateFile;
use crate::ipam::guest::{IpamKey, PodIpInfo};

/// A container that the runtime has not listed for this many milliseconds is gone, or never was this runtime's. A
/// sandbox that is being created has its address before it is listed, and creating one takes at most 4 minutes by
/// kubelet's own limits.
pub const FORGOTTEN_AFTER_MS: u64 = 300_000;

const FORGOTTEN_AFTER: Duration = Duration::from_millis(FORGOTTEN_AFTER_MS);

/// The minimum time between writes of the names. After a crash only the names of the last pods are missing.
const WRITE_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq)]
struct Holder {
    ip: String,
    /// `namespace/name`. `None` if the plugin did not report it.
    pod: Option<String>,
    /// Since when the container runtime does not list its container.
    missing: Option<Instant>,
}

/// The holders of one instance.
#[derive(Debug)]
pub(super) struct Holders {
    /// By network, container and interface.
    by_key: BTreeMap<[String; 3], Holder>,
    /// When a pod gave each address back in this process, of those that no pod has since.
    freed_at: BTreeMap<String, Instant>,
    file: StateFile,
    /// When to write the names. `None` if they are written.
    write_at: Option<Instant>,
}

/// An address whose holder the container runtime does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forgotten {
    /// The address.
    pub ip: String,
    /// The holder's key.
    pub key: IpamKey,
    /// `namespace/name`. Absent if the plugin did not report it.
    pub pod: Option<String>,
    /// For how long the runtime has not listed the container, as far as this host looked, in milliseconds.
    pub missing_ms: u64,
}

/// The name of one pod: the format of the file.
#[derive(Serialize, Deserialize)]
struct Named {
    network: String,
    container: String,
    interface: String,
    pod: String,
}

fn three(key: &IpamKey) -> [String; 3] {
    [key.network_name.clone(), key.container_id.clone(), key.if_name.clone()]
}

impl Holders {
    /// Starts without holders. The names of an earlier process are in the file of this instance,
    /// which a plan does not write.
    pub(super) fn new(state_dir: &Path, instance: &str, plans: bool) -> Self {
        let file = state_dir.join("ipam").join(format!("{instance}.pods.json"));
        Self {
            by_key: BTreeMap::new(),
            freed_at: BTreeMap::new(),
            file: StateFile::new(file, plans),
            write_at: None,
        }
    }

    /// Takes in all holders, as the guest has them after a reading. Keeps what is known of those that remain.
    pub(super) fn read(&mut self, allocated: Vec<PodIpInfo>) {
        let before = std::mem::take(&mut self.by_key);
        let mut named = match before.is_empty() {
            true => self.named(),
            false => BTreeMap::new(),
        };
        for PodIpInfo { key, ip, .. } in allocated {
            let key = three(&key);
            let known = before.get(&key).filter(|known| known.ip == ip).cloned();
            let pod = named.remove(&key);
            let missing = None;
            self.by_key.insert(key, known.unwrap_or(Holder { ip, pod, missing }));
        }
    }

    fn named(&self) -> BTreeMap<[String; 3], String> {
        let all: Option<Vec<Named>> = self.file.read().unwrap_or_else(|error| {
            let file = self.file.path().display();
            tracing::warn!("the pods' names in `{file}` are not read: {error}");
            None
        });
        let all = all.into_iter().flatten();
        all.map(|named| ([named.network, named.container, named.interface], named.pod))
            .collect()
    }

    /// The guest answered this address to the key.
    pub(super) fn assigned(&mut self, key: &IpamKey, ip: &str, pod: Option<&str>) {
        let known = self.by_key.get(&three(key)).filter(|known| known.ip == ip);
        let known = known.and_then(|known| known.pod.as_deref());
        let pod = pod.or(known).map(str::to_owned);
        if pod.is_some() {
            self.write_at.get_or_insert_with(|| Instant::now() + WRITE_PAUSE);
        }
        self.freed_at.remove(ip);
        let ip = ip.to_owned();
        let missing = None;
        self.by_key.insert(three(key), Holder { ip, pod, missing });
    }

    /// The key has no address any more.
    pub(super) fn freed(&mut self, key: &IpamKey) {
        if let Some(holder) = self.by_key.remove(&three(key)) {
            self.freed_at.insert(holder.ip, Instant::now());
        }
    }

    /// Counts the addresses of the interfaces that the guest has. `rest_ms`: how long an address rests.
    pub(super) fn stats(&self, has: &Inventory, rest_ms: u64, now: Instant) -> Stats {
        let is_held = |holder: &&Holder| has.interface_of(&holder.ip).is_none();
        let held = self.by_key.values().filter(is_held).count();
        let assigned = self.by_key.len() - held;
        let rests = |(ip, at): &(&String, &Instant)| {
            now.duration_since(**at) < Duration::from_millis(rest_ms) && has.interface_of(ip).is_some()
        };
        let resting = self.freed_at.iter().filter(rests).count();
        Stats {
            enis: has.enis.len(),
            addresses: has.addresses.len(),
            assigned,
            held,
            free: has.addresses.len().saturating_sub(assigned + resting),
            resting,
        }
    }

    /// The pods' names, by address.
    pub(super) fn pods(&self) -> BTreeMap<String, String> {
        let named = |holder: &Holder| Some((holder.ip.clone(), holder.pod.clone()?));
        self.by_key.values().filter_map(named).collect()
    }

    /// The pod of a container, if it is known.
    pub(super) fn pod(&self, key: &IpamKey) -> Option<&str> {
        self.by_key.get(&three(key))?.pod.as_deref()
    }

    /// Takes in the sandboxes that the container runtime lists, whatever their state.
    pub(super) fn compare(&mut self, sandboxes: &BTreeSet<String>, now: Instant) {
        for ([_, container, _], holder) in &mut self.by_key {
            if sandboxes.contains(container) {
                holder.missing = None;
            } else {
                holder.missing.get_or_insert(now);
            }
        }
    }

    /// Holders that the container runtime does not list, by address.
    pub(super) fn missing(&self, now: Instant) -> Vec<Forgotten> {
        let missing = |(key, holder): (&[String; 3], &Holder)| {
            let missing = now.duration_since(holder.missing?).as_millis();
            let [network_name, container_id, if_name] = key.clone();
            Some(Forgotten {
                ip: holder.ip.clone(),
                key: IpamKey {
                    network_name,
                    container_id,
                    if_name,
                },
                pod: holder.pod.clone(),
                missing_ms: u64::try_from(missing).unwrap_or(u64::MAX),
            })
        };
        let mut missing: Vec<Forgotten> = self.by_key.iter().filter_map(missing).collect();
        missing.sort_by(|a, b| a.ip.cmp(&b.ip));
        missing
    }

    /// How many of these are missing for so long that they are gone.
    pub(super) fn forgotten_count(&self, now: Instant) -> usize {
        let since = self.by_key.values().filter_map(|holder| holder.missing);
        let forgotten = since.filter(|since| now.duration_since(*since) >= FORGOTTEN_AFTER);
        forgotten.count()
    }

    /// Writes the names if they are due, or `now`. Retries a failed write later: it affects only names.
    pub(super) fn write(&mut self, now: bool) {
        if self.write_at.is_none_or(|at| !now && at > Instant::now()) {
            return;
        }
        let named = self.by_key.iter().filter_map(|(key, holder)| {
            let [network, container, interface] = key.clone();
            Some(Named {
                network,
                container,
                interface,
                pod: holder.pod.clone()?,
            })
        });
        let written = self.file.replace(&named.collect::<Vec<_>>());
        self.write_at = written.err().map(|error| {
            tracing::debug!("the pods' names are not written: {error}");
            Instant::now() + WRITE_PAUSE
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(container: &str) -> IpamKey {
        IpamKey {
            network_name: "net".to_owned(),
            container_id: container.to_owned(),
            if_name: "eth0".to_owned(),
        }
    }

    fn has(addresses: &[&str]) -> Inventory {
        let mut has = Inventory::default();
        has.add_eni("eni-1", 0, true, false);
        for ip in addresses {
            has.add_address("eni-1", ip);
        }
        has
    }

    #[test]
    fn counts_follow_what_is_given_freed_and_rests() {
        let dir = tempfile::tempdir().unwrap();
        let mut holders = Holders::new(dir.path(), "ipam", false);
        let has = has(&["10.0.0.2", "10.0.0.3"]);
        let at = |holders: &Holders, now: Instant| {
            let stats = holders.stats(&has, 30_000, now);
            (stats.assigned, stats.free, stats.resting, stats.held)
        };
        let counts = |holders: &Holders| at(holders, Instant::now());
        holders.assigned(&key("c1"), "10.9.0.1", None);
        assert_eq!(counts(&holders), (0, 2, 0, 1), "no interface has it");
        holders.assigned(&key("c1"), "10.0.0.2", None);
        assert_eq!(counts(&holders), (1, 1, 0, 0), "it gave up the other");
        holders.assigned(&key("c2"), "10.0.0.3", None);
        holders.assigned(&key("c2"), "10.0.0.3", None);
        assert_eq!(counts(&holders), (2, 0, 0, 0));
        holders.freed(&key("c1"));
        holders.freed(&key("c1"));
        assert_eq!(counts(&holders), (1, 0, 1, 0));
        assert_eq!(at(&holders, Instant::now() + Duration::from_secs(30)), (1, 1, 0, 0));
        holders.freed(&key("c2"));
        holders.assigned(&key("c3"), "10.0.0.3", None);
        assert_eq!(counts(&holders), (1, 0, 1, 0));
    }

    #[test]
    fn names_are_there_after_a_restart_for_pods_that_stay() {
        let dir = tempfile::tempdir().unwrap();
        let mut holders = Holders::new(dir.path(), "ipam", false);
        holders.assigned(&key("c1"), "10.0.0.2", Some("default/web-0"));
        holders.assigned(&key("c2"), "10.0.0.3", Some("default/web-1"));
        holders.write(false);
        assert!(!holders.file.path().exists(), "many pods are written together");
        holders.write(true);
        let mut again = Holders::new(dir.path(), "ipam", false);
        again.read(vec![PodIpInfo {
            key: key("c1"),
            ip: "10.0.0.2".to_owned(),
            device_number: 0,
        }]);
        assert_eq!(again.pod(&key("c1")), Some("default/web-0"));
        assert_eq!(again.pods().len(), 1);
        again.assigned(&key("c1"), "10.0.0.2", None);
        assert_eq!(again.pod(&key("c1")), Some("default/web-0"), "ADD again without a name");
        std::fs::write(again.file.path(), "nonsense").unwrap();
        let mut unread = Holders::new(dir.path(), "ipam", false);
        unread.read(Vec::new());
        assert_eq!(unread.pods(), BTreeMap::new());
    }

    #[test]
    fn a_holder_that_the_runtime_does_not_list_is_forgotten_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let mut holders = Holders::new(dir.path(), "ipam", false);
        holders.assigned(&key("c1"), "10.0.0.2", None);
        holders.assigned(&key("c2"), "10.0.0.3", None);
        let listed = BTreeSet::from(["c1".to_owned()]);
        let start = Instant::now();
        let half = start + FORGOTTEN_AFTER / 2;
        holders.compare(&listed, start);
        holders.compare(&listed, half);
        assert_eq!(holders.missing(half).len(), 1);
        assert_eq!(holders.forgotten_count(half), 0, "it may be a pod that is being made");
        let end = start + FORGOTTEN_AFTER;
        assert_eq!(holders.forgotten_count(end), 1);
        let missing = &holders.missing(end)[0];
        assert_eq!(
            (missing.ip.as_str(), missing.missing_ms),
            ("10.0.0.3", FORGOTTEN_AFTER_MS)
        );
        holders.compare(&BTreeSet::from(["c1".to_owned(), "c2".to_owned()]), end);
        assert_eq!(holders.missing(end), []);
    }
}

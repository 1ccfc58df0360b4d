//! The guest's state, and what all of its calls share: the names of metrics, the time of a call, the gauges after it,
//! log lines, and writes.
//!
//! A change is written to the store as one entry, or as a whole checkpoint if the store is out of step or has its
//! maximum of entries. The caller decides what a failed write means for the change.
//!
//! The exported functions are in `enis` and `pods`; `reading` has `read-backing-store`.

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use trueup_guest::Level;

use crate::bindings::trueup::checkpoint::store::Error as StoreError;
use crate::key::Key;
use crate::memory::Memory;
use crate::settings::Settings;
use crate::stored;
use crate::world::{World, words};

/// ENIs removed by force that had pods.
pub(crate) const FORCE_REMOVED_ENIS: &str = "trueup_ipam_force_removed_enis_total";
/// Addresses removed by force from a pod.
pub(crate) const FORCE_REMOVED_IPS: &str = "trueup_ipam_force_removed_ips_total";
/// Assignments answered `no-available-ip`.
pub(crate) const NO_AVAILABLE_IP: &str = "trueup_ipam_no_available_ip_total";
/// Failed `append` and `checkpoint` calls, tolerated ones too.
pub(crate) const STORE_FAILURES: &str = "trueup_ipam_store_failures_total";

/// All counters.
pub(crate) const COUNTERS: [&str; 4] = [FORCE_REMOVED_ENIS, FORCE_REMOVED_IPS, NO_AVAILABLE_IP, STORE_FAILURES];
/// All gauges.
pub(crate) const GAUGES: [&str; 4] = [
    "trueup_ipam_enis",
    "trueup_ipam_total_ips",
    "trueup_ipam_assigned_ips",
    "trueup_ipam_held_allocations",
];

/// A count as the contract has it. The conversion saturates only beyond what a 32-bit memory holds.
pub(crate) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The device number of a held allocation: no interface has its address.
pub(crate) const NO_DEVICE: i32 = -1;

/// The state of one instance.
#[derive(Debug)]
pub(crate) struct Datastore {
    pub(crate) settings: Settings,
    pub(crate) memory: Memory,
    pub(crate) store_state: StoreState,
    /// The last values sent for the gauges.
    gauges: [Option<usize>; GAUGES.len()],
}

impl Datastore {
    /// An empty state, out of step with the store.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            memory: Memory::default(),
            store_state: StoreState::default(),
            gauges: Default::default(),
        }
    }

    /// Completes `lifecycle.init`: all metrics exist from then on.
    pub(crate) fn begin(&mut self, world: &mut impl World) {
        for name in COUNTERS {
            world.counter_add(name, &[], 0);
        }
        self.show_all(world);
    }

    /// Sends all gauges.
    pub(crate) fn show_all(&mut self, world: &mut impl World) {
        self.gauges = Default::default();
        self.show(world);
    }

    /// The time of this call; reads the clock at most once in it. Memory takes note of the time first.
    pub(crate) fn now_ms(&mut self, world: &mut impl World) -> u64 {
        let now_ms = world.now_ms();
        self.memory.look_at_clock(self.settings.cooling, now_ms);
        now_ms
    }

    /// Ends a call that may have changed something: sends the gauges that changed.
    pub(crate) fn show(&mut self, world: &mut impl World) {
        let numbers = [
            self.memory.enis().len(),
            self.memory.total_count(),
            self.memory.assigned_count(),
            self.memory.held_count(),
        ];
        for ((name, sent), number) in GAUGES.iter().zip(&mut self.gauges).zip(numbers) {
            if sent.replace(number) != Some(number) {
                world.gauge_count(name, &[], number);
            }
        }
    }
}

/// Logs a line about one allocation. `address` may be any text; `more` is the ENI, or the reason.
pub(crate) fn log_pod(
    world: &mut impl World,
    level: Level,
    message: &str,
    key: &Key,
    address: Option<&dyn Display>,
    more: Option<(&str, &str)>,
) {
    let fields = key.fields();
    let address = address.map(|address| address.to_string());
    let mut shown = vec![
        ("network", fields.network_name.as_str()),
        ("container", &fields.container_id),
        ("interface", &fields.if_name),
    ];
    shown.extend(address.as_deref().map(|text| ("address", text)));
    shown.extend(more);
    world.log(level, message, &shown);
}

/// What the guest knows about the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoreState {
    /// True if the stored text gives exactly the allocations in memory.
    pub(crate) in_step: bool,
    /// How many entries follow the checkpoint.
    pub(crate) entries: u64,
    /// Why the store could not be read. The guest writes nothing until a reading succeeds.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(crate) blocked: Option<String>,
}

impl Datastore {
    /// Writes a change that memory already has and that happened now. `entry` is `None` if only a whole checkpoint can
    /// express it.
    ///
    /// # Errors
    /// Why the write failed, as `KIND: TEXT` or in the words of the failed reading. The store may have the text all the
    /// same: the next change writes a whole checkpoint.
    pub(crate) fn write(&mut self, world: &mut impl World, now_ms: u64, entry: Option<&str>) -> Result<(), String> {
        let store = &mut self.store_state;
        if let Some(why) = store.blocked.clone() {
            store.in_step = false;
            return Err(why);
        }
        match entry {
            Some(entry) if store.in_step && store.entries < self.settings.compact_after => self.append(world, entry),
            _ => self.write_whole(world, now_ms),
        }
    }

    /// Writes a whole checkpoint, whatever is stored, and then the rests.
    ///
    /// # Errors
    /// As [`Datastore::write`]. A failure to store the rests is logged and is no error.
    pub(crate) fn write_whole(&mut self, world: &mut impl World, now_ms: u64) -> Result<(), String> {
        let answer = world.checkpoint(&self.memory.checkpoint());
        self.note(world, answer)?;
        self.store_state.in_step = true;
        self.store_state.entries = 0;
        let resting = self.memory.all_resting(self.settings.cooling, now_ms);
        if self.settings.compact_after == 0 || resting.is_empty() {
            return Ok(());
        }
        if let Err(why) = self.append(world, &stored::rest(&resting)) {
            let message = "the rests were not stored, a restart would end them";
            world.warn(message, &[("error", &why)]);
        }
        Ok(())
    }

    fn append(&mut self, world: &mut impl World, entry: &str) -> Result<(), String> {
        let answer = world.append(entry);
        self.note(world, answer)?;
        self.store_state.entries = self.store_state.entries.saturating_add(1);
        Ok(())
    }

    fn note(&mut self, world: &mut impl World, answer: Result<(), StoreError>) -> Result<(), String> {
        answer.map_err(|error| {
            self.store_state.in_step = false;
            world.counter_add(STORE_FAILURES, &[], 1);
            words(&error)
        })
    }
}

//! The guest's state, and what all of its calls share: the time of a call, the gauges after it, log lines.
//!
//! The exported functions are in `enis` and `pods`; `reading` has `read-backing-store`, `writing` the changes.

use std::fmt::Display;

use trueup_guest::Level;

use crate::metrics::{self, Gauges};
use crate::{key::Key, memory::Memory, settings::Settings, world::World, writing::StoreState};

/// The device number of a held allocation: no interface has its address.
pub(crate) const NO_DEVICE: i32 = -1;

/// The state of one instance.
#[derive(Debug)]
pub(crate) struct Datastore {
    pub(crate) settings: Settings,
    pub(crate) memory: Memory,
    pub(crate) store_state: StoreState,
    gauges: Gauges,
}

impl Datastore {
    /// An empty state, out of step with the store.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            memory: Memory::default(),
            store_state: StoreState::default(),
            gauges: Gauges::default(),
        }
    }

    /// Completes `lifecycle.init`: all metrics exist from then on.
    pub(crate) fn begin(&mut self, world: &mut impl World) {
        metrics::begin(world);
        self.show_all(world);
    }

    /// Sends all gauges.
    pub(crate) fn show_all(&mut self, world: &mut impl World) {
        self.gauges = Gauges::default();
        self.show(world);
    }

    /// The time of this call; reads the clock at most once in it. Memory takes note of the time first.
    pub(crate) fn now_ms(&mut self, world: &mut impl World) -> u64 {
        let now_ms = world.now_ms();
        self.memory.look_at_clock(self.settings.cooling, now_ms);
        now_ms
    }

    /// Ends a call that may have changed something.
    pub(crate) fn show(&mut self, world: &mut impl World) {
        self.gauges.follow(world, &self.memory);
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

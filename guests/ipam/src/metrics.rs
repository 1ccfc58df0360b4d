//! The names of all metrics, and the gauges, which are sent only when they change.

use crate::{memory::Memory, world::World};

/// ENIs removed by force that had pods.
pub(crate) const FORCE_REMOVED_ENIS: &str = "trueup_ipam_force_removed_enis_total";
/// Addresses removed by force from a pod.
pub(crate) const FORCE_REMOVED_IPS: &str = "trueup_ipam_force_removed_ips_total";
/// Assignments answered `no-available-ip`.
pub(crate) const NO_AVAILABLE_IP: &str = "trueup_ipam_no_available_ip_total";
/// Failed `append` and `checkpoint` calls, tolerated ones too.
pub(crate) const STORE_FAILURES: &str = "trueup_ipam_store_failures_total";

const COUNTERS: [&str; 4] = [FORCE_REMOVED_ENIS, FORCE_REMOVED_IPS, NO_AVAILABLE_IP, STORE_FAILURES];
const GAUGES: [&str; 4] = [
    "trueup_ipam_enis",
    "trueup_ipam_total_ips",
    "trueup_ipam_assigned_ips",
    "trueup_ipam_held_allocations",
];

/// A count as the contract has it. The conversion saturates only beyond what a 32-bit memory holds.
pub(crate) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The last values sent for the gauges.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauges([Option<usize>; GAUGES.len()]);

impl Gauges {
    /// Sends the changed ones.
    pub(crate) fn follow(&mut self, world: &mut impl World, memory: &Memory) {
        let numbers = [
            memory.eni_count(),
            memory.total_count(),
            memory.assigned_count(),
            memory.held_count(),
        ];
        for ((name, sent), number) in GAUGES.iter().zip(&mut self.0).zip(numbers) {
            if sent.replace(number) != Some(number) {
                world.gauge_count(name, &[], number);
            }
        }
    }
}

/// Creates all counters.
pub(crate) fn begin(world: &mut impl World) {
    for name in COUNTERS {
        world.counter_add(name, &[], 0);
    }
}

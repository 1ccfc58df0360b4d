//! The names of all metrics.

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

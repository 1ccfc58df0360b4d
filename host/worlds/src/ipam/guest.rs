//! The world `trueup:ipam/ipam-datastore`: its bindings, and its exports by name.

use serde::{Deserialize, Serialize};
use trueup_config::WarmTargets;
use trueup_instance::{bindings, world};

pub use trueup_instance::dispatch::Nothing;

/// The name of this guest in configuration and state, whatever name the component has.
pub const NAME: &str = "ipam";

bindings! {
    ["../../wit/host", "../../wit/guest", "../../wit/checkpoint", "../../wit/cri", "../../wit/ipam"],
    "trueup:ipam/ipam-datastore",
    {
        "trueup:checkpoint": trueup_capabilities::bindings::checkpoint,
        "trueup:cri": trueup_capabilities::bindings::cri,
    }
}

pub use bindings::exports::trueup::ipam::datastore::{
    AddressInfo, Assignment, Eni, EniInfos, Error, IpamKey, PodIpInfo, Stats,
};

/// The arguments of `datastore.add-eni`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddEni {
    /// The interface's id.
    pub eni_id: String,
    /// Its device number.
    pub device_number: i32,
    /// Whether it is the node's first interface.
    pub is_primary: bool,
    /// Whether it carries branch interfaces.
    pub is_trunk: bool,
}

/// The arguments of `datastore.add-ipv4-address-to-store`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddAddress {
    /// The interface's id.
    pub eni_id: String,
    /// Dotted IPv4.
    pub ipv4: String,
}

world! {
    "trueup:ipam/ipam-datastore" as IpamDatastore, IpamDatastorePre;
    imports: ["checkpoint/store", "cri/sandboxes", "host/clock", "host/log", "host/metrics"];
    exports: ["guest/lifecycle", "ipam/datastore"];
    is_stateless: false; trueup_ipam_datastore:
    "datastore.add-eni": AddEni => |e, s, a| e.call_add_eni(s, &a.eni_id, a.device_number, a.is_primary, a.is_trunk);
    "datastore.add-ipv4-address-to-store": AddAddress => |e, s, a| e.call_add_ipv4_address_to_store(s, &a.eni_id, &a.ipv4);
    "datastore.allocated-ips": Nothing => |e, s, _a| e.call_allocated_ips(s);
    "datastore.assign-pod-ipv4-address": OfKey { key: IpamKey } => |e, s, a| e.call_assign_pod_ipv4_address(s, &a.key);
    "datastore.del-ipv4-address-from-store": DelAddress { eni_id: String, ipv4: String, force: bool } =>
        |e, s, a| e.call_del_ipv4_address_from_store(s, &a.eni_id, &a.ipv4, a.force);
    "datastore.find-address-for-sandbox": OfKey => |e, s, a| e.call_find_address_for_sandbox(s, &a.key);
    "datastore.freeable-ips": OfEni { eni_id: String } => |e, s, a| e.call_freeable_ips(s, &a.eni_id);
    "datastore.get-eni-infos": Nothing => |e, s, _a| e.call_get_eni_infos(s);
    "datastore.get-eni-ips": OfEni => |e, s, a| e.call_get_eni_ips(s, &a.eni_id);
    "datastore.get-eni-needs-ip": EniNeedsIp { max_ip_per_eni: u32, skip_primary: bool } =>
        |e, s, a| e.call_get_eni_needs_ip(s, a.max_ip_per_eni, a.skip_primary);
    "datastore.get-enis": Nothing => |e, s, _a| e.call_get_enis(s);
    "datastore.get-stats": Nothing => |e, s, _a| e.call_get_stats(s);
    "datastore.get-trunk-eni": Nothing => |e, s, _a| e.call_get_trunk_eni(s);
    "datastore.read-backing-store": Nothing => |e, s, _a| e.call_read_backing_store(s);
    "datastore.remove-eni-from-data-store": RemoveEni { eni_id: String, force: bool } =>
        |e, s, a| e.call_remove_eni_from_data_store(s, &a.eni_id, a.force);
    "datastore.remove-unused-eni-from-store": WarmTargets =>
        |e, s, a| e.call_remove_unused_eni_from_store(s, a.warm_ip_target, a.minimum_ip_target);
    "datastore.unassign-pod-ipv4-address": OfKey => |e, s, a| e.call_unassign_pod_ipv4_address(s, &a.key);
}

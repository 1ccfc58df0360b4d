//! The guest ipam: tracks which pod holds which address of which network interface (ENI) of this node.
//!
//! A pod gets its address only after the store has it; a released address rests before it goes out again. The model is
//! the datastore of the AWS VPC CNI's node agent, version 1.7.
//!
//! This file has the exports, and decides nothing. `enis`, `pods` and `reading` have the
//! exported functions, over a [`world`]; `memory` with `addresses` keeps the state and its indexes;
//! `stored` and `snapshot` handle texts.
//!
//! ```text
//! enis --+
//! pods --+-> memory (undone where the write fails) -> writing -> store
//! reading <- stored <- store | runtime
//! ```
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

use trueup_guest::Imports;

use crate::bindings::exports::trueup::ipam::datastore::{
    self as exported, Assignment, Eni, EniInfos, Error, IpamKey, PodIpInfo, Stats,
};
use crate::datastore::Datastore;

mod addresses;
mod bindings;
mod datastore;
mod enis;
mod json;
mod key;
mod memory;
mod pods;
mod reading;
mod settings;
#[cfg(test)]
mod simulated;
mod snapshot;
mod stored;
#[cfg(test)]
mod tests;
mod world;

trueup_guest::guest!(Datastore);

trueup_guest::exports! { exported::Guest {
    fn add_eni(eni_id: String, device_number: i32, is_primary: bool, is_trunk: bool) -> Result<(), Error> =
        |datastore| datastore.add_eni(&mut Imports, &eni_id, device_number, is_primary, is_trunk);
    fn add_ipv4_address_to_store(eni_id: String, ipv4: String) -> Result<(), Error> =
        |datastore| datastore.add_address(&mut Imports, &eni_id, &ipv4);
    fn del_ipv4_address_from_store(eni_id: String, ipv4: String, force: bool) -> Result<(), Error> =
        |datastore| datastore.del_address(&mut Imports, &eni_id, &ipv4, force);
    fn assign_pod_ipv4_address(key: IpamKey) -> Result<Assignment, Error> =
        |datastore| datastore.assign(&mut Imports, key);
    fn unassign_pod_ipv4_address(key: IpamKey) -> Result<Assignment, Error> =
        |datastore| datastore.unassign(&mut Imports, key);
    fn find_address_for_sandbox(key: IpamKey) -> Option<Assignment> = |datastore| datastore.find(key);
    fn allocated_ips() -> Vec<PodIpInfo> = |datastore| datastore.allocated_ips();
    fn freeable_ips(eni_id: String) -> Vec<String> = |datastore| datastore.freeable_ips(&eni_id);
    fn get_eni_ips(eni_id: String) -> Result<Vec<String>, Error> = |datastore| datastore.eni_ips(&eni_id);
    fn get_eni_infos() -> EniInfos = |datastore| datastore.eni_infos();
    fn get_eni_needs_ip(max_ip_per_eni: u32, skip_primary: bool) -> Option<Eni> =
        |datastore| datastore.eni_needs_ip(max_ip_per_eni, skip_primary);
    fn get_enis() -> u32 = |datastore| datastore.eni_count();
    fn get_stats() -> Stats = |datastore| datastore.stats();
    fn get_trunk_eni() -> Option<String> = |datastore| datastore.trunk_eni();
    fn read_backing_store() -> Result<(), Error> = |datastore| datastore.read_backing_store(&mut Imports);
    fn remove_eni_from_data_store(eni_id: String, force: bool) -> Result<(), Error> =
        |datastore| datastore.remove_eni(&mut Imports, &eni_id, force);
    fn remove_unused_eni_from_store(warm_ip_target: u32, minimum_ip_target: u32) -> Option<String> =
        |datastore| datastore.remove_unused_eni(&mut Imports, warm_ip_target, minimum_ip_target);
} }

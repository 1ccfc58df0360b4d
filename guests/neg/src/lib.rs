//! The guest neg: syncs the network endpoint groups (NEGs) of one service with their target, and migrates a service
//! that changes its stack a few endpoints at a time.
//!
//! An endpoint can't get its second address by a change: the guest must detach and attach it again, and in between it
//! carries no traffic. The model is the NEG syncer of the Kubernetes controller for Google Compute Engine with its
//! dual-stack migrator; the specification lists the intended differences.
//!
//! This file has the exports, and decides nothing. `address`, `entry`, `filter`, `target`
//! and `compare` are pure; `migrator`, `retry`, `operations` and `syncer` keep the state, whose text `neg` has, and ask
//! a [`world`].
//!
//! ```text
//! target --+
//! list  ---+-> compare -> filter (migrator) -> leave alone what is in flight -> attach, detach (syncer)
//! flight --+                                                                       |
//!    ^---------------------------------- on-operation <----------------------------+
//! ```
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

use trueup_guest::Imports;

use crate::bindings::exports::trueup::guest::timer_events;
use crate::bindings::exports::trueup::neg::migrator::{self as exported_migrator, Filtered};
use crate::bindings::exports::trueup::neg::syncer::{self as exported_syncer, SyncReport};
use crate::bindings::trueup::neg::types::EndpointGroup as Group;
use crate::neg::Neg;

pub mod address;
pub mod bindings;
pub mod compare;
pub mod entry;
pub mod filter;
pub mod migrator;
pub mod neg;
pub mod operations;
pub mod retry;
pub mod settings;
#[cfg(test)]
mod simulated;
pub mod syncer;
pub mod target;
#[cfg(test)]
mod tests;
pub mod world;

trueup_guest::guest!(Neg);

trueup_guest::exports! { timer_events::Guest {
    fn on_timer(timer: u64) -> bool = |neg| neg.on_timer(&mut Imports, timer);
} }

trueup_guest::exports! { exported_migrator::Guest {
    fn filter(add: Vec<Group>, remove: Vec<Group>, committed: Vec<Group>, in_error_state: bool) -> Filtered =
        |neg| neg.filter(&mut Imports, add, remove, committed, in_error_state);
    fn pause() = |neg| neg.migrator.pause(&mut Imports, &neg.settings);
    fn continue_(detach_failure: Option<String>) =
        |neg| neg.migrator.resume(&mut Imports, &neg.settings, detach_failure.as_deref());
    fn is_paused() -> bool = |neg| neg.migrator.is_paused(&neg.settings);
} }

trueup_guest::exports! { exported_syncer::Guest {
    fn sync(target: Vec<Group>) -> Result<SyncReport, exported_syncer::Error> =
        |neg| neg.sync(&mut Imports, target);
    fn on_operation(operation: u64, failure: Option<String>) -> bool =
        |neg| neg.on_operation(&mut Imports, operation, failure);
    fn set_error_state(in_error_state: bool) = |neg| neg.set_error_state(&mut Imports, in_error_state);
} }

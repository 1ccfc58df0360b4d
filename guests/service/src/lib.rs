//! The guest service: tracks Kubernetes services with their endpoints as this node sees them, and the interfaces of
//! clients and backends; sends the renderers exactly the changes of both.
//!
//! The renderers' desired state is a function of the inputs; the guest remembers what they acknowledged, and calls them
//! with the difference. The model is the service processor of Contiv-VPP; the specification lists the intended
//! differences.
//!
//! This file has the exports, and decides nothing. `parse` parses, `inputs` stores, `view` has the function of the
//! inputs, and stores its results with indexes of what an event touches; `processor` and `rendering` call a [`world`];
//! `processor` has their text, too.
//!
//! ```text
//! event -> parse -> inputs -> view: touched pods -> touched services -> combine --+-> differences -> renderers
//!                                                                acknowledged ---+        |
//!                                                                     ^-------------------+
//! ```
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

use trueup_guest::Imports;

use crate::bindings::exports::trueup::service::processor::{self as exported, Event, State};
use crate::bindings::trueup::kube::types::ObjectId;
use crate::processor::Processor;

mod bindings;
#[cfg(test)]
mod counting;
mod id;
mod inputs;
mod interfaces;
mod parse;
mod processor;
mod rendering;
mod settings;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
mod view;
mod world;

trueup_guest::guest!(Processor);

trueup_guest::exports! { exported::Guest {
    fn resync(state: State) -> Result<(), String> = |processor| processor.resync(&mut Imports, state);
    fn update(event: Event) -> Result<(), String> = |processor| processor.update(&mut Imports, event);
    fn revert(pod: ObjectId) = |processor| processor.revert(&mut Imports, pod);
} }

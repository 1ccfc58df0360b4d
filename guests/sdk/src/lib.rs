//! What every guest of trueup needs, so that a guest's own crate holds only its decisions.
//!
//! - [`bindings!`] generates the bindings of a world; [`guest!`] keeps the state and exports `lifecycle`; [`exports!`]
//!   lists the other exports; [`world!`] declares what a guest's decisions ask.
//! - [`Telemetry`] and [`Clock`] are the log, metrics and clock; [`Imports`] asks the host for them.
//! - [`settings`] reads the settings, [`snapshot`] the state of an earlier version.
//! - [`address`], [`network`], [`text`] and [`words`] are pure helpers; [`etcd`] words the database's errors.
//! - `testing` (the feature of that name) records what a guest logs and measures, for its native tests.
//!
//! Knows no world. docs/guests.md describes how to write a guest.
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

pub mod address;
pub mod etcd;
mod guest;
mod host;
pub mod network;
pub mod settings;
pub mod snapshot;
#[cfg(feature = "testing")]
pub mod testing;
pub mod text;
pub mod words;

pub use guest::{Guest, Stateless};
#[doc(hidden)]
pub use guest::{State, init, with};
pub use host::{Clock, Imports, Level, Telemetry};
/// For [`bindings!`].
#[doc(hidden)]
pub use wit_bindgen;

/// The interfaces that guests share, generated from `wit/`.
#[expect(missing_docs, reason = "a name that says it all has no text in `wit/`")]
pub mod bindings {
    wit_bindgen::generate!({
        path: ["wit/host", "wit/etcd"],
        inline: "
            package trueup:sdk;
            world shared {
                import trueup:etcd/kv@0.1.0;
                import trueup:host/clock@0.1.0;
                import trueup:host/log@0.1.0;
                import trueup:host/metrics@0.1.0;
            }
        ",
        world: "trueup:sdk/shared",
        additional_derives: [Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize],
        generate_all,
    });
}

//! The origins of guests: built-in guests, files, folders of versions, and OCI registries.
//!
//! ```text
//! reference -> found (store, file, network) -> held against the lock -> signature, where one is asked for -> bytes
//! ```
//!
//! A configuration has a lock file beside it and a store in its state folder ([`Registry::at`]): a guest that is in
//! both needs no network. This crate compiles no guest, and does not decide which version is active.
#![forbid(unsafe_code)]

#[cfg(feature = "oci")]
mod credentials;
mod local;
mod lock;
#[cfg_attr(
    not(feature = "oci"),
    expect(dead_code, reason = "some of it serves registries alone")
)]
mod manifest;
#[cfg_attr(not(feature = "oci"), path = "oci_absent.rs")]
mod oci;
mod reference;
mod registry;
mod signature;
mod store;
mod versions;

pub use local::{Builtin, Found, Pinned, Vouched};
pub use lock::{Change, FILE_NAME as LOCK_FILE_NAME, Kind as ChangeKind, Lock, Pin};
pub use manifest::About;
pub use reference::{MUST, OciReference, Reference};
pub use registry::{Pushed, Registry, push};
pub use signature::Verify;
pub use store::{NoGuest, NotLoaded, Store, StoreError};

//! Small pure helpers that several guests need: addresses and networks, settings, the version of a snapshot, values as
//! JSON text, fast text comparison, and panic reports.
//!
//! Pure: no imports, no state, no clock. A guest keeps what only it needs. `scenarios` is for tests: no shipped guest
//! is built with it.
#![forbid(unsafe_code)]

pub mod address;
pub mod network;
pub mod panics;
#[cfg(feature = "scenarios")]
pub mod scenarios;
pub mod settings;
pub mod snapshot;
pub mod text;
pub mod words;

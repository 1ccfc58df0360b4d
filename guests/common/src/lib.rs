//! Small pure helpers that several guests need: addresses and networks, settings, the version of a snapshot,
//! values as JSON text, texts compared fast, and what becomes of a panic.
//!
//! Pure: no imports, no state, no clock. What only one guest needs stays with that guest. `scenarios` is for tests: no
//! guest that ships is built with it.
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

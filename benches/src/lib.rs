//! Benchmarks: what trueup costs, as ratios measured in one run.
//!
//! This crate has the measurements, and `table` prints them. `benches/ratios.rs`, `benches/pods.rs`, `benches/neg.rs`,
//! `benches/rendering.rs`, `benches/versions.rs` and `benches/kubernetes.rs` print the README's tables,
//! `benches/figures.rs` the single figures with their spread.
//!
//! ```text
//! service (what is wanted, what is there) -> stage (guest, host, recording) -> ratios, figures
//!                                            probe (the boundary alone)
//!                                            http (against an Engine with latency)
//! endpoints (sets of them, and a target) -> negs (guest, host), probe -> neg
//! pods (addresses, guest, host, store), plugin (processes) -> pods
//! rendering (services, guests, host) -> rendering
//! swaps (a host under load), stage -> versions
//! effects (of changes in a cluster) -> kubernetes
//! ```
#![forbid(unsafe_code)]

pub mod effects;
pub mod endpoints;
pub mod http;
pub mod measure;
pub mod negs;
pub mod plugin;
pub mod pods;
pub mod probe;
pub mod rendering;
pub mod service;
pub mod stage;
pub mod swaps;
pub mod table;

//! Tests of the whole system that need root or much of the machine: the kernel's namespaces, and hosts that are killed.
//!
//! A test names its needs beyond Rust: `#[needs(root)]`.

#![cfg(test)]

mod cni;
mod ipam_crash;
mod ipam_swap;
mod kill;
#[path = "../it/guests/renumbered.rs"]
mod renumbered;
mod traffic;

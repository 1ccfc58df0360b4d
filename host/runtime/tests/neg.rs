//! NEGs with the guest that ships: calls that a kill cut short are finished as they were begun, and a run brings a simulated
//! Compute Engine to what manifests say.
#![cfg(test)]

#[path = "neg/host.rs"]
mod host;
#[path = "neg/interrupted.rs"]
mod interrupted;
#[path = "neg/once.rs"]
mod once;

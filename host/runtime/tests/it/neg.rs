//! NEGs with the guest that ships: calls that a kill cut short are finished as they were begun, and a run brings a simulated
//! Compute Engine to what manifests say.
mod host;
mod interrupted;
mod once;

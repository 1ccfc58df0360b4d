//! NEGs with the shipped guest: calls interrupted by a kill are completed unchanged, and a run brings a simulated
//! Compute Engine to the state in the manifests.
mod host;
mod interrupted;
mod once;

//! `trueup:neg/api`: network endpoint groups of Compute Engine.

pub mod server;

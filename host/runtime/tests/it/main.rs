//! Tests of the runtime's parts with real guests.

#![cfg(test)]

#[path = "../../../../tests/it/guests/forgetful.rs"]
mod forgetful;
mod gate;
mod guests;
mod instances;
mod ipam;
#[path = "../../../../tests/it/guests/misbehaving.rs"]
mod misbehaving;
mod neg;
mod shadow;
mod versions;

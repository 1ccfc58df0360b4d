//! Guests that are built for tests.

pub(crate) mod forgetful;
pub(crate) mod misbehaving;
pub(crate) mod renumbered;
